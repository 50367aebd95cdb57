-- Submitted queries, from the 202 until their results are no longer kept. What happens while one
-- runs is in Redis; this row alone decides how it ended.
CREATE TABLE query_job (
    id              uuid        PRIMARY KEY,
    key_id          text        NOT NULL,
    idempotency_key text,
    fingerprint     bytea       NOT NULL,  -- SHA-256 of what was asked
    status          text        NOT NULL CHECK (status IN (
                        'open', 'completed', 'partial', 'failed', 'cancelled', 'expired')),
    request         jsonb,                 -- NULL once expired, as are the projects
    projects        text[],
    documents       bigint[],              -- nodes of the asked levels, project by project
    project_count   integer     NOT NULL,
    attempts        integer     NOT NULL DEFAULT 0,
    keep_alive_s    integer     NOT NULL,
    submitted_at    timestamptz NOT NULL DEFAULT now(),
    deadline_at     timestamptz NOT NULL,
    dispatched_at   timestamptz,           -- NULL: waits for its turn
    finished_at     timestamptz,
    expires_at      timestamptz,
    done            integer     NOT NULL DEFAULT 0,  -- projects with an outcome at its end
    error           text
);
CREATE TABLE query_answer (
    id     uuid  PRIMARY KEY REFERENCES query_job ON DELETE CASCADE,
    answer bytea NOT NULL  -- compressed JSON
);
-- Compressed by us; EXTERNAL spares a second attempt.
ALTER TABLE query_answer ALTER COLUMN answer SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX query_job_idempotency ON query_job (key_id, idempotency_key)
 WHERE idempotency_key IS NOT NULL;
CREATE INDEX query_job_open ON query_job (deadline_at) WHERE status = 'open';
CREATE INDEX query_job_at_work ON query_job (dispatched_at)
 WHERE status = 'open' AND dispatched_at IS NOT NULL;
CREATE INDEX query_job_owner ON query_job (key_id, submitted_at DESC, id DESC);
CREATE INDEX query_job_ended ON query_job (finished_at DESC) WHERE status <> 'open';
CREATE INDEX query_job_expiry ON query_job (expires_at) WHERE request IS NOT NULL;
