-- name: asked
-- The nodes that a question is about, as they are counted. `tallied` goes on from here.
WITH asked AS MATERIALIZED (
    SELECT level, kind, source, occurred_at, tags
      FROM memory_node
     WHERE project = %(project)s AND level = ANY(%(levels)s) AND PASSES
)

-- name: asked_by_words
-- Likewise those of them that hold one of the words. It goes on from lexical.sql's `scored`.
, asked AS MATERIALIZED (
    SELECT node.level, kind, source, occurred_at, tags
      FROM memory_node AS node
      JOIN scored USING (sha256)
     WHERE project = %(project)s
)

-- name: holders
-- How many nodes hold one of the words. It goes on from lexical.sql's `weighed`. The nodes of a single
-- word are counted there already; those of several are hashed, for count(DISTINCT) would sort them.
SELECT CASE WHEN (SELECT count(*) FROM weighed) < 2
            THEN (SELECT coalesce(sum(nodes), 0)::bigint FROM frequency)
            ELSE (SELECT count(*)
                    FROM (SELECT own.node
                            FROM weighed
                           CROSS JOIN LATERAL (  -- OFFSET 0: one range of the index a term, no join
                                 SELECT node
                                   FROM posting
                                  WHERE project = %(project)s AND posting.term = weighed.term
                                    AND level = ANY(%(levels)s)
                                 OFFSET 0) AS own
                           GROUP BY own.node) AS held)
       END AS nodes

-- name: holders_filtered
-- Likewise those of them that pass filters. It goes on from lexical.sql's `scored`.
SELECT count(*) AS nodes FROM scored

-- name: tallied
-- How many of them have each value; of each facet at most %(most)s values, those with most nodes. A
-- source goes by what stands before its first slash, an instant by its month in UTC. `in_all` is how
-- many values there are. Some that are too long to be asked for are counted there alone.
, tallied AS (
    SELECT 'levels' AS facet, level AS value, count(*) AS nodes FROM asked GROUP BY level
     UNION ALL
    SELECT 'kinds', kind, count(*) FROM asked GROUP BY kind
     UNION ALL
    SELECT 'sources', split_part(source, '/', 1), count(*) FROM asked GROUP BY 2
     UNION ALL
    SELECT 'dates', coalesce(to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM'), 'undated'), count(*)
      FROM asked
     GROUP BY 2
     UNION ALL
    SELECT 'tags', own.tag, count(*)
      FROM asked
     CROSS JOIN LATERAL (SELECT DISTINCT unnest(tags) AS tag) AS own
     WHERE own.tag <> ''
     GROUP BY own.tag
     UNION ALL
    SELECT 'projects', %(project)s::text, count(*) FROM asked HAVING count(*) > 0
), placed AS (
    SELECT facet, value, nodes, count(*) OVER (PARTITION BY facet) AS in_all,
           row_number() OVER (PARTITION BY facet ORDER BY length(value) > %(longest)s,
                              nodes DESC, value COLLATE "C") AS place
      FROM tallied
)
SELECT facet, value, nodes, in_all
  FROM placed
 WHERE place <= %(most)s AND length(value) <= %(longest)s
 ORDER BY facet, place
