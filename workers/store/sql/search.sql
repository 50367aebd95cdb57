-- name: nearest_exact
-- Recall: the vectors of one project nearest to a question, each exactly measured. The vector table
-- alone picks them. `+ 0` keeps any vector index out of it: an index would lose rows to the filters.
-- `measured` or `hits` goes on from here, and hybrid.sql; WITH stands before it.
nearest AS MATERIALIZED (
    SELECT sha256, level, (embedding <=> %(query)s) + 0 AS distance
      FROM node_vector
     WHERE project = %(project)s AND model = %(model)s AND level = ANY(%(levels)s)
     ORDER BY distance, sha256
     LIMIT %(depth)s
), counted AS (
    SELECT coalesce(sum(nodes), 0)::bigint AS documents
      FROM node_count
     WHERE project = %(project)s AND level = ANY(%(levels)s)
)

-- name: nearest_filtered
-- As nearest_exact, among the nodes that pass filters, all of which are measured.
passing AS MATERIALIZED (
    SELECT sha256 FROM memory_node
     WHERE project = %(project)s AND level = ANY(%(levels)s) AND PASSES
), nearest AS MATERIALIZED (
    SELECT vector.sha256, vector.level, (embedding <=> %(query)s) + 0 AS distance
      FROM passing
      JOIN node_vector AS vector
        ON vector.project = %(project)s AND model = %(model)s AND vector.sha256 = passing.sha256
     ORDER BY distance, sha256
     LIMIT %(depth)s
), counted AS (
    SELECT count(*) AS documents FROM passing
)

-- name: hnsw_settings
-- For the rest of this transaction: let the index go on until enough rows pass the filters, within
-- bounds, and leave the planner no way around it (exact recall needs a sort, the index does not).
SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.ef_search', %(ef_search)s, true),
       set_config('hnsw.max_scan_tuples', %(max_scan_tuples)s, true),
       set_config('hnsw.scan_mem_multiplier', '4', true),
       set_config('enable_sort', 'off', true)

-- name: nearest_hnsw
-- As nearest_exact, by the project's own index. Its rows come in nearly the right order and are
-- sorted outside. DIMENSION stands for a number: a type modifier cannot be a parameter.
nearest AS MATERIALIZED (
    SELECT sha256, level, embedding::vector(DIMENSION) <=> %(query)s AS distance
      FROM node_vector
     WHERE project = %(project)s AND model = %(model)s AND level = ANY(%(levels)s)
     ORDER BY embedding::vector(DIMENSION) <=> %(query)s
     LIMIT %(depth)s
), counted AS (
    SELECT coalesce(sum(nodes), 0)::bigint AS documents
      FROM node_count
     WHERE project = %(project)s AND level = ANY(%(levels)s)
)

-- name: measured
-- The nearest, best first, then those of %(also)s that are not among them, measured likewise. `read`
-- goes on from here.
, measured AS (
    SELECT sha256, level, distance + 0 AS distance, true AS is_near FROM nearest
     UNION ALL
    SELECT also.sha256, vector.level, vector.distance, false
      FROM unnest(%(also)s::text[]) AS also (sha256)
     CROSS JOIN LATERAL (  -- OFFSET 0 keeps it one look-up a node
           SELECT level, (embedding <=> %(query)s) + 0 AS distance
             FROM node_vector
            WHERE project = %(project)s AND model = %(model)s AND sha256 = also.sha256
           OFFSET 0) AS vector
     WHERE also.sha256 <> ALL(ARRAY(SELECT sha256 FROM nearest))
), ranked AS (
    SELECT *, row_number() OVER (ORDER BY is_near DESC, distance, sha256) AS rank FROM measured
)

-- name: chosen
-- Candidates of which it is known already where they stand. `read` goes on from here.
WITH counted AS (
    SELECT NULL::bigint AS documents
), ranked AS (
    SELECT sha256, rank
      FROM unnest(%(nodes)s::text[]) WITH ORDINALITY AS node (sha256, rank)
)

-- name: read
-- Candidates in their order, each with the number of nodes that were looked at; where there are none,
-- one row with that alone. What a reranker reads of them is looked up after (OFFSET 0 keeps the
-- planner from turning that into joins, which cost more than the search). The size of a very long
-- text stands for its characters: counting them would read all of it, and beyond so many none makes
-- a difference.
SELECT counted.documents, ranked.*, node.kind, node.source, node.position, node.text,
       node.text_length, tokens.tokens
  FROM counted
  LEFT JOIN ranked ON true
  LEFT JOIN LATERAL (
       SELECT kind, source, position,
              CASE WHEN octet_length(text) > 40000 THEN octet_length(text)
                   ELSE length(text) END AS text_length,
              CASE WHEN %(has_text)s THEN left(text, 40000) END AS text
         FROM memory_node
        WHERE %(has_length)s AND project = %(project)s AND sha256 = ranked.sha256
       OFFSET 0) AS node ON true
  LEFT JOIN LATERAL (
       SELECT tokens
         FROM node_tokens
        WHERE %(has_tokens)s AND project = %(project)s AND token_model = %(token_model)s
          AND sha256 = ranked.sha256
       OFFSET 0) AS tokens ON true
 ORDER BY ranked.rank

-- name: evidence
-- What a reranker reads of the first turns that each of these nodes rests on.
SELECT edge.child, string_agg(turn.tokens, ''::bytea ORDER BY precedence, parent) AS tokens,
       sum(turn.text_length)::integer AS text_length
  FROM unnest(%(nodes)s::text[]) AS asked (sha256)
 CROSS JOIN LATERAL (
       SELECT child, parent, precedence
         FROM memory_edge
        WHERE project = %(project)s AND child = asked.sha256
        ORDER BY precedence, parent
        LIMIT %(most)s) AS edge
 CROSS JOIN LATERAL (
       SELECT held.tokens, length(text) AS text_length
         FROM memory_node AS parent
         JOIN node_tokens AS held USING (project, sha256)
        WHERE parent.project = %(project)s AND parent.sha256 = edge.parent
          AND parent.kind = 'turn' AND held.token_model = %(token_model)s
       OFFSET 0) AS turn
 GROUP BY edge.child

-- name: hits
-- The best %(hits)s of the nearest, for an answer whose order is recall's; where there are none, one
-- row without a node. `loaded` goes on from here.
, hit AS (
    SELECT nearest.sha256, nearest.level, nearest.distance, counted.documents,
           count(nearest.sha256) OVER () AS found,
           row_number() OVER (ORDER BY distance, sha256) AS rank
      FROM counted
      LEFT JOIN nearest ON true
     ORDER BY rank
     LIMIT %(hits)s
)

-- name: given
-- The nodes to load where reranking has chosen them. `loaded` goes on from here.
WITH hit AS (
    SELECT sha256, NULL::float8 AS distance, NULL::bigint AS documents, NULL::bigint AS found, rank
      FROM unnest(%(nodes)s::text[]) WITH ORDINALITY AS node (sha256, rank)
)

-- name: loaded
-- The hits, and the edges within two hops of them (L2 to L1 to L0) with the parent at the end of
-- each; only the latter have a `child`. Of a long text only the beginning. At most fans[1] parents of
-- a node are followed at the first hop, fans[2] at the second; `siblings` says how many a node has,
-- so that an answer can say what it leaves out. Whether a text is longer than what is shown is told by
-- its size where that is enough: counting the characters of a large document reads all of it.
, first AS (
    SELECT child, parent, rank, siblings
      FROM (SELECT child, parent, count(*) OVER (PARTITION BY child) AS siblings,
                   row_number() OVER (PARTITION BY child ORDER BY precedence, parent) AS rank
              FROM memory_edge
             WHERE project = %(project)s
               AND child = ANY(ARRAY(SELECT sha256 FROM hit))) AS step
     WHERE rank <= (%(fans)s::integer[])[1]
), second AS (
    SELECT child, parent, rank, siblings
      FROM (SELECT child, parent, count(*) OVER (PARTITION BY child) AS siblings,
                   row_number() OVER (PARTITION BY child ORDER BY precedence, parent) AS rank
              FROM memory_edge
             WHERE project = %(project)s
               AND child = ANY(ARRAY(SELECT parent FROM first))) AS step
     WHERE rank <= (%(fans)s::integer[])[2]
), edge AS (
    SELECT * FROM first UNION SELECT * FROM second
)
SELECT NULL AS child, NULL AS siblings, hit.rank, hit.documents, hit.found, hit.distance,
       node.project, node.sha256, node.level, node.kind, node.source,
       left(node.text, %(hit_characters)s) AS text,
       octet_length(node.text) > %(hit_characters)s
       AND (octet_length(node.text) > 4 * %(hit_characters)s
            OR length(node.text) > %(hit_characters)s) AS is_excerpt,
       node.position, node.occurred_at, node.title, node.breadcrumb, node.span, node.standing_id,
       node.tags, node.metadata
  FROM hit
  LEFT JOIN LATERAL (  -- OFFSET 0 keeps it one look-up a hit; a hash would read the whole project
       SELECT * FROM memory_node WHERE project = %(project)s AND sha256 = hit.sha256 OFFSET 0
       ) AS node ON true
 UNION ALL
SELECT edge.child, edge.siblings, edge.rank, NULL, NULL, NULL,
       node.project, node.sha256, node.level, node.kind, node.source,
       left(node.text, %(parent_characters)s),
       octet_length(node.text) > %(parent_characters)s
       AND (octet_length(node.text) > 4 * %(parent_characters)s
            OR length(node.text) > %(parent_characters)s),
       node.position, node.occurred_at, NULL, NULL, NULL, NULL,
       NULL, NULL
  FROM edge
 CROSS JOIN LATERAL (
       SELECT * FROM memory_node WHERE project = %(project)s AND sha256 = edge.parent OFFSET 0
       ) AS node
 ORDER BY child NULLS FIRST, rank
