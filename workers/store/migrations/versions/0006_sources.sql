-- Transcripts and documents: the submitted files, and what is known of each source.

-- One file of a submission, each with an end of its own.
CREATE TABLE ingest_file (
    job_id  uuid    NOT NULL REFERENCES ingest_job ON DELETE CASCADE,
    number  integer NOT NULL,                -- its place in the submission, from 1
    name    text    NOT NULL,
    size    bigint  NOT NULL,                -- bytes as they were sent
    data    bytea,                           -- compressed by us; NULL once it has ended
    report  jsonb,                           -- what became of it; NULL until it has ended
    attempt integer NOT NULL DEFAULT 0,      -- the job's attempt in which it was last begun
    PRIMARY KEY (job_id, number)
);
ALTER TABLE ingest_file ALTER COLUMN data SET STORAGE EXTERNAL;

ALTER TABLE ingest_job
    ADD COLUMN idempotency_key text,
    ADD COLUMN fingerprint     bytea,       -- SHA-256 of what was submitted
    ADD COLUMN scope           text[],      -- projects the submitter may write to; NULL: all
    ADD COLUMN stage           text;        -- what is being done, in words
CREATE UNIQUE INDEX ingest_job_idempotency ON ingest_job (key_id, idempotency_key)
 WHERE idempotency_key IS NOT NULL;
CREATE INDEX ingest_job_fingerprint ON ingest_job (key_id, fingerprint)
 WHERE fingerprint IS NOT NULL;

-- Where nodes come from: a session, or a document.
CREATE TABLE source (
    project    text COLLATE "C" NOT NULL REFERENCES project ON DELETE CASCADE,
    source     text COLLATE "C" NOT NULL,
    format     text        NOT NULL,
    title      text,
    names      text[]      NOT NULL DEFAULT '{}',  -- the files it was read from
    session    text,                               -- the session's id, of a transcript
    parent     text,                               -- the session it was forked from, or is part of
    cwd        text,
    started_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, source)
);

-- Which node a turn became. A turn has the same key in every file that holds it, so that a session
-- that was resumed or forked brings only what is new.
CREATE TABLE turn (
    project text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,  -- with its format, and the number of its part
    source  text COLLATE "C" NOT NULL,
    sha256  text COLLATE "C" NOT NULL,
    PRIMARY KEY (project, key),
    FOREIGN KEY (project, source) REFERENCES source ON DELETE CASCADE,
    FOREIGN KEY (project, sha256) REFERENCES memory_node ON DELETE CASCADE
);
CREATE INDEX turn_source ON turn (project, source);
CREATE INDEX turn_node ON turn (project, sha256);

-- A note that rests on something that was changed or forgotten since it was made.
ALTER TABLE memory_node ADD COLUMN stale_since timestamptz;

-- The nodes of a source in their order: what a document's new version replaces, and neighbours.
CREATE INDEX memory_node_source ON memory_node (project, source, position);

-- What was forgotten, when and by whom; never what it said.
CREATE TABLE forgetting (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key_id     text        NOT NULL,
    project    text        NOT NULL,
    what       text        NOT NULL CHECK (what IN ('node', 'source', 'project')),
    nodes      bigint      NOT NULL,  -- removed, with the notes that rested on them alone
    created_at timestamptz NOT NULL DEFAULT now()
);

-- The nodes that a stored answer shows, so that it is forgotten with them.
ALTER TABLE query_answer ADD COLUMN nodes text[] NOT NULL DEFAULT '{}';
CREATE INDEX query_answer_nodes ON query_answer USING gin (nodes);

-- For an export's pages.
CREATE INDEX memory_node_level ON memory_node (project, level, sha256);
