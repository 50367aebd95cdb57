-- name: save_source
-- Create a source, or add what is new about it.
INSERT INTO source AS known (project, source, format, title, names, session, parent, cwd, started_at)
VALUES (%(project)s, %(source)s, %(format)s, %(title)s, ARRAY[%(file)s], %(session)s, %(parent)s,
        %(cwd)s, %(started_at)s)
    ON CONFLICT (project, source) DO UPDATE SET
       title = coalesce(excluded.title, known.title),
       parent = coalesce(excluded.parent, known.parent),
       cwd = coalesce(known.cwd, excluded.cwd),
       started_at = coalesce(least(known.started_at, excluded.started_at), known.started_at),
       names = CASE WHEN excluded.names <@ known.names THEN known.names
                    ELSE known.names || excluded.names END,
       updated_at = now()

-- name: find_turns
-- The nodes that turns with these keys became.
SELECT key, source, sha256 FROM turn WHERE project = %(project)s AND key = ANY(%(keys)s)

-- name: turns_of
-- The turns of a source, and those that other sources brought under these keys.
SELECT turn.key, turn.source, turn.sha256, 'abandoned' = ANY(node.tags) AS is_abandoned,
       encode(sha256(convert_to(node.text, 'UTF8')), 'hex') AS text_sha256
  FROM turn JOIN memory_node AS node USING (project, sha256)
 WHERE turn.project = %(project)s AND (turn.source = %(source)s OR turn.key = ANY(%(keys)s))

-- name: texts_of
SELECT sha256, text FROM memory_node WHERE project = %(project)s AND sha256 = ANY(%(shas)s)

-- name: save_turns
-- Remember which node each turn is; one that is another node now is told with the old one.
WITH given AS (
    SELECT * FROM unnest(%(keys)s::text[], %(shas)s::text[]) AS given (key, sha256)
), old AS (
    SELECT key, turn.sha256 FROM turn JOIN given USING (key)
     WHERE project = %(project)s AND turn.sha256 <> given.sha256
), saved AS (
    INSERT INTO turn (project, key, source, sha256)
    SELECT %(project)s, key, %(source)s, sha256 FROM given ORDER BY key
        ON CONFLICT (project, key) DO UPDATE SET sha256 = excluded.sha256
)
SELECT old.key, old.sha256 AS old, given.sha256 AS new FROM old JOIN given USING (key)

-- name: replace_parent
-- What was made from a node rests on the one that takes its place.
WITH moved AS (
    SELECT child, precedence FROM memory_edge
     WHERE project = %(project)s AND parent = %(old)s
)
INSERT INTO memory_edge (project, child, parent, precedence)
SELECT %(project)s, child, %(new)s, precedence FROM moved WHERE child <> %(new)s
    ON CONFLICT DO NOTHING

-- name: children_of
-- The notes that rest on one of these nodes.
SELECT DISTINCT child FROM memory_edge WHERE project = %(project)s AND parent = ANY(%(shas)s)

-- name: drop_nodes
DELETE FROM memory_node
 WHERE project = %(project)s AND sha256 = ANY(%(shas)s)
RETURNING sha256

-- name: close_gaps
-- What these notes still rest on is counted from 1, as when they are stored anew.
UPDATE memory_edge AS edge SET precedence = counted.place
  FROM (SELECT child, parent,
               row_number() OVER (PARTITION BY child ORDER BY precedence, parent) AS place
          FROM memory_edge WHERE project = %(project)s AND child = ANY(%(shas)s)) AS counted
 WHERE edge.project = %(project)s AND edge.child = counted.child AND edge.parent = counted.parent
   AND edge.precedence <> counted.place

-- name: mark_stale
-- Notes that lost a part of what they rest on. Told are those that have nothing left.
WITH marked AS (
    UPDATE memory_node SET stale_since = coalesce(stale_since, now())
     WHERE project = %(project)s AND sha256 = ANY(%(shas)s)
    RETURNING project, sha256
)
SELECT sha256 FROM marked
 WHERE NOT EXISTS (SELECT FROM memory_edge AS edge
                    WHERE edge.project = marked.project AND edge.child = marked.sha256)

-- name: nodes_of
-- The nodes that a document brought, but for these; notes that others made of it are not its own.
SELECT sha256, level, position, metadata->>'anchor' AS anchor FROM memory_node
 WHERE project = %(project)s AND source = %(source)s AND kind IN ('document', 'chunk')
   AND sha256 <> ALL(%(shas)s)

-- name: projects_of_others
-- Of these projects, those of another folder: they have roots, or sessions that worked elsewhere.
SELECT project FROM project
 WHERE project = ANY(%(projects)s)
   AND (cardinality(roots) > 0
        OR EXISTS (SELECT FROM source
                    WHERE source.project = project.project AND cwd IS NOT NULL)
           AND NOT EXISTS (SELECT FROM source
                            WHERE source.project = project.project AND cwd = %(folder)s))

-- name: roots_above
-- The projects with a root folder that is this one, or above it.
SELECT project, root
  FROM project, unnest(roots) AS root
 WHERE root = '/' OR %(folder)s = root OR starts_with(%(folder)s, root || '/')
 ORDER BY length(root) DESC, project

-- name: mark_abandoned
-- Turns that a session's file no longer holds, though it goes on without them.
UPDATE memory_node
   SET tags = array_append(tags, 'abandoned'), updated_at = now()
 WHERE project = %(project)s AND NOT 'abandoned' = ANY(tags)
   AND sha256 IN (SELECT sha256 FROM turn WHERE project = %(project)s AND key = ANY(%(keys)s))
RETURNING sha256

-- name: nodes_of_turns
SELECT sha256 FROM turn WHERE project = %(project)s AND key = ANY(%(keys)s)

-- name: known_sources
SELECT source FROM source WHERE project = %(project)s AND source = ANY(%(sources)s)

-- name: save_exported_project
INSERT INTO project AS known (project, title, roots, semantic_weight, created_at)
SELECT %(project)s, %(title)s,
       ARRAY(SELECT root FROM unnest(%(roots)s::text[]) WITH ORDINALITY AS given (root, place)
              WHERE NOT EXISTS (SELECT FROM project AS other
                                 WHERE other.project <> %(project)s AND root = ANY(other.roots))
              ORDER BY place),
       %(semantic_weight)s, coalesce(%(created_at)s, now())
    ON CONFLICT (project) DO UPDATE SET
       title = coalesce(known.title, excluded.title),
       semantic_weight = coalesce(known.semantic_weight, excluded.semantic_weight),
       roots = known.roots || ARRAY(SELECT root FROM unnest(excluded.roots) AS root
                                     WHERE root <> ALL(known.roots))

-- name: save_exported_source
INSERT INTO source AS known (project, source, format, title, names, session, parent, cwd, started_at,
        created_at, updated_at)
VALUES (%(project)s, %(source)s, %(format)s, %(title)s, %(names)s, %(session)s, %(parent)s, %(cwd)s,
        %(started_at)s, coalesce(%(created_at)s, now()), coalesce(%(updated_at)s, now()))
    ON CONFLICT (project, source) DO UPDATE SET
       title = coalesce(known.title, excluded.title),
       parent = coalesce(known.parent, excluded.parent),
       cwd = coalesce(known.cwd, excluded.cwd),
       started_at = coalesce(least(known.started_at, excluded.started_at), known.started_at),
       names = known.names || ARRAY(SELECT name FROM unnest(excluded.names) AS name
                                     WHERE name <> ALL(known.names))

-- name: save_exported_instants
-- Of nodes that an import has just stored.
UPDATE memory_node AS node
   SET created_at = coalesce(given.created_at, node.created_at),
       updated_at = coalesce(given.updated_at, node.updated_at),
       stale_since = given.stale_since
  FROM unnest(%(shas)s::text[], %(created_at)s::timestamptz[], %(updated_at)s::timestamptz[],
              %(stale_since)s::timestamptz[]) AS given (sha256, created_at, updated_at, stale_since)
 WHERE node.project = %(project)s AND node.sha256 = given.sha256
