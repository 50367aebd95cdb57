-- name: both
-- Recall by both legs in one look: it goes on from lexical.sql's `weighed` and search.sql's
-- `nearest_exact`, and search.sql's `read` from here. A candidate is among the %(depth)s nearest or
-- among the %(depth)s that match best, and has its exact score in both. Postings are read as
-- lexical.sql's `matched` reads them; the nearest are rows among them, so that one pass has the score
-- of both without a join.
, held AS MATERIALIZED (
    SELECT node, sum(score) AS score_so_far, sum(score) FILTER (WHERE is_read_whole) AS score,
           max(sha256) AS sha256, max(level) AS level, max(distance) AS distance
      FROM (SELECT own.node, own.score, is_read_whole,
                   NULL AS sha256, NULL AS level, NULL::float8 AS distance
              FROM weighed
             CROSS JOIN unnest(%(levels)s::text[]) AS asked (level)
             CROSS JOIN LATERAL (
                   SELECT node, weight * tf / (tf + 0.3::float8 + length * per_length) AS score
                     FROM posting
                    WHERE project = %(project)s AND posting.term = weighed.term
                      AND level = asked.level
                    ORDER BY node
                    LIMIT most_of_level) AS own
             WHERE is_looked_up
             UNION ALL
            SELECT left(sha256, 32)::uuid, 0, true, sha256, level, distance FROM nearest) AS found
     GROUP BY node
), kept AS MATERIALIZED (
    (SELECT *
       FROM held
      WHERE score_so_far > 0
      ORDER BY score_so_far DESC, node
      LIMIT (SELECT CASE WHEN bool_or(NOT is_read_whole) THEN %(kept)s ELSE %(depth)s END
               FROM weighed))
     UNION
    SELECT * FROM held WHERE sha256 IS NOT NULL
), scored AS (  -- also by the terms that were not read
    SELECT kept.node, sha256, level, distance, score_so_far > 0 AS is_match,
           coalesce(kept.score, 0) + coalesce(rest.score, 0) AS bm25
      FROM kept
     CROSS JOIN LATERAL (
           SELECT sum(weight * tf / (tf + 0.3::float8 + length * per_length)) AS score
             FROM weighed
            CROSS JOIN LATERAL (
                  SELECT tf, length
                    FROM posting
                   WHERE project = %(project)s AND posting.term = weighed.term
                     AND level = ANY(%(levels)s) AND node = kept.node
                  OFFSET 0) AS own
            WHERE NOT is_read_whole
           OFFSET 0) AS rest
), placed AS (
    SELECT *, row_number() OVER (ORDER BY is_match DESC, bm25 DESC, node) AS place FROM scored
), measured AS (
    SELECT known.*, bm25, placed.sha256 IS NOT NULL AS is_near,
           CASE WHEN is_match AND place <= %(depth)s THEN place END AS match_rank
      FROM placed
     CROSS JOIN LATERAL (  -- the one whose sha256 begins so; it may have no vector yet
           SELECT placed.sha256, placed.level, placed.distance WHERE placed.sha256 IS NOT NULL
            UNION ALL
           (SELECT *
              FROM (SELECT sha256, level, (embedding <=> %(query)s) + 0 AS distance
                      FROM node_vector
                     WHERE placed.sha256 IS NULL AND project = %(project)s AND model = %(model)s
                       AND sha256 >= replace(node::text, '-', '')
                       AND sha256 < replace(node::text, '-', '') || 'g'
                     UNION ALL
                    SELECT sha256, level, NULL
                      FROM node_terms
                     WHERE placed.sha256 IS NULL AND project = %(project)s
                       AND sha256 >= replace(node::text, '-', '')
                       AND sha256 < replace(node::text, '-', '') || 'g') AS named
             LIMIT 1)) AS known
     WHERE placed.sha256 IS NOT NULL OR (is_match AND place <= %(depth)s)
), ranked AS (  -- as pipeline/fusion.py ranks them; of all only those that are to be read
    SELECT measured.*, count(*) OVER () AS found,
           row_number() OVER (
               ORDER BY %(semantic_weight)s * greatest(0, 1 - coalesce(distance, 1))
                        + %(lexical_weight)s * bm25 ^ 2 / (bm25 ^ 2 + %(half)s ^ 2) DESC,
                        coalesce(distance, 2), sha256) AS rank
      FROM measured
     ORDER BY rank
     LIMIT %(most)s
)
