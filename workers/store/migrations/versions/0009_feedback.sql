-- What somebody said of one result of one answer; the last word counts. No foreign keys: it outlives
-- the node, so that a result which cannot be looked up any more is found, and the answer.
CREATE TABLE feedback (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key_id        text        NOT NULL,
    query_id      uuid        NOT NULL,
    result_id     text COLLATE "C" NOT NULL,  -- the sha256 of a node
    project       text COLLATE "C",           -- NULL: untied, and nothing with this sha256 was stored
    query_text    text,                       -- NULL: not told, or forgotten with the node
    feedback_text text,
    relevant      boolean,
    rating        smallint    CHECK (rating BETWEEN 1 AND 5),
    is_tied       boolean     NOT NULL,       -- to the answer as it was served, which tells the rest
    method        text,
    rank          integer,
    semantic      double precision,
    lexical       double precision,
    fused         double precision,
    rerank_score  double precision,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE (key_id, query_id, result_id),
    CHECK (relevant IS NOT NULL OR rating IS NOT NULL)
);
-- For reports of some projects, and to forget.
CREATE INDEX feedback_project ON feedback (project, result_id);
CREATE INDEX feedback_result ON feedback (result_id);
