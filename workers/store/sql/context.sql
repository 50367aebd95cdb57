-- name: neighbours
-- Of each hit with a place in its source, the nearest nodes before and after it: of the same project,
-- source, level and kind. The parts of a long turn share its position, and come in their order (JSON
-- values of any kind have one). The inner query goes along the index and stops at the limit. Ids
-- first, so that only those texts are read that are told; OFFSET 0 keeps each a look-up by key.
WITH hit AS (
    SELECT node.*
      FROM unnest(%(projects)s::text[], %(shas)s::text[]) AS asked (project, sha256)
     CROSS JOIN LATERAL (
           SELECT project, sha256, source, level, kind, position,
                  coalesce(metadata->'part_number', '0') AS part
             FROM memory_node
            WHERE project = asked.project AND sha256 = asked.sha256
           OFFSET 0) AS node
), beside AS (
    SELECT hit.project, hit.sha256 AS hit, near.sha256, false AS is_next,
           row_number() OVER (PARTITION BY hit.project, hit.sha256
                              ORDER BY near.position DESC, near.part DESC, near.sha256 DESC) AS rank
      FROM hit
     CROSS JOIN LATERAL (
           SELECT sha256, position, coalesce(metadata->'part_number', '0') AS part
             FROM memory_node AS node
            WHERE node.project = hit.project AND node.source = hit.source
              AND node.level = hit.level AND node.kind = hit.kind
              AND node.position <= hit.position
              AND (node.position, coalesce(node.metadata->'part_number', '0'), node.sha256)
                  < (hit.position, hit.part, hit.sha256)
            ORDER BY position DESC, part DESC, sha256 DESC
            LIMIT %(count)s) AS near
     UNION ALL
    SELECT hit.project, hit.sha256, near.sha256, true,
           row_number() OVER (PARTITION BY hit.project, hit.sha256
                              ORDER BY near.position, near.part, near.sha256)
      FROM hit
     CROSS JOIN LATERAL (
           SELECT sha256, position, coalesce(metadata->'part_number', '0') AS part
             FROM memory_node AS node
            WHERE node.project = hit.project AND node.source = hit.source
              AND node.level = hit.level AND node.kind = hit.kind
              AND node.position >= hit.position
              AND (node.position, coalesce(node.metadata->'part_number', '0'), node.sha256)
                  > (hit.position, hit.part, hit.sha256)
            ORDER BY position, part, sha256
            LIMIT %(count)s) AS near
)
SELECT beside.hit, beside.is_next, node.project, node.sha256, node.level, node.kind, node.source,
       node.position, node.title, node.occurred_at, node.tags,
       left(node.text, %(characters)s) AS text,
       octet_length(node.text) > %(characters)s
       AND (octet_length(node.text) > 4 * %(characters)s
            OR length(node.text) > %(characters)s) AS is_excerpt
  FROM beside
 CROSS JOIN LATERAL (
       SELECT * FROM memory_node
        WHERE project = beside.project AND sha256 = beside.sha256
       OFFSET 0) AS node
 ORDER BY beside.hit, beside.is_next, beside.rank
