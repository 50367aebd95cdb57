-- name: save_terms
-- The terms of nodes that have none yet, and their postings. A node's terms and counts come as text,
-- one after the other: arrays of different lengths do not fit into one.
WITH given AS (
    SELECT *
      FROM unnest(%(projects)s::text[], %(nodes)s::text[], %(levels)s::text[], %(lengths)s::integer[],
                  %(terms)s::text[], %(counts)s::text[])
           AS given (project, sha256, level, length, terms, counts)
), saved AS (
    INSERT INTO node_terms (project, sha256, level, length, analysis, terms)
    SELECT project, sha256, level, length, %(analysis)s, string_to_array(terms, ' ')
      FROM given
     ORDER BY project, sha256
        ON CONFLICT DO NOTHING
    RETURNING project, sha256
)
INSERT INTO posting (project, term, level, node, tf, length)
SELECT project, term, level, left(sha256, 32)::uuid, tf, length
  FROM saved
  JOIN given USING (project, sha256)
 CROSS JOIN LATERAL unnest(string_to_array(terms, ' '), string_to_array(counts, ' ')::smallint[])
            AS own (term, tf)
 ORDER BY project, term, level, sha256  -- as the index has them

-- name: list_unfinished
-- Projects with nodes that have no terms yet. Both counts are kept in the transaction of the nodes.
SELECT project
  FROM (SELECT project, sum(nodes) AS nodes FROM node_count GROUP BY project) AS stored
  LEFT JOIN (SELECT project, sum(nodes) AS nodes FROM lexical_count GROUP BY project) AS analysed
       USING (project)
 WHERE stored.nodes > coalesce(analysed.nodes, 0)
 ORDER BY project

-- name: lock_project
-- One writer at a time for each project, as ingest and forgetting have it.
SELECT project FROM project WHERE project = %(project)s FOR NO KEY UPDATE

-- name: take_missing
-- The next nodes after this one that have no terms.
SELECT sha256, level, kind, title, breadcrumb, left(text, %(most_characters)s) AS text
  FROM memory_node AS node
 WHERE project = %(project)s AND sha256 > %(after)s
   AND NOT EXISTS (SELECT FROM node_terms AS known
                    WHERE known.project = node.project AND known.sha256 = node.sha256)
 ORDER BY sha256
 LIMIT %(limit)s

-- name: take_outdated
-- Likewise those that were not analysed in this way; with `is_all` whichever come next.
SELECT node.sha256, node.level, kind, title, breadcrumb, left(text, %(most_characters)s) AS text
  FROM memory_node AS node
  LEFT JOIN node_terms AS known
    ON known.project = node.project AND known.sha256 = node.sha256
 WHERE node.project = %(project)s AND node.sha256 > %(after)s
   AND (%(is_all)s OR known.analysis IS DISTINCT FROM %(analysis)s)
 ORDER BY node.sha256
 LIMIT %(limit)s

-- name: drop_terms
DELETE FROM node_terms WHERE project = %(project)s AND sha256 = ANY(%(nodes)s)

-- name: count_stored
-- The nodes of each project (NULL: of all), and how many of them were analysed in this way.
SELECT project, nodes,
       (SELECT count(*) FROM node_terms AS known
         WHERE known.project = stored.project AND analysis = %(analysis)s) AS analysed
  FROM (SELECT project, sum(nodes)::bigint AS nodes FROM node_count GROUP BY project) AS stored
 WHERE nodes > 0 AND (%(project)s::text IS NULL OR project = %(project)s)
 ORDER BY project

-- name: weighed
-- What scoring needs to know before it looks at a node: BM25 (Robertson and Zaragoza 2009) with
-- k1 = 1.2 and b = 0.75, as weight * tf / (tf + 0.3 + length * per_length). All of it is of the
-- project and the asked levels, before other filters. Of many terms the rarest count.
-- `matched`, `scored`, `given` or hybrid.sql goes on from here.
WITH corpus AS MATERIALIZED (
    SELECT coalesce(sum(nodes), 0)::bigint AS nodes,
           1.2::float8 * 0.75 * sum(nodes)::float8 / greatest(sum(length), 1)::float8 AS per_length
      FROM lexical_count
     WHERE project = %(project)s AND level = ANY(%(levels)s)
), frequency AS MATERIALIZED (  -- OFFSET 0: one range of the index a term, and no join
    SELECT term, found.nodes
      FROM unnest(%(terms)s::text[]) AS asked (term)
     CROSS JOIN LATERAL (
           SELECT count(*) AS nodes
             FROM posting
            WHERE project = %(project)s AND posting.term = asked.term AND level = ANY(%(levels)s)
           OFFSET 0) AS found
     WHERE found.nodes > 0
), by_rarity AS (
    SELECT term, nodes, row_number() OVER rarest_first AS place,
           coalesce(lag(nodes) OVER rarest_first, 0) AS nodes_of_rarer,
           sum(nodes) OVER rarest_first AS nodes_so_far
      FROM frequency
    WINDOW rarest_first AS (ORDER BY nodes, term COLLATE "C" ROWS UNBOUNDED PRECEDING)
), chosen AS (
    SELECT by_rarity.*, corpus.nodes AS corpus_nodes, per_length,
           place = 1 OR nodes_of_rarer < %(depth)s
           OR (by_rarity.nodes <= %(frequent)s * corpus.nodes AND nodes_so_far <= %(most_read)s)
           AS is_looked_up
      FROM by_rarity, corpus
     WHERE place <= %(most_terms)s
), weighed AS MATERIALIZED (
    SELECT term, per_length, is_looked_up,
           2.2::float8 * ln(1 + (corpus_nodes - nodes + 0.5::float8) / (nodes + 0.5::float8)) AS weight,
           is_looked_up AND nodes <= %(most_read)s AS is_read_whole,
           CASE WHEN nodes > %(most_read)s THEN %(most_read)s / cardinality(%(levels)s::text[]) END
           AS most_of_level
      FROM chosen
)

-- name: matched
-- Recall: the best %(depth)s nodes with one of the terms that are looked up, which are the rarer
-- ones: a term that very many nodes have tells little, and would cost the most. Of one that has to be
-- looked up all the same, so many postings are read of each level. Where there is a term that was
-- not read as a whole, the best %(kept)s nodes get the score of all terms, by one look at the index
-- for each.
-- Where nothing is found, there is one row without a node.
, matched AS (
    SELECT own.node, sum(own.score) AS score_so_far,
           sum(own.score) FILTER (WHERE is_read_whole) AS score
      FROM weighed
     CROSS JOIN unnest(%(levels)s::text[]) AS asked (level)
     CROSS JOIN LATERAL (
           SELECT node, weight * tf / (tf + 0.3::float8 + length * per_length) AS score
             FROM posting
            WHERE project = %(project)s AND posting.term = weighed.term AND level = asked.level
            ORDER BY node
            LIMIT most_of_level) AS own
     WHERE is_looked_up
     GROUP BY own.node
), bounded AS MATERIALIZED (
    SELECT coalesce(bool_or(NOT is_read_whole), false) AS is_bounded FROM weighed
), kept AS MATERIALIZED (
    SELECT known.sha256, known.level, known.length, best.node, coalesce(best.score, 0) AS score
      FROM (SELECT node, score
              FROM matched
             ORDER BY score_so_far DESC, node
             LIMIT (SELECT CASE WHEN is_bounded THEN %(kept)s ELSE %(depth)s END FROM bounded)
           ) AS best
     CROSS JOIN LATERAL (  -- the one whose sha256 begins so
           SELECT sha256, level, length
             FROM node_terms
            WHERE project = %(project)s
              AND sha256 >= replace(best.node::text, '-', '')
              AND sha256 < replace(best.node::text, '-', '') || 'g'
            LIMIT 1) AS known
), best AS (
    SELECT kept.sha256, kept.level, kept.score + coalesce(rest.score, 0) AS score
      FROM kept
     CROSS JOIN LATERAL (
           SELECT sum(weight * tf / (tf + 0.3::float8 + kept.length * per_length)) AS score
             FROM weighed
            CROSS JOIN LATERAL (
                  SELECT tf
                    FROM posting
                   WHERE project = %(project)s AND posting.term = weighed.term
                     AND level = kept.level AND node = kept.node
                  OFFSET 0) AS own
            WHERE NOT is_read_whole
           OFFSET 0) AS rest
     ORDER BY score DESC, kept.sha256
     LIMIT %(depth)s
)
SELECT corpus.nodes AS documents, bounded.is_bounded, best.sha256, best.level, best.score
  FROM corpus
 CROSS JOIN bounded
  LEFT JOIN best ON true
 ORDER BY best.score DESC, best.sha256

-- name: scored
-- The nodes that pass filters and hold one of the terms, all of them, each with its whole score: a
-- filter may pass none of the nodes that a bound would choose. Where few pass, the terms of each are
-- looked up; where that would be more than the terms have postings, these are read.
-- `matched_filtered` goes on from here.
, passing AS MATERIALIZED (
    SELECT sha256, level, left(sha256, 32)::uuid AS node
      FROM memory_node
     WHERE project = %(project)s AND level = ANY(%(levels)s) AND PASSES
), way AS MATERIALIZED (  -- a look-up costs some ten times what reading on does
    SELECT passing.nodes AS documents, 10 * passing.nodes * terms < postings AS is_by_node
      FROM (SELECT count(*) AS nodes FROM passing) AS passing,
           (SELECT count(*) AS terms, sum(nodes) AS postings
              FROM frequency JOIN weighed USING (term)) AS asked
), scored AS (
    SELECT passing.sha256, passing.level,
           sum(weight * tf / (tf + 0.3::float8 + length * per_length)) AS score
      FROM passing
     CROSS JOIN weighed
     CROSS JOIN LATERAL (
           SELECT tf, length
             FROM posting
            WHERE project = %(project)s AND posting.term = weighed.term
              AND level = passing.level AND posting.node = passing.node
           OFFSET 0) AS own
     WHERE (SELECT is_by_node FROM way)
     GROUP BY passing.sha256, passing.level
     UNION ALL
    SELECT passing.sha256, passing.level,
           sum(weight * tf / (tf + 0.3::float8 + length * per_length)) AS score
      FROM weighed
     CROSS JOIN LATERAL (
           SELECT node, tf, length
             FROM posting
            WHERE project = %(project)s AND posting.term = weighed.term AND level = ANY(%(levels)s)
           OFFSET 0) AS own
      JOIN passing USING (node)
     WHERE NOT (SELECT is_by_node FROM way)
     GROUP BY passing.sha256, passing.level
)

-- name: matched_filtered
-- Recall among the nodes that pass filters. Where nothing is found, there is one row without a node.
, best AS (
    SELECT * FROM scored ORDER BY score DESC, sha256 LIMIT %(depth)s
)
SELECT way.documents, false AS is_bounded, best.sha256, best.level, best.score
  FROM way
  LEFT JOIN best ON true
 ORDER BY best.score DESC, best.sha256

-- name: given
-- The score of each of these nodes, in their order; 0 without a term of the question.
SELECT asked.sha256,
       coalesce((SELECT sum(weight * tf / (tf + 0.3::float8 + own.length * per_length))
                   FROM weighed
                  CROSS JOIN LATERAL (
                        SELECT tf, length
                          FROM posting
                         WHERE project = %(project)s AND posting.term = weighed.term
                           AND level = ANY(%(levels)s) AND node = left(asked.sha256, 32)::uuid
                        OFFSET 0) AS own), 0) AS score
  FROM unnest(%(nodes)s::text[]) WITH ORDINALITY AS asked (sha256, place)
 ORDER BY asked.place

-- name: holding
-- Those of these nodes that hold one of these terms.
SELECT sha256
  FROM node_terms
 WHERE project = %(project)s AND sha256 = ANY(%(nodes)s) AND terms && %(terms)s::text[]
