-- The words of nodes may be searched in an index outside, which follows what is stored here.

-- Of changes, and of writes to the index: what comes later has a larger number.
CREATE SEQUENCE word_change;

-- The index that follows. Without a row there is none, and nothing is listed for it.
CREATE TABLE word_index (
    is_only        boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    name           text NOT NULL,
    complete_after bigint  -- it has every node once no change up to this one is listed any more;
                           -- NULL: not every node was listed yet
);

-- The nodes that the index is to be told of. Each once, so that it stays as small as the memory,
-- however long nobody works it off. Without foreign keys: that a node is gone is to be told as well.
CREATE TABLE word_backlog (
    project text COLLATE "C" NOT NULL,
    sha256  text COLLATE "C" NOT NULL,
    change  bigint           NOT NULL DEFAULT nextval('word_change'),  -- the last one
    PRIMARY KEY (project, sha256)
);
CREATE INDEX word_backlog_change ON word_backlog (change);

-- Whoever changes a node or its words lists it, in the same transaction, whatever that process knows
-- of the index. The lock is held until the transaction ends: who begins an index takes it alone, and
-- so waits for every writer that has not seen it.
CREATE FUNCTION list_for_word_index() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1886349687);  -- "poiw"
    IF EXISTS (SELECT FROM word_index) THEN
        INSERT INTO word_backlog (project, sha256)
        SELECT project, sha256 FROM touched ORDER BY project, sha256
            ON CONFLICT (project, sha256) DO UPDATE SET change = nextval('word_change');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER terms_added_to_index AFTER INSERT ON node_terms
    REFERENCING NEW TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION list_for_word_index();
CREATE TRIGGER terms_removed_from_index AFTER DELETE ON node_terms
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION list_for_word_index();
CREATE TRIGGER node_changed_in_index AFTER UPDATE ON memory_node
    REFERENCING NEW TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION list_for_word_index();
