-- name: count_stored
-- The projects (NULL: all) and their nodes.
SELECT project, coalesce(sum(nodes), 0)::bigint AS nodes
  FROM project
  LEFT JOIN node_count USING (project)
 WHERE %(project)s::text IS NULL OR project = %(project)s
 GROUP BY project
 ORDER BY project

-- name: take_nodes
-- The next nodes after this one, as many as have %(bytes)s bytes of text together, at least one. A
-- node's equals are those that its name does not tell apart from it but by a number.
SELECT node.sha256, level, kind, source, text, span, stale_since IS NOT NULL AS is_stale,
       (SELECT count(*) FROM memory_edge AS edge
         WHERE edge.project = %(project)s AND edge.child = node.sha256) AS edges
  FROM (SELECT sha256, sum(octet_length(text)) OVER (ORDER BY sha256) - octet_length(text) AS before
          FROM (SELECT sha256, text
                  FROM memory_node
                 WHERE project = %(project)s AND sha256 > %(after)s
                 ORDER BY sha256
                 LIMIT %(limit)s) AS following) AS sized
  JOIN memory_node AS node ON node.project = %(project)s AND node.sha256 = sized.sha256
 WHERE before < %(bytes)s
 ORDER BY sha256

-- name: broken_edges
-- Of the edges that begin at these nodes, those that do not lead to a stored node of a lower level.
SELECT edge.child, edge.parent, parent.level AS parent_level
  FROM memory_edge AS edge
  JOIN memory_node AS child ON child.project = edge.project AND child.sha256 = edge.child
  LEFT JOIN memory_node AS parent ON parent.project = edge.project AND parent.sha256 = edge.parent
 WHERE edge.project = %(project)s AND edge.child = ANY(%(nodes)s)
   AND (parent.level IS NULL OR parent.level >= child.level)
 ORDER BY edge.child, edge.precedence, edge.parent

-- name: orphaned_edges
-- Edges of a project that begin at no stored node.
SELECT child, parent
  FROM memory_edge AS edge
 WHERE project = %(project)s
   AND NOT EXISTS (SELECT FROM memory_node AS node
                    WHERE node.project = edge.project AND node.sha256 = edge.child)
 ORDER BY child, parent

-- name: take_chunks
-- The chunks that were cut from this document, and which bytes of it they say they are.
SELECT chunk.sha256, chunk.level, chunk.source, chunk.text, chunk.span
  FROM memory_edge AS edge
  JOIN memory_node AS chunk ON chunk.project = edge.project AND chunk.sha256 = edge.child
 WHERE edge.project = %(project)s AND edge.parent = %(document)s
   AND chunk.kind = 'chunk' AND chunk.source = %(source)s AND chunk.span ->> 'unit' = 'bytes'
   AND EXISTS (SELECT FROM source
                WHERE source.project = chunk.project AND source.source = chunk.source)
 ORDER BY chunk.position, chunk.sha256
