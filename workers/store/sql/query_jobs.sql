-- name: bound_wait
-- How long to wait for another request with the same idempotency key to be accepted.
SELECT set_config('lock_timeout', '1s', true)

-- name: crowd
-- Unfinished jobs: this key's, all, those waiting for their turn, and how long a job lately took.
SELECT count(*) FILTER (WHERE key_id = %(key_id)s) AS own, count(*) AS all_open,
       count(*) FILTER (WHERE dispatched_at IS NULL) AS waiting,
       (SELECT avg(extract(epoch FROM finished_at - dispatched_at))::float
          FROM (SELECT finished_at, dispatched_at FROM query_job
                 WHERE status <> 'open' AND finished_at > now() - interval '5 minutes'
                   AND dispatched_at IS NOT NULL
                 ORDER BY finished_at DESC LIMIT 20) AS lately) AS took_s
  FROM query_job
 WHERE status = 'open'

-- name: save_job
-- Accept a query; this is what the 202 promises. No row: its idempotency key was used before.
INSERT INTO query_job (id, key_id, idempotency_key, fingerprint, status, request, projects,
                       documents, project_count, keep_alive_s, deadline_at)
VALUES (%(id)s, %(key_id)s, %(idempotency_key)s, %(fingerprint)s, 'open', %(request)s,
        %(projects)s, %(documents)s, cardinality(%(projects)s::text[]), %(keep_alive_s)s,
        now() + make_interval(secs => %(timeout_s)s))
    ON CONFLICT (key_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING *, now() AS asked_at

-- name: first_with_key
SELECT *, now() AS asked_at FROM query_job
 WHERE key_id = %(key_id)s AND idempotency_key = %(idempotency_key)s

-- name: claim_next
-- The jobs whose turn it is, as many as there is room for among those at work. Turns go round by
-- key, so that who submits a thousand does not keep others waiting: first comes who has fewest at
-- work, and among those who waited longest since the last one. One key's jobs at work have a bounded
-- number of tasks, lest they fill every worker while they hang; its first one is always let in.
WITH turns AS (
    SELECT id, key_id, submitted_at, dispatched_at,
           count(dispatched_at) OVER (PARTITION BY key_id)
           + row_number() OVER (PARTITION BY key_id, dispatched_at IS NULL
                                ORDER BY submitted_at, id) AS turn,
           coalesce(sum(least(project_count, %(tasks_per_query)s))
                    FILTER (WHERE dispatched_at IS NOT NULL) OVER (PARTITION BY key_id), 0)
           + sum(least(project_count, %(tasks_per_query)s))
             OVER (PARTITION BY key_id, dispatched_at IS NULL
                   ORDER BY submitted_at, id) AS tasks,
           max(dispatched_at) OVER (PARTITION BY key_id) AS served_at
      FROM query_job
     WHERE status = 'open' AND deadline_at > now()
       AND (SELECT count(*) FROM query_job
             WHERE status = 'open' AND dispatched_at IS NOT NULL) < %(at_once)s
), lately AS (
    SELECT key_id, max(dispatched_at) AS served_at
      FROM (SELECT key_id, dispatched_at FROM query_job
             WHERE status <> 'open' ORDER BY finished_at DESC LIMIT 100) AS ended
     GROUP BY key_id
), chosen AS (
    SELECT id FROM turns LEFT JOIN lately USING (key_id)
     WHERE dispatched_at IS NULL AND (turn = 1 OR tasks <= %(tasks_of_key)s)
     ORDER BY turn, greatest(turns.served_at, lately.served_at) NULLS FIRST, submitted_at, id
     LIMIT greatest(0, %(at_once)s - (SELECT count(dispatched_at) FROM turns))
)
UPDATE query_job
   SET dispatched_at = now(), attempts = attempts + 1
 WHERE id IN (SELECT id FROM query_job
               WHERE id IN (SELECT id FROM chosen) AND status = 'open' AND dispatched_at IS NULL
                 FOR UPDATE SKIP LOCKED)
RETURNING *, now() AS asked_at

-- name: claim_again
-- One more attempt at a job that is at work; no row: another one took it, or it has ended.
UPDATE query_job
   SET dispatched_at = now(), attempts = attempts + %(counted)s
 WHERE id = %(id)s AND status = 'open' AND dispatched_at = %(dispatched_at)s
RETURNING *, now() AS asked_at

-- name: give_back
-- It waits for its turn again. Another one may have claimed it, or ended it, meanwhile.
UPDATE query_job
   SET dispatched_at = NULL, attempts = attempts - 1
 WHERE id = %(id)s AND status = 'open' AND dispatched_at = %(dispatched_at)s

-- name: find_job
SELECT *, now() AS asked_at
  FROM query_job
 WHERE id = %(id)s

-- name: find_answer
SELECT answer FROM query_answer WHERE id = %(id)s

-- name: list_jobs
-- One page of a key's jobs, newest first; those whose result is no longer kept are not listed.
SELECT *, now() AS asked_at
  FROM query_job
 WHERE key_id = %(key_id)s AND status <> 'expired'
   AND (expires_at IS NULL OR expires_at > now())
   AND (%(status)s::text[] IS NULL OR status = ANY(%(status)s))
   AND (%(before_at)s::timestamptz IS NULL
        OR (submitted_at, id) < (%(before_at)s, %(before_id)s::uuid))
 ORDER BY submitted_at DESC, id DESC
 LIMIT %(limit)s

-- name: finish_job
-- The one transition into an end. No row: it has ended already.
WITH ended AS (
    UPDATE query_job
       SET status = %(status)s, done = %(done)s, error = %(error)s,
           finished_at = now(), expires_at = now() + make_interval(secs => keep_alive_s)
     WHERE id = %(id)s AND status = 'open'
    RETURNING *
), kept AS (
    INSERT INTO query_answer (id, answer, nodes)
    SELECT id, %(answer)s, %(nodes)s FROM ended WHERE %(answer)s::bytea IS NOT NULL
)
SELECT *, now() AS asked_at FROM ended

-- name: expire_job
-- Remove an ended job's result; the row stays, to tell that there was one.
WITH expired AS (
    UPDATE query_job
       SET status = 'expired', request = NULL, projects = NULL, documents = NULL,
           expires_at = now()
     WHERE id = %(id)s AND status NOT IN ('open', 'expired')
    RETURNING id
), removed AS (
    DELETE FROM query_answer WHERE id IN (SELECT id FROM expired)
)
SELECT id FROM expired

-- name: at_work
-- Dispatched jobs whose deadline is still ahead.
SELECT *, now() AS asked_at
  FROM query_job
 WHERE status = 'open' AND dispatched_at IS NOT NULL AND deadline_at > now()
 ORDER BY dispatched_at
 LIMIT %(limit)s

-- name: overdue
SELECT *, now() AS asked_at
  FROM query_job
 WHERE status = 'open' AND deadline_at <= now()
 ORDER BY deadline_at
 LIMIT %(limit)s

-- name: expire_jobs
WITH expired AS (
    UPDATE query_job
       SET status = 'expired', request = NULL, projects = NULL, documents = NULL
     WHERE id IN (SELECT id FROM query_job
                   WHERE request IS NOT NULL AND expires_at <= now()
                   ORDER BY expires_at LIMIT %(limit)s)
    RETURNING id
)
DELETE FROM query_answer WHERE id IN (SELECT id FROM expired)

-- name: forget_jobs
-- Rows that told for a month that there was a result, and idempotency keys older than a day.
WITH gone AS (
    DELETE FROM query_job
     WHERE id IN (SELECT id FROM query_job
                   WHERE status <> 'open' AND finished_at < now() - interval '30 days'
                     AND expires_at < now() - interval '30 days'
                   ORDER BY finished_at LIMIT %(limit)s)
)
UPDATE query_job
   SET idempotency_key = NULL
 WHERE id IN (SELECT id FROM query_job
               WHERE idempotency_key IS NOT NULL AND status <> 'open'
                 AND submitted_at < now() - interval '1 day'
               LIMIT %(limit)s)
