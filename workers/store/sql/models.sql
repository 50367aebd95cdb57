-- name: register_first
-- The first process that has a model makes it the one whose vectors are searched.
INSERT INTO embedding_model (name, sha256, dimension, token_model, is_active)
SELECT %(name)s, %(sha256)s, %(dimension)s, %(token_model)s, true
 WHERE NOT EXISTS (SELECT FROM embedding_model WHERE is_active)
    ON CONFLICT DO NOTHING

-- name: list_models
SELECT model, name, sha256, dimension, token_model, is_active, is_wanted, listed_at, ready_at
  FROM embedding_model
 ORDER BY model

-- name: lock_out_writers
-- Alone, until the transaction ends: every writer of vectors that did not see what is changed here
-- has then ended, and the next ones see it.
SELECT pg_advisory_xact_lock(1886349686)

-- name: lock_models
-- One process at a time changes which model is active; writers of vectors go on.
SELECT model FROM embedding_model ORDER BY model FOR NO KEY UPDATE

-- name: retire_active
-- Only for one that is ready. What is stored from now on is not made for the retired one.
UPDATE embedding_model
   SET is_active = false, is_wanted = false, listed_at = NULL, ready_at = NULL
 WHERE is_active AND model <> %(model)s
   AND EXISTS (SELECT FROM embedding_model WHERE model = %(model)s AND ready_at IS NOT NULL)

-- name: activate
UPDATE embedding_model
   SET is_active = true
 WHERE model = %(model)s AND ready_at IS NOT NULL
   AND NOT EXISTS (SELECT FROM embedding_model WHERE is_active)

-- name: register_target
INSERT INTO embedding_model (name, sha256, dimension, token_model)
VALUES (%(name)s, %(sha256)s, %(dimension)s, %(token_model)s)
    ON CONFLICT DO NOTHING

-- name: want
-- What was known of one that was not wanted meanwhile is no longer true.
UPDATE embedding_model
   SET token_model = %(token_model)s,
       listed_at = CASE WHEN is_wanted THEN listed_at END,
       ready_at = CASE WHEN is_wanted THEN ready_at END,
       is_wanted = true
 WHERE model = %(model)s

-- name: give_up
UPDATE embedding_model
   SET is_wanted = false, listed_at = NULL, ready_at = NULL
 WHERE model = %(model)s AND NOT is_active

-- name: list_missing
-- Every node without a vector of this model. In the order of the key, as whoever lists at the same
-- time does: then one waits for the other.
INSERT INTO vector_backlog (model, project, sha256)
SELECT %(model)s, project, sha256
  FROM memory_node AS node
 WHERE NOT EXISTS (SELECT FROM node_vector AS vector
                    WHERE vector.project = node.project AND vector.model = %(model)s
                      AND vector.sha256 = node.sha256)
 ORDER BY project, sha256
    ON CONFLICT DO NOTHING

-- name: save_listed
UPDATE embedding_model SET listed_at = now() WHERE model = %(model)s

-- name: retry_refused
UPDATE vector_backlog SET refused = NULL WHERE model = %(model)s AND refused IS NOT NULL

-- name: take_missing
-- Some of the nodes after this one, locked until the transaction ends; another process takes others.
-- Those that have been removed, or have their vector, come too, as they leave the list.
WITH taken AS (
    SELECT project, sha256
      FROM vector_backlog
     WHERE model = %(model)s AND refused IS NULL AND (project, sha256) > (%(project)s, %(sha256)s)
     ORDER BY project, sha256
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
)
SELECT taken.project, taken.sha256, node.text,
       EXISTS (SELECT FROM node_vector AS vector
                WHERE vector.project = taken.project AND vector.model = %(model)s
                  AND vector.sha256 = taken.sha256) AS has_vector,
       EXISTS (SELECT FROM node_tokens AS tokens
                WHERE tokens.project = taken.project AND tokens.token_model = %(token_model)s
                  AND tokens.sha256 = taken.sha256) AS has_tokens
  FROM taken
  LEFT JOIN memory_node AS node USING (project, sha256)
 ORDER BY taken.project, taken.sha256

-- name: analyze_vectors
-- While the planner takes a model's vectors for few, it looks one up by the index on levels, and reads
-- all of the project's on the way.
ANALYZE (SKIP_LOCKED) node_vector (project, model, sha256, level)

-- name: lock_projects
-- One writer at a time for each project, as ingest and forgetting have it.
SELECT project FROM project WHERE project = ANY(%(projects)s) ORDER BY project FOR NO KEY UPDATE

-- name: save_missing_vector
-- Nothing, where the node was removed meanwhile.
INSERT INTO node_vector (project, model, sha256, level, embedding)
SELECT project, %(model)s, sha256, level, %(embedding)s
  FROM memory_node
 WHERE project = %(project)s AND sha256 = %(sha256)s
    ON CONFLICT DO NOTHING

-- name: save_missing_tokens
INSERT INTO node_tokens (project, token_model, sha256, tokens)
SELECT project, %(token_model)s, sha256, %(tokens)s
  FROM memory_node
 WHERE project = %(project)s AND sha256 = %(sha256)s
    ON CONFLICT DO NOTHING

-- name: drop_missing
DELETE FROM vector_backlog
 USING unnest(%(projects)s::text[], %(nodes)s::text[]) AS done (project, sha256)
 WHERE vector_backlog.model = %(model)s
   AND vector_backlog.project = done.project AND vector_backlog.sha256 = done.sha256

-- name: refuse_missing
UPDATE vector_backlog SET refused = %(reason)s
 WHERE model = %(model)s AND project = %(project)s AND sha256 = %(sha256)s

-- name: count_missing
-- Nodes that wait, and those that were refused, each up to a number beyond which it does not matter.
SELECT (SELECT count(*) FROM (SELECT FROM vector_backlog
                               WHERE model = %(model)s AND refused IS NULL LIMIT %(most)s)
                        AS waiting) AS waiting,
       (SELECT count(*) FROM (SELECT FROM vector_backlog
                               WHERE model = %(model)s AND refused IS NOT NULL LIMIT %(most)s)
                        AS refused) AS refused,
       (SELECT coalesce(sum(nodes), 0)::bigint FROM node_count) AS nodes

-- name: list_refused
SELECT project, sha256, refused AS reason
  FROM vector_backlog
 WHERE model = %(model)s AND refused IS NOT NULL
 ORDER BY project, sha256
 LIMIT %(limit)s

-- name: database_time
SELECT clock_timestamp() AS now

-- name: save_ready
-- Ready once what was listed before this instant is done. What came later is done after the switch
-- as well, so that a steady flow of new nodes does not put it off for ever.
UPDATE embedding_model
   SET ready_at = coalesce(ready_at, now())
 WHERE model = %(model)s AND is_wanted AND listed_at IS NOT NULL
   AND NOT EXISTS (SELECT FROM vector_backlog
                    WHERE model = %(model)s AND refused IS NULL AND added_at < %(before)s)
RETURNING model

-- name: models_to_drop
-- Models that are not wanted and have vectors left.
SELECT model, name, sha256, dimension
  FROM embedding_model
 WHERE NOT is_wanted
   AND EXISTS (SELECT FROM project
                WHERE EXISTS (SELECT FROM node_vector AS vector
                               WHERE vector.project = project.project
                                 AND vector.model = embedding_model.model))
 ORDER BY model

-- name: list_projects
SELECT project FROM project ORDER BY project

-- name: drop_index_rows
-- Recall is exact from now on; upkeep drops what these name.
DELETE FROM vector_index WHERE model = %(model)s

-- name: drop_backlog
DELETE FROM vector_backlog WHERE model = %(model)s

-- name: drop_vectors
DELETE FROM node_vector
 WHERE project = %(project)s AND model = %(model)s
   AND sha256 IN (SELECT sha256 FROM node_vector
                   WHERE project = %(project)s AND model = %(model)s
                     AND EXISTS (SELECT FROM embedding_model
                                  WHERE model = %(model)s AND NOT is_wanted)
                   LIMIT %(limit)s)

-- name: drop_tokens
-- Token vectors that neither this version nor a model that is wanted has a use for.
DELETE FROM node_tokens
 WHERE project = %(project)s AND token_model <> %(token_model)s
   AND token_model NOT IN (SELECT token_model FROM embedding_model
                            WHERE is_wanted AND token_model IS NOT NULL)
