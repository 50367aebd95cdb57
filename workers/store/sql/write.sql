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

-- name: save_node
-- Insert a node, or bring what may change of it up to date. Its text never changes: it is its name.
-- Returns inserted, updated or unchanged.
WITH old AS (
    SELECT position, title, breadcrumb, span, standing_id, occurred_at, tags, metadata
      FROM memory_node WHERE project = %(project)s AND sha256 = %(sha256)s
), saved AS (
    INSERT INTO memory_node AS node (project, sha256, level, kind, source, text, position, title,
        breadcrumb, span, standing_id, occurred_at, tags, metadata)
    VALUES (%(project)s, %(sha256)s, %(level)s, %(kind)s, %(source)s, %(text)s, %(position)s,
        %(title)s, %(breadcrumb)s, %(span)s, %(standing_id)s, %(occurred_at)s, %(tags)s, %(metadata)s)
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
    RETURNING 1
)
SELECT CASE WHEN NOT EXISTS (SELECT FROM saved) THEN 'unchanged'
            WHEN EXISTS (SELECT FROM old) THEN 'updated'
            ELSE 'stored' END AS result

-- name: save_edges
-- A node's edges become exactly these; says whether anything changed.
WITH wanted AS (
    SELECT parent, ordinality::integer AS precedence
      FROM unnest(%(parents)s::text[]) WITH ORDINALITY AS given (parent, ordinality)
), removed AS (
    DELETE FROM memory_edge
     WHERE project = %(project)s AND child = %(child)s
       AND parent NOT IN (SELECT parent FROM wanted)
    RETURNING 1
), saved AS (
    INSERT INTO memory_edge AS edge (project, child, parent, precedence)
    SELECT %(project)s, %(child)s, parent, precedence FROM wanted
        ON CONFLICT (project, child, parent) DO UPDATE SET precedence = excluded.precedence
     WHERE edge.precedence <> excluded.precedence
    RETURNING 1
)
SELECT EXISTS (SELECT FROM removed) OR EXISTS (SELECT FROM saved) AS is_changed

-- name: save_vector
-- Says whether there was none, or another one.
INSERT INTO node_vector AS vector (project, model, sha256, level, embedding)
VALUES (%(project)s, %(model)s, %(sha256)s, %(level)s, %(embedding)s)
    ON CONFLICT (project, model, sha256) DO UPDATE SET embedding = excluded.embedding
 WHERE vector.embedding <> excluded.embedding
RETURNING 1

-- name: save_tokens
INSERT INTO node_tokens (project, token_model, sha256, tokens)
VALUES (%(project)s, %(token_model)s, %(sha256)s, %(tokens)s)
    ON CONFLICT (project, token_model, sha256) DO UPDATE SET tokens = excluded.tokens

-- name: use_model
-- The one model whose vectors are searched: registered by the first process that has one.
INSERT INTO embedding_model (name, sha256, dimension, token_model, is_active)
VALUES (%(name)s, %(sha256)s, %(dimension)s, %(token_model)s, true)
    ON CONFLICT DO NOTHING

-- name: find_model
SELECT model, name, sha256, dimension, token_model FROM embedding_model WHERE is_active
