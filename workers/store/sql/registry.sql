-- name: list_projects
-- The projects a principal may reach (NULL: all), with their node counts.
SELECT project.project, project.title, project.roots, project.semantic_weight,
       project.created_at,
       coalesce(sum(nodes) FILTER (WHERE level = 'L0'), 0)::bigint AS l0,
       coalesce(sum(nodes) FILTER (WHERE level = 'L1'), 0)::bigint AS l1,
       coalesce(sum(nodes) FILTER (WHERE level = 'L2'), 0)::bigint AS l2
  FROM project
  LEFT JOIN node_count USING (project)
 WHERE %(projects)s::text[] IS NULL OR project.project = ANY(%(projects)s)
 GROUP BY project.project
 ORDER BY project.project

-- name: find_projects
-- The projects among these (NULL: all) that a principal may reach (NULL: all), each with its nodes
-- of these levels.
SELECT project,
       (SELECT coalesce(sum(nodes), 0)::bigint FROM node_count
         WHERE node_count.project = project.project AND level = ANY(%(levels)s)) AS nodes
  FROM project
 WHERE (%(projects)s::text[] IS NULL OR project = ANY(%(projects)s))
   AND (%(among)s::text[] IS NULL OR project = ANY(%(among)s))
 ORDER BY project

-- name: list_weights
-- Of the projects that have a weight of their own.
SELECT project, semantic_weight FROM project WHERE semantic_weight IS NOT NULL

-- name: save_project
-- Create a project, or add what is new about it.
INSERT INTO project AS known (project, title, roots, semantic_weight)
VALUES (%(project)s, %(title)s, %(roots)s, %(semantic_weight)s)
    ON CONFLICT (project) DO UPDATE SET
       title = coalesce(excluded.title, known.title),
       semantic_weight = coalesce(excluded.semantic_weight, known.semantic_weight),
       roots = ARRAY(SELECT DISTINCT root FROM unnest(known.roots || excluded.roots) AS root ORDER BY root)

-- name: save_key
INSERT INTO api_key (id, name, secret, can_write, projects)
VALUES (%(id)s, %(name)s, %(secret)s, %(can_write)s, %(projects)s)

-- name: find_key
SELECT id, name, secret, can_write, projects FROM api_key WHERE id = %(id)s AND revoked_at IS NULL

-- name: list_keys
SELECT id, name, can_write, projects, created_at, revoked_at FROM api_key ORDER BY created_at, id

-- name: revoke_key
UPDATE api_key SET revoked_at = now() WHERE id = %(id)s AND revoked_at IS NULL RETURNING id

-- name: count_wordless
-- Nodes whose words are not stored yet; from the counters that nodes and their words have.
SELECT greatest(0, (SELECT coalesce(sum(nodes), 0) FROM node_count)
                   - (SELECT coalesce(sum(nodes), 0) FROM lexical_count))::bigint AS nodes

-- name: count_content
-- How much a memory holds; from counters, of which each project has one a level.
SELECT (SELECT count(*) FROM project) AS projects,
       (SELECT coalesce(sum(nodes), 0)::bigint FROM node_count) AS nodes
