-- name: indexed_projects
-- The projects with an index for this model, and their nodes by level.
SELECT project, level, nodes
  FROM vector_index
  JOIN node_count USING (project)
 WHERE model = %(model)s

-- name: projects_to_index
-- Projects that have outgrown exact recall and have no index yet, the largest first. None for a model
-- whose vectors are no longer wanted.
SELECT project
  FROM node_count
 WHERE NOT EXISTS (SELECT FROM vector_index
                    WHERE vector_index.project = node_count.project AND model = %(model)s)
   AND EXISTS (SELECT FROM embedding_model WHERE model = %(model)s AND is_wanted)
 GROUP BY project
HAVING sum(nodes) > %(exact_rows)s
 ORDER BY sum(nodes) DESC, project
 LIMIT %(limit)s

-- name: index_is_valid
-- Whether this index exists and was built to its end; a killed build leaves an invalid one behind.
SELECT indisvalid AS is_valid
  FROM pg_index
 WHERE indexrelid = to_regclass(%(name)s)

-- name: save_index
INSERT INTO vector_index (project, model, name)
VALUES (%(project)s, %(model)s, %(name)s)
    ON CONFLICT (project, model) DO UPDATE SET name = excluded.name, built_at = now()

-- name: orphaned_indexes
-- Indexes of projects that are gone, or of builds that were never finished.
SELECT relname AS name
  FROM pg_class
  JOIN pg_index ON indexrelid = pg_class.oid
 WHERE indrelid = 'node_vector'::regclass
   AND starts_with(relname, %(prefix)s)
   AND NOT EXISTS (SELECT FROM vector_index WHERE vector_index.name = relname)
