-- name: bound_wait
-- How long to wait for another request with the same idempotency key to be accepted.
SELECT set_config('lock_timeout', '1s', true)

-- name: first_with_key
SELECT id, fingerprint FROM ingest_job
 WHERE key_id = %(key_id)s AND idempotency_key = %(idempotency_key)s

-- name: take_turn
-- Of equal submissions at once, one is accepted before the next one looks for it.
SELECT pg_advisory_xact_lock(hashtextextended(%(key_id)s || encode(%(fingerprint)s, 'hex'), 0))

-- name: first_with_content
-- A job of the last day that brought the same, is not known to have failed at it, and was not
-- followed by another version: a file of the same name, or nodes of the same project.
SELECT id FROM ingest_job AS first
 WHERE key_id = %(key_id)s AND fingerprint = %(fingerprint)s
   AND status IN ('queued', 'running', 'completed') AND created_at > now() - interval '1 day'
   AND NOT EXISTS (
           SELECT FROM ingest_job AS later
            WHERE later.created_at > first.created_at
              AND later.fingerprint IS DISTINCT FROM first.fingerprint
              AND (later.project = first.project
                   OR later.project IS NULL OR first.project IS NULL)
              AND (first.format IN ('nodes', 'export')
                   AND later.format IN ('nodes', 'export')
                   OR EXISTS (
                       SELECT FROM ingest_file AS mine JOIN ingest_file AS theirs
                           ON substring(mine.name FROM '[^/\\]*$')
                              = substring(theirs.name FROM '[^/\\]*$')
                        WHERE mine.job_id = first.id AND theirs.job_id = later.id)))
 ORDER BY created_at DESC
 LIMIT 1

-- name: save_job
-- Accept a submission; this is what the 202 promises. No row: its key was used before.
INSERT INTO ingest_job (id, key_id, project, format, status, payload, progress_total, scope,
                        idempotency_key, fingerprint)
VALUES (%(id)s, %(key_id)s, %(project)s, %(format)s, 'queued', %(payload)s, %(total)s, %(scope)s,
        %(idempotency_key)s, %(fingerprint)s)
    ON CONFLICT (key_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING id

-- name: save_file
INSERT INTO ingest_file (job_id, number, name, size, data)
VALUES (%(id)s, %(number)s, %(name)s, %(size)s, %(data)s)

-- name: files_of
-- What became of each file of a job; no report of one that is still to be read.
SELECT name, report FROM ingest_file WHERE job_id = %(id)s ORDER BY number

-- name: count_files
SELECT count(report) AS done, count(*) AS total FROM ingest_file WHERE job_id = %(id)s

-- name: namesakes_before
-- The names of files that stand before this one in the job and are called the same in some folder.
-- Not of those that brought nothing, nor of those of the same size: they are the same file sent twice.
SELECT before.name
  FROM ingest_file AS before, ingest_file AS own
 WHERE own.job_id = %(id)s AND own.number = %(number)s
   AND before.job_id = %(id)s AND before.number < %(number)s AND before.size <> own.size
   AND before.report ->> 'reason' IS NULL
   AND substring(before.name FROM '[^/\\]*$') = substring(own.name FROM '[^/\\]*$')

-- name: begin_file
-- A file that has not ended, of those that this attempt has not tried. The ones that were begun
-- before come last: one of them may be what ended the process.
UPDATE ingest_file SET attempt = %(attempt)s
 WHERE job_id = %(id)s
   AND number = (SELECT number FROM ingest_file
                  WHERE job_id = %(id)s AND report IS NULL AND number <> ALL(%(tried)s)
                  ORDER BY attempt, number LIMIT 1)
   AND EXISTS (SELECT FROM ingest_job
                WHERE id = %(id)s AND status = 'running' AND attempts = %(attempt)s)
RETURNING number, name, data

-- name: finish_file
-- Its content is kept only where it may be tried again.
UPDATE ingest_file SET report = %(report)s, data = CASE WHEN %(keeps_data)s THEN data END
 WHERE job_id = %(id)s AND number = %(number)s
   AND EXISTS (SELECT FROM ingest_job
                WHERE id = %(id)s AND status = 'running' AND attempts = %(attempt)s)

-- name: last_forgetting
SELECT coalesce(max(id), 0) AS id FROM forgetting

-- name: give_up_files
-- End the files of a job that have not ended; their content is kept, for another try.
UPDATE ingest_file
   SET report = jsonb_build_object('name', name, 'status', 'failed', 'reason', %(message)s::text)
 WHERE job_id = %(id)s AND report IS NULL
   AND (%(attempt)s::integer IS NULL
        OR EXISTS (SELECT FROM ingest_job
                    WHERE id = %(id)s AND status = 'running' AND attempts = %(attempt)s))

-- name: list_jobs
-- One page of submissions, newest first; others' are listed only to who may see all.
SELECT id, project, format, status, attempts, progress_done, progress_total, files, error_code,
       error_message, stage, created_at, started_at, heartbeat_at, finished_at
  FROM ingest_job
 WHERE (key_id = %(key_id)s OR %(sees_all)s)
   AND (%(status)s::text[] IS NULL OR status = ANY(%(status)s))
   AND (%(before_at)s::timestamptz IS NULL
        OR (created_at, id) < (%(before_at)s, %(before_id)s::uuid))
 ORDER BY created_at DESC, id DESC
 LIMIT %(limit)s

-- name: cancel_job
-- Whoever works on it finds out at the next sign of life; what is stored stays.
UPDATE ingest_job
   SET status = 'cancelled', finished_at = now(), payload = NULL, stage = NULL
 WHERE id = %(id)s AND (key_id = %(key_id)s OR %(sees_all)s) AND status IN ('queued', 'running')
RETURNING id

-- name: cancel_files
-- Nothing of a cancelled job is kept to be read.
UPDATE ingest_file
   SET data = NULL,
       report = coalesce(report, jsonb_build_object(
           'name', name, 'status', 'failed', 'reason', 'cancelled before it was taken'))
 WHERE job_id = %(id)s

-- name: retry_ended_job
-- Try again what failed, as if it had just been submitted.
UPDATE ingest_job
   SET status = 'queued', attempts = 0, due_at = now(), finished_at = NULL, error_code = NULL,
       error_message = NULL, stage = NULL
 WHERE id = %(id)s AND (key_id = %(key_id)s OR %(sees_all)s) AND status IN ('failed', 'partial')
   AND (payload IS NOT NULL
        OR EXISTS (SELECT FROM ingest_file
                    WHERE job_id = %(id)s AND data IS NOT NULL))
RETURNING id

-- name: reopen_files
UPDATE ingest_file SET report = NULL, attempt = 0 WHERE job_id = %(id)s AND data IS NOT NULL

-- name: find_job
-- One job without its payload; someone else's is not found.
SELECT id, project, format, status, attempts, progress_done, progress_total, files, error_code,
       error_message, stage, created_at, started_at, heartbeat_at, finished_at
  FROM ingest_job
 WHERE id = %(id)s AND (key_id = %(key_id)s OR %(sees_all)s)

-- name: give_up_job
-- End a job that could be claimed, but has been tried as often as it may be. It has failed only in
-- part if some of its files are stored.
UPDATE ingest_job
   SET status = CASE WHEN EXISTS (SELECT FROM ingest_file
                                   WHERE job_id = %(id)s AND report->>'status' <> 'failed')
                     THEN 'partial' ELSE 'failed' END,
       error_code = 'attempts_exhausted', error_message = %(message)s, finished_at = now(),
       stage = NULL
 WHERE id = %(id)s AND attempts >= %(attempts)s
   AND (status = 'queued' AND due_at <= now()
        OR status = 'running' AND heartbeat_at < now() - make_interval(secs => %(silent_s)s))
RETURNING id

-- name: claim_job
-- Take a job to work on: one that waits and is due, or one whose worker has fallen silent.
-- The row decides, not the queue, so a message delivered twice is harmless.
UPDATE ingest_job
   SET status = 'running', attempts = attempts + 1, heartbeat_at = now(),
       started_at = coalesce(started_at, now()), claimed_host = %(host)s, claimed_pid = %(pid)s
 WHERE id = %(id)s AND attempts < %(attempts)s
   AND (status = 'queued' AND due_at <= now()
        OR status = 'running' AND heartbeat_at < now() - make_interval(secs => %(silent_s)s))
RETURNING id, key_id, project, format, scope, payload, attempts

-- name: beat_job
-- Show that the work goes on. No row: another worker took the job over, or it was cancelled.
UPDATE ingest_job
   SET heartbeat_at = now(), progress_done = %(done)s, progress_total = %(total)s,
       stage = %(stage)s
 WHERE id = %(id)s AND status = 'running' AND attempts = %(attempt)s
RETURNING id

-- name: finish_job
-- The end; the payload is kept only where it may be tried again.
UPDATE ingest_job
   SET status = %(status)s, files = %(files)s, error_code = %(error_code)s,
       error_message = %(error_message)s, finished_at = now(), stage = NULL,
       payload = CASE WHEN %(keeps_payload)s THEN payload END,
       progress_done = %(done)s, progress_total = %(done)s
 WHERE id = %(id)s AND status = 'running' AND attempts = %(attempt)s

-- name: retry_job
-- Back to the queue, due later.
UPDATE ingest_job
   SET status = 'queued', due_at = now() + make_interval(secs => %(delay_s)s),
       error_code = %(error_code)s, error_message = %(error_message)s, stage = NULL
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
