-- Large projects get a vector index of their own. It is recorded here once it is built and valid, so
-- that a query knows without asking the catalogue.
CREATE TABLE vector_index (
    project  text COLLATE "C" NOT NULL REFERENCES project ON DELETE CASCADE,
    model    smallint         NOT NULL REFERENCES embedding_model,
    name     text COLLATE "C" NOT NULL,
    built_at timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (project, model)
);
