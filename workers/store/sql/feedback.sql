-- name: save_feedback
-- What was tied once stays so: the answer may be forgotten when somebody thinks again.
INSERT INTO feedback AS known (key_id, query_id, result_id, project, query_text, feedback_text,
        relevant, rating, is_tied, method, rank, semantic, lexical, fused, rerank_score)
VALUES (%(key_id)s, %(query_id)s, %(result_id)s, %(project)s, %(query_text)s, %(feedback_text)s,
        %(relevant)s, %(rating)s, %(is_tied)s, %(method)s, %(rank)s, %(semantic)s, %(lexical)s,
        %(fused)s, %(rerank_score)s)
    ON CONFLICT (key_id, query_id, result_id) DO UPDATE SET
       query_text = excluded.query_text,
       feedback_text = excluded.feedback_text,
       relevant = excluded.relevant,
       rating = excluded.rating,
       project = coalesce(known.project, excluded.project),
       is_tied = known.is_tied OR excluded.is_tied,
       method = coalesce(excluded.method, known.method),
       rank = coalesce(excluded.rank, known.rank),
       semantic = coalesce(excluded.semantic, known.semantic),
       lexical = coalesce(excluded.lexical, known.lexical),
       fused = coalesce(excluded.fused, known.fused),
       rerank_score = coalesce(excluded.rerank_score, known.rerank_score),
       updated_at = now()
RETURNING is_tied

-- name: project_of
-- Where a node is, among these projects (NULL: all). OFFSET 0 keeps it one look-up a project.
SELECT project.project
  FROM project
 CROSS JOIN LATERAL (
       SELECT FROM memory_node
        WHERE project = project.project AND sha256 = %(sha256)s
       OFFSET 0) AS node
 WHERE %(projects)s::text[] IS NULL OR project.project = ANY(%(projects)s)
 ORDER BY project.project
 LIMIT 1

-- name: report_feedback
-- Results that several keys called irrelevant, and those that cannot be looked up any more, newest
-- first. Within these projects (NULL: all); what has none belongs to who said it. A page begins after
-- an instant and the first half of a sha256, which is as good a name.
WITH judged AS (
    SELECT project, result_id,
           count(DISTINCT key_id) FILTER (WHERE NOT relevant) AS irrelevant_for,
           count(DISTINCT key_id) FILTER (WHERE relevant) AS relevant_for,
           avg(rating)::float8 AS rating, max(updated_at) AS updated_at
      FROM feedback
     WHERE (%(projects)s::text[] IS NULL OR project = ANY(%(projects)s)
            OR project IS NULL AND key_id = %(key_id)s)
       AND (%(project)s::text IS NULL OR project = %(project)s)
     GROUP BY project, result_id
), told AS (
    SELECT judged.*, node.level, node.kind, node.source,
           node.level IS NULL AS is_unresolved,
           irrelevant_for >= %(keys)s AS is_irrelevant
      FROM judged
      LEFT JOIN LATERAL (
           SELECT level, kind, source FROM memory_node
            WHERE project = judged.project AND sha256 = judged.result_id
           OFFSET 0) AS node ON true
)
SELECT * FROM told
 WHERE (is_irrelevant AND %(about)s::text IS DISTINCT FROM 'unresolved'
        OR is_unresolved AND %(about)s::text IS DISTINCT FROM 'irrelevant')
   AND (%(before_at)s::timestamptz IS NULL
        OR (updated_at, left(result_id, 32)) < (%(before_at)s, %(before_id)s))
 ORDER BY updated_at DESC, left(result_id, 32) DESC
 LIMIT %(limit)s

-- name: remarks_on
-- The last five of what was said of each result: by this key, or by any.
SELECT asked.place, said.*
  FROM unnest(%(projects)s::text[], %(shas)s::text[]) WITH ORDINALITY
       AS asked (project, result_id, place)
 CROSS JOIN LATERAL (
       SELECT query_id, query_text, feedback_text, relevant, rating, is_tied, method, rank,
              coalesce(rerank_score, fused) AS score, updated_at
         FROM feedback
        WHERE result_id = asked.result_id AND project IS NOT DISTINCT FROM asked.project
          AND (%(is_all)s OR key_id = %(key_id)s)
        ORDER BY updated_at DESC, id DESC
        LIMIT 5) AS said
 ORDER BY asked.place, said.updated_at DESC

-- name: list_judgements
-- What was said of results that are still there, of questions whose words are known, newest first: by
-- this key, or by any.
SELECT said.id, said.updated_at, said.project, said.query_text, said.result_id, node.level,
       said.relevant, said.rating
  FROM feedback AS said
 CROSS JOIN LATERAL (
       SELECT level FROM memory_node
        WHERE project = said.project AND sha256 = said.result_id
       OFFSET 0) AS node
 WHERE query_text IS NOT NULL
   AND (%(is_all)s OR key_id = %(key_id)s)
   AND (%(projects)s::text[] IS NULL OR said.project = ANY(%(projects)s))
   AND (%(project)s::text IS NULL OR said.project = %(project)s)
   AND (%(before_at)s::timestamptz IS NULL
        OR (updated_at, said.id) < (%(before_at)s, %(before_id)s))
 ORDER BY updated_at DESC, said.id DESC
 LIMIT %(limit)s
