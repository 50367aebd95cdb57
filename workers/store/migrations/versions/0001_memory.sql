-- The memory: projects, nodes, edges, vectors, ingest jobs and keys.
-- One table per thing and no partition per project: creating or dropping a partition blocks every
-- project's queries, and a backend that touched thousands of them keeps their catalogue in memory.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE project (
    project    text COLLATE "C" PRIMARY KEY CHECK (project ~ '^[a-z0-9][a-z0-9._-]{0,63}$'),
    title      text,
    roots      text[]      NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Which model made the stored vectors; vectors of two models are never compared.
CREATE TABLE embedding_model (
    model       smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text        NOT NULL,
    sha256      text,
    dimension   integer     NOT NULL CHECK (dimension > 0),
    token_model text,
    is_active   boolean     NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX embedding_model_active ON embedding_model (is_active) WHERE is_active;

CREATE TABLE memory_node (
    project     text COLLATE "C" NOT NULL REFERENCES project ON DELETE CASCADE,
    sha256      text COLLATE "C" NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    level       text COLLATE "C" NOT NULL CHECK (level IN ('L0', 'L1', 'L2')),
    kind        text COLLATE "C" NOT NULL
                CHECK (kind IN ('turn', 'document', 'chunk', 'note', 'synthesis')),
    source      text        NOT NULL,
    text        text        NOT NULL,
    position    integer,
    title       text,
    breadcrumb  text[]      NOT NULL DEFAULT '{}',
    span        jsonb,
    standing_id text COLLATE "C",
    occurred_at timestamptz,
    tags        text[]      NOT NULL DEFAULT '{}',
    metadata    jsonb       NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, sha256)
);

CREATE TABLE memory_edge (
    project    text COLLATE "C" NOT NULL,
    child      text COLLATE "C" NOT NULL,
    parent     text COLLATE "C" NOT NULL,
    precedence integer NOT NULL,
    PRIMARY KEY (project, child, parent),
    FOREIGN KEY (project, child) REFERENCES memory_node ON DELETE CASCADE,
    FOREIGN KEY (project, parent) REFERENCES memory_node ON DELETE CASCADE
);
-- Deleting a node looks for the edges that name it as parent; without this it scans them all.
CREATE INDEX memory_edge_parent ON memory_edge (project, parent);

-- Narrow on purpose: recall reads nothing else. No dimension in the type, so that two models can
-- stand side by side.
CREATE TABLE node_vector (
    project   text COLLATE "C" NOT NULL,
    model     smallint         NOT NULL REFERENCES embedding_model,
    sha256    text COLLATE "C" NOT NULL,
    level     text COLLATE "C" NOT NULL,
    embedding vector           NOT NULL,
    PRIMARY KEY (project, model, sha256),
    FOREIGN KEY (project, sha256) REFERENCES memory_node ON DELETE CASCADE
);
CREATE INDEX node_vector_level ON node_vector (project, model, level);

CREATE TABLE node_tokens (
    project     text COLLATE "C" NOT NULL,
    token_model text COLLATE "C" NOT NULL,
    sha256      text COLLATE "C" NOT NULL,
    tokens      bytea            NOT NULL,
    PRIMARY KEY (project, token_model, sha256),
    FOREIGN KEY (project, sha256) REFERENCES memory_node ON DELETE CASCADE
);
-- int8 vectors do not compress; EXTERNAL spares the attempt on every write and read.
ALTER TABLE node_tokens ALTER COLUMN tokens SET STORAGE EXTERNAL;

-- How many nodes a project has on each level, kept by triggers so that no query counts rows.
CREATE TABLE node_count (
    project text COLLATE "C" NOT NULL REFERENCES project ON DELETE CASCADE,
    level   text COLLATE "C" NOT NULL,
    nodes   bigint           NOT NULL,
    PRIMARY KEY (project, level)
);

CREATE FUNCTION count_added_nodes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO node_count AS counted (project, level, nodes)
    SELECT project, level, count(*) FROM added GROUP BY project, level ORDER BY project, level
        ON CONFLICT (project, level) DO UPDATE SET nodes = counted.nodes + excluded.nodes;
    RETURN NULL;
END $$;

CREATE FUNCTION count_removed_nodes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE node_count AS counted
       SET nodes = counted.nodes - gone.nodes
      FROM (SELECT project, level, count(*) AS nodes FROM removed GROUP BY project, level) AS gone
     WHERE counted.project = gone.project AND counted.level = gone.level;
    RETURN NULL;
END $$;

CREATE TRIGGER node_added AFTER INSERT ON memory_node
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_added_nodes();
CREATE TRIGGER node_removed AFTER DELETE ON memory_node
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION count_removed_nodes();

-- Written before the 202: whatever is accepted is here, whether or not a queue remembers it.
CREATE TABLE ingest_job (
    id             uuid        PRIMARY KEY,
    key_id         text        NOT NULL,
    project        text,
    format         text        NOT NULL,
    status         text        NOT NULL
                   CHECK (status IN ('queued', 'running', 'completed', 'partial', 'failed', 'cancelled')),
    payload        bytea,       -- compressed JSON: as text, for jsonb refuses what JSON may hold
    attempts       integer     NOT NULL DEFAULT 0,
    progress_done  integer     NOT NULL DEFAULT 0,
    progress_total integer     NOT NULL DEFAULT 0,
    files          jsonb       NOT NULL DEFAULT '[]',
    error_code     text,
    error_message  text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    due_at         timestamptz NOT NULL DEFAULT now(),
    started_at     timestamptz,
    heartbeat_at   timestamptz,
    finished_at    timestamptz
);
CREATE INDEX ingest_job_open ON ingest_job (due_at) WHERE status IN ('queued', 'running');
CREATE INDEX ingest_job_key ON ingest_job (key_id, created_at DESC);

CREATE TABLE api_key (
    id         text        PRIMARY KEY,
    name       text        NOT NULL,
    secret     bytea       NOT NULL,  -- SHA-256 of the key; the key itself has 256 random bits
    can_write  boolean     NOT NULL,
    projects   text[],                -- NULL: every project
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);
