-- name: save_job
-- Accept a submission; this is what the 202 promises.
INSERT INTO ingest_job (id, key_id, project, format, status, payload, progress_total)
VALUES (%(id)s, %(key_id)s, %(project)s, %(format)s, 'queued', %(payload)s, %(total)s)

-- name: find_job
-- One job without its payload; someone else's is not found.
SELECT id, project, format, status, attempts, progress_done, progress_total, files, error_code,
       error_message, created_at, started_at, heartbeat_at, finished_at
  FROM ingest_job
 WHERE id = %(id)s AND (key_id = %(key_id)s OR %(sees_all)s)

-- name: give_up_job
-- End a job that could be claimed, but has been tried as often as it may be.
UPDATE ingest_job
   SET status = 'failed', error_code = 'attempts_exhausted', error_message = %(message)s,
       finished_at = now(), payload = NULL
 WHERE id = %(id)s AND attempts >= %(attempts)s
   AND (status = 'queued' AND due_at <= now()
        OR status = 'running' AND heartbeat_at < now() - make_interval(secs => %(silent_s)s))

-- name: claim_job
-- Take a job to work on: one that waits and is due, or one whose worker has fallen silent.
-- The row decides, not the queue, so a message delivered twice is harmless.
UPDATE ingest_job
   SET status = 'running', attempts = attempts + 1, heartbeat_at = now(),
       started_at = coalesce(started_at, now()), claimed_host = %(host)s, claimed_pid = %(pid)s
 WHERE id = %(id)s AND attempts < %(attempts)s
   AND (status = 'queued' AND due_at <= now()
        OR status = 'running' AND heartbeat_at < now() - make_interval(secs => %(silent_s)s))
RETURNING id, payload, attempts

-- name: beat_job
-- Show that the work goes on. No row: another worker took the job over, or it was cancelled.
UPDATE ingest_job
   SET heartbeat_at = now(), progress_done = %(done)s, progress_total = %(total)s
 WHERE id = %(id)s AND status = 'running' AND attempts = %(attempt)s
RETURNING id

-- name: finish_job
-- The end; the payload has been stored as nodes and is no longer needed.
UPDATE ingest_job
   SET status = %(status)s, files = %(files)s, error_code = %(error_code)s,
       error_message = %(error_message)s, finished_at = now(), payload = NULL,
       progress_done = %(done)s, progress_total = %(done)s
 WHERE id = %(id)s AND status = 'running' AND attempts = %(attempt)s

-- name: retry_job
-- Back to the queue, due later.
UPDATE ingest_job
   SET status = 'queued', due_at = now() + make_interval(secs => %(delay_s)s),
       error_code = %(error_code)s, error_message = %(error_message)s
 WHERE id = %(id)s AND status = 'running' AND attempts = %(attempt)s

-- name: forgotten_jobs
-- Jobs that no message in the queue stands for any more: due for a while and not begun (the broker
-- lost its memory, or a retry has come due), or begun by a worker that fell silent.
SELECT id
  FROM ingest_job
 WHERE status = 'queued' AND due_at < now() - make_interval(secs => %(waited_s)s)
    OR status = 'running' AND heartbeat_at < now() - make_interval(secs => %(silent_s)s)
 ORDER BY due_at
 LIMIT %(limit)s

-- name: claims_of_host
SELECT id, attempts, claimed_pid, heartbeat_at
  FROM ingest_job
 WHERE status = 'running' AND claimed_host = %(host)s

-- name: requeue_job
-- Take a job from a process that has ended. The first time it is due at once, then later and later:
-- what it holds may be what ends the processes.
UPDATE ingest_job
   SET status = 'queued',
       due_at = now() + make_interval(secs => least(300, power(2, attempts - 1) - 1))
 WHERE id = %(id)s AND status = 'running' AND attempts = %(attempt)s
RETURNING id

-- name: release_jobs
-- Give back the jobs of processes that were asked to end. That is no attempt.
UPDATE ingest_job
   SET status = 'queued', attempts = attempts - 1, due_at = now()
 WHERE status = 'running' AND claimed_host = %(host)s AND claimed_pid = ANY(%(pids)s)
RETURNING id

-- name: backlog
-- Jobs that nobody has begun for longer than they should wait, or that fell silent.
SELECT count(*) AS jobs, max(extract(epoch FROM now() - since))::float AS oldest_s
  FROM (SELECT CASE status WHEN 'queued' THEN due_at ELSE heartbeat_at END AS since
          FROM ingest_job
         WHERE status IN ('queued', 'running')) AS open
 WHERE since < now() - make_interval(secs => %(patience_s)s)
