-- A memory's vectors can be made anew by another model while the present one answers.

ALTER TABLE embedding_model
    ADD COLUMN is_wanted boolean NOT NULL DEFAULT true,  -- every node is to have a vector of it
    ADD COLUMN listed_at timestamptz,  -- the nodes that had none when it was registered are listed
    ADD COLUMN ready_at  timestamptz;  -- what was listed has its vectors: it may become the active one
CREATE UNIQUE INDEX embedding_model_identity
    ON embedding_model (name, dimension, coalesce(sha256, ''));

-- The nodes that have no vector of a model that is wanted. Without foreign keys: whoever removes a
-- node must not wait for the process that works on it here, and one that is gone is skipped.
CREATE TABLE vector_backlog (
    model    smallint         NOT NULL,
    project  text COLLATE "C" NOT NULL,
    sha256   text COLLATE "C" NOT NULL,
    added_at timestamptz      NOT NULL DEFAULT now(),
    refused  text,                        -- why the model makes no vector of it
    PRIMARY KEY (model, project, sha256)
);

-- Whoever stores a vector of one model leaves the node to be done for the others, whatever that
-- process knows of them. The lock is held until its transaction ends: who registers a model takes it
-- alone, and so waits for every writer that has not seen the change.
CREATE FUNCTION list_for_other_models() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1886349686);  -- "poiv"
    IF EXISTS (SELECT FROM embedding_model WHERE is_wanted AND model <> NEW.model) THEN
        INSERT INTO vector_backlog (model, project, sha256)
        SELECT other.model, NEW.project, NEW.sha256
          FROM embedding_model AS other
         WHERE other.is_wanted AND other.model <> NEW.model
           AND NOT EXISTS (SELECT FROM node_vector AS vector
                            WHERE vector.project = NEW.project AND vector.model = other.model
                              AND vector.sha256 = NEW.sha256)
            ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER vector_added AFTER INSERT ON node_vector
    FOR EACH ROW EXECUTE FUNCTION list_for_other_models();
