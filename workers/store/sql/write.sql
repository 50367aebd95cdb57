-- name: save_projects
-- Make sure that these projects exist.
INSERT INTO project (project) SELECT unnest(%(projects)s::text[]) ON CONFLICT DO NOTHING

-- name: lock_projects
-- One writer at a time for each project; whoever waits here holds nothing that another needs.
-- Without it two overlapping submissions can lock the same nodes and counters crosswise.
SELECT project FROM project WHERE project = ANY(%(projects)s) ORDER BY project FOR NO KEY UPDATE

-- name: find_nodes
-- Which of these a project already holds, and whether they have a vector of this model.
SELECT node.sha256, node.level, vector.sha256 IS NOT NULL AS has_vector
  FROM memory_node AS node
  LEFT JOIN node_vector AS vector
    ON vector.project = node.project AND vector.sha256 = node.sha256 AND vector.model = %(model)s
 WHERE node.project = %(project)s AND node.sha256 = ANY(%(nodes)s)

-- name: save_nodes
-- Insert nodes, or bring what may change of them up to date. A text never changes: it is the name.
-- Says of each whether it was stored, updated or unchanged. One order for every writer.
WITH given AS (
    SELECT *
      FROM jsonb_to_recordset(%(nodes)s) AS node (
           project text, sha256 text, level text, kind text, source text, text text,
           position integer, title text, breadcrumb text[], span jsonb, standing_id text,
           occurred_at timestamptz, tags text[], metadata jsonb)
), old AS (
    SELECT project, sha256 FROM memory_node JOIN given USING (project, sha256)
), saved AS (
    INSERT INTO memory_node AS node (project, sha256, level, kind, source, text, position, title,
        breadcrumb, span, standing_id, occurred_at, tags, metadata)
    SELECT project, sha256, level, kind, source, text, position, title,
           breadcrumb, span, standing_id, occurred_at, tags, metadata
      FROM given
     ORDER BY level, project, sha256
    ON CONFLICT (project, sha256) DO UPDATE SET
        position = excluded.position, title = excluded.title, breadcrumb = excluded.breadcrumb,
        span = excluded.span, standing_id = excluded.standing_id,
        occurred_at = excluded.occurred_at, tags = excluded.tags, metadata = excluded.metadata,
        updated_at = now()
    WHERE (node.position, node.title, node.breadcrumb, node.span, node.standing_id,
           node.occurred_at, node.tags, node.metadata)
          IS DISTINCT FROM
          (excluded.position, excluded.title, excluded.breadcrumb, excluded.span,
           excluded.standing_id, excluded.occurred_at, excluded.tags, excluded.metadata)
    RETURNING project, sha256
)
SELECT given.project, given.sha256,
       CASE WHEN saved.sha256 IS NULL THEN 'unchanged'
            WHEN old.sha256 IS NULL THEN 'stored'
            ELSE 'updated' END AS result
  FROM given
  LEFT JOIN saved USING (project, sha256)
  LEFT JOIN old USING (project, sha256)

-- name: save_edges
-- The edges of these nodes become exactly the given ones; returns the nodes whose edges changed.
WITH node AS (
    SELECT * FROM unnest(%(projects)s::text[], %(nodes)s::text[]) AS node (project, child)
), given AS (
    SELECT *
      FROM unnest(%(edge_projects)s::text[], %(children)s::text[], %(parents)s::text[],
                  %(precedences)s::integer[]) AS edge (project, child, parent, precedence)
), removed AS (
    DELETE FROM memory_edge AS edge
     USING node
     WHERE edge.project = node.project AND edge.child = node.child
       AND NOT EXISTS (SELECT FROM given
                        WHERE given.project = edge.project AND given.child = edge.child
                          AND given.parent = edge.parent)
    RETURNING edge.project, edge.child
), saved AS (
    INSERT INTO memory_edge AS edge (project, child, parent, precedence)
    SELECT project, child, parent, precedence FROM given ORDER BY project, child, parent
        ON CONFLICT (project, child, parent) DO UPDATE SET precedence = excluded.precedence
     WHERE edge.precedence <> excluded.precedence
    RETURNING edge.project, edge.child
)
SELECT project, child AS sha256 FROM removed UNION SELECT project, child FROM saved

-- name: save_vector
-- Returns the node if it had none, or another one.
INSERT INTO node_vector AS vector (project, model, sha256, level, embedding)
VALUES (%(project)s, %(model)s, %(sha256)s, %(level)s, %(embedding)s)
    ON CONFLICT (project, model, sha256) DO UPDATE SET embedding = excluded.embedding
 WHERE vector.embedding <> excluded.embedding
RETURNING vector.project, vector.sha256

-- name: save_tokens
INSERT INTO node_tokens (project, token_model, sha256, tokens)
VALUES (%(project)s, %(token_model)s, %(sha256)s, %(tokens)s)
    ON CONFLICT (project, token_model, sha256) DO UPDATE SET tokens = excluded.tokens
RETURNING project, sha256

-- name: save_backlog
INSERT INTO token_backlog (project, sha256)
SELECT * FROM unnest(%(projects)s::text[], %(nodes)s::text[]) ON CONFLICT DO NOTHING

-- name: take_backlog
-- Some of the nodes to prepare; another process takes others.
WITH taken AS (
    SELECT project, sha256 FROM token_backlog LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM token_backlog USING taken
     WHERE token_backlog.project = taken.project AND token_backlog.sha256 = taken.sha256
)
SELECT project, sha256, text FROM taken JOIN memory_node USING (project, sha256)
