-- name: find_node
-- One node, whole.
SELECT project, sha256, level, kind, source, text, position, title, breadcrumb, span, standing_id,
       occurred_at, tags, metadata, created_at, updated_at, stale_since
  FROM memory_node
 WHERE project = %(project)s AND sha256 = %(sha256)s

-- name: find_nodes_by_prefix
-- A range of the primary key, which is sorted by bytes: behind all hex digits comes g.
SELECT sha256, level, kind, source FROM memory_node
 WHERE project = %(project)s AND sha256 >= %(prefix)s AND sha256 < %(prefix)s || 'g'
 ORDER BY sha256
 LIMIT %(limit)s

-- name: parents_of
SELECT parent FROM memory_edge
 WHERE project = %(project)s AND child = %(sha256)s ORDER BY precedence, parent

-- name: children_of
SELECT child FROM memory_edge
 WHERE project = %(project)s AND parent = %(sha256)s ORDER BY child LIMIT 1000

-- name: list_sources
-- One page of a project's sources, by name.
SELECT source, format, title, names, session, parent, cwd, started_at, created_at, updated_at,
       (SELECT count(*) FROM memory_node AS node
         WHERE node.project = source.project AND node.source = source.source) AS nodes
  FROM source
 WHERE project = %(project)s AND source > %(after)s
 ORDER BY source
 LIMIT %(limit)s

-- name: nodes_of_source
-- What a source brought: its evidence and its chunks, or whatever nodes were stored under its name.
SELECT sha256 FROM memory_node WHERE project = %(project)s AND source = %(source)s

-- name: count_nodes
SELECT count(*) AS nodes FROM memory_node WHERE project = %(project)s

-- name: lock_project
SELECT project FROM project WHERE project = %(project)s FOR UPDATE

-- name: drop_source
DELETE FROM source WHERE project = %(project)s AND source = %(source)s

-- name: drop_project
DELETE FROM project WHERE project = %(project)s RETURNING project

-- name: forget_answers
-- Stored answers that show one of these nodes, name what was made from it, or count it.
WITH gone AS (
    DELETE FROM query_answer WHERE nodes && %(nodes)s RETURNING id
)
UPDATE query_job
   SET status = 'expired', request = NULL, projects = NULL, documents = NULL, expires_at = now()
 WHERE id IN (SELECT id FROM gone) AND status <> 'open'

-- name: forget_answers_of_project
WITH gone AS (
    DELETE FROM query_answer
     WHERE id IN (SELECT id FROM query_job WHERE %(project)s = ANY(projects))
    RETURNING id
)
UPDATE query_job
   SET status = 'expired', request = NULL, projects = NULL, documents = NULL, expires_at = now()
 WHERE id IN (SELECT id FROM gone) AND status <> 'open'

-- name: forget_feedback
-- What was said of these nodes, in words; that it was said stays.
UPDATE feedback SET query_text = NULL, feedback_text = NULL
 WHERE result_id = ANY(%(shas)s) AND (project = %(project)s OR project IS NULL)

-- name: forget_feedback_of_project
DELETE FROM feedback WHERE project = %(project)s

-- name: forget_submissions
-- Ended submissions to a project, or to whatever project their content names: what is kept of them
-- to be tried again goes, and the same content may come anew.
WITH ended AS (
    UPDATE ingest_job SET payload = NULL, fingerprint = NULL
     WHERE status NOT IN ('queued', 'running') AND (payload IS NOT NULL OR fingerprint IS NOT NULL)
       AND (project = %(project)s OR project IS NULL)
    RETURNING id
)
UPDATE ingest_file SET data = NULL
 WHERE data IS NOT NULL AND job_id IN (SELECT id FROM ended)

-- name: cancel_submissions
-- What was accepted for a project and is not stored yet goes with it.
WITH cancelled AS (
    UPDATE ingest_job
       SET status = 'cancelled', finished_at = now(), payload = NULL, fingerprint = NULL, stage = NULL
     WHERE status IN ('queued', 'running') AND project = %(project)s
    RETURNING id
)
UPDATE ingest_file
   SET data = NULL,
       report = coalesce(report, jsonb_build_object(
           'name', name, 'status', 'failed', 'reason', 'cancelled before it was taken'))
 WHERE job_id IN (SELECT id FROM cancelled)

-- name: clear_title
-- A title that repeats a text that is to be forgotten, of its source and of the nodes of that.
WITH source_title AS (
    UPDATE source SET title = NULL
     WHERE project = %(project)s AND source = %(source)s AND title = %(title)s
)
UPDATE memory_node SET title = NULL
 WHERE project = %(project)s AND source = %(source)s AND title = %(title)s

-- name: drop_bare_sources
-- Sources of which no node is left.
DELETE FROM source
 WHERE project = %(project)s AND source = ANY(%(sources)s)
   AND NOT EXISTS (SELECT FROM memory_node AS node
                    WHERE node.project = source.project AND node.source = source.source)

-- name: save_forgetting
INSERT INTO forgetting (key_id, project, what, nodes)
VALUES (%(key_id)s, %(project)s, %(what)s, %(count)s)

-- name: export_project
SELECT title, roots, semantic_weight, created_at FROM project WHERE project = %(project)s

-- name: export_sources
SELECT source, format, title, names, session, parent, cwd, started_at, created_at, updated_at
  FROM source WHERE project = %(project)s ORDER BY source

-- name: export_nodes
-- A page of a project's nodes in an order in which parents come before children.
SELECT node.sha256, node.level, node.kind, node.source, node.text, node.position, node.title,
       node.breadcrumb, node.span, node.standing_id, node.occurred_at, node.tags, node.metadata,
       node.created_at, node.updated_at, node.stale_since,
       vector.embedding, model.name AS embedding_model,
       ARRAY(SELECT parent FROM memory_edge AS edge
              WHERE edge.project = node.project AND edge.child = node.sha256
              ORDER BY precedence, parent) AS parents,
       ARRAY(SELECT key FROM turn
              WHERE turn.project = node.project AND turn.sha256 = node.sha256
              ORDER BY key) AS turns
  FROM memory_node AS node
  LEFT JOIN embedding_model AS model ON model.is_active
  LEFT JOIN node_vector AS vector
    ON vector.project = node.project AND vector.sha256 = node.sha256
   AND vector.model = model.model
 WHERE node.project = %(project)s AND (node.level, node.sha256) > (%(level)s, %(sha256)s)
 ORDER BY node.level, node.sha256
 LIMIT %(limit)s
