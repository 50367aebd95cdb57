-- name: find_index
-- One that was begun by a process that died before it had listed every node is none.
SELECT name FROM word_index WHERE complete_after IS NOT NULL

-- name: lock_out_writers
-- Alone, until the transaction ends: every writer of words that did not see the index has then ended,
-- and the next ones see it.
SELECT pg_advisory_xact_lock(1886349687)

-- name: save_index
INSERT INTO word_index (name) VALUES (%(name)s)
    ON CONFLICT (is_only) DO UPDATE SET name = excluded.name, complete_after = NULL

-- name: list_projects
SELECT project FROM project ORDER BY project

-- name: drop_index
WITH gone AS (
    DELETE FROM word_index
)
DELETE FROM word_backlog

-- name: list_nodes
-- Every node of a project that has its words. In the order of the key, as whoever lists at the same
-- time does: then one waits for the other.
INSERT INTO word_backlog (project, sha256)
SELECT project, sha256
  FROM node_terms
 WHERE project = %(project)s
 ORDER BY sha256
    ON CONFLICT (project, sha256) DO UPDATE SET change = nextval('word_change')

-- name: save_listed
UPDATE word_index SET complete_after = nextval('word_change')

-- name: next_number
SELECT nextval('word_change') AS number

-- name: take_changed
-- The nodes that have waited longest, as they are now; `level` is NULL where nothing is to be found
-- any more, or not yet. Their terms come as they occur, each as often, with spaces between them.
SELECT listed.project, listed.sha256, listed.change, node.level, node.kind, node.source,
       node.standing_id, node.tags,
       (extract(epoch FROM node.occurred_at) * 1000000)::bigint AS occurred_at,
       (extract(epoch FROM node.updated_at) * 1000000)::bigint AS updated_at,
       (SELECT string_agg(repeat(own.term || ' ', tf), '')
          FROM unnest(known.terms) AS own (term)
         CROSS JOIN LATERAL (
               SELECT tf
                 FROM posting
                WHERE posting.project = listed.project AND posting.term = own.term
                  AND posting.level = known.level AND node = left(listed.sha256, 32)::uuid
               OFFSET 0) AS found) AS terms
  FROM (SELECT project, sha256, change FROM word_backlog ORDER BY change LIMIT %(limit)s) AS listed
  LEFT JOIN node_terms AS known
    ON known.project = listed.project AND known.sha256 = listed.sha256
  LEFT JOIN memory_node AS node
    ON node.project = known.project AND node.sha256 = known.sha256
 ORDER BY listed.change

-- name: drop_listed
-- What was changed again meanwhile stays.
DELETE FROM word_backlog AS listed
 USING unnest(%(projects)s::text[], %(nodes)s::text[], %(changes)s::bigint[])
       AS done (project, sha256, change)
 WHERE listed.project = done.project AND listed.sha256 = done.sha256 AND listed.change = done.change

-- name: put_off
-- To the end of the list.
UPDATE word_backlog AS listed
   SET change = nextval('word_change')
  FROM unnest(%(projects)s::text[], %(nodes)s::text[]) AS later (project, sha256)
 WHERE listed.project = later.project AND listed.sha256 = later.sha256

-- name: is_complete
SELECT NOT EXISTS (
       SELECT FROM word_backlog, word_index WHERE change <= complete_after) AS is_complete

-- name: count_listed
-- The nodes of a project (NULL: of all) that were listed up to a change (NULL: up to now).
SELECT count(*) AS nodes
  FROM word_backlog
 WHERE (%(project)s::text IS NULL OR project = %(project)s)
   AND (%(until)s::bigint IS NULL OR change <= %(until)s)
