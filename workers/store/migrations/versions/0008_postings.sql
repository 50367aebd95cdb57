-- Lexical search: which terms each node has, and what scoring needs to know of the whole.

-- The terms of a node, from its text and headings. A node without a row here is to be analysed:
-- a worker of an earlier version stored it, or its headings were changed since.
CREATE TABLE node_terms (
    project  text COLLATE "C" NOT NULL,
    sha256   text COLLATE "C" NOT NULL,
    level    text COLLATE "C" NOT NULL,
    length   integer          NOT NULL,  -- terms, each as often as it occurs
    analysis text COLLATE "C" NOT NULL,  -- how its terms were made
    terms    text[] COLLATE "C" NOT NULL,  -- each once: so its postings are found without an index
    PRIMARY KEY (project, sha256)
);

-- One row for each term of each node. Queries read the index alone, in its order: of a term of a
-- project the nodes on the asked levels. `node` is the first half of the sha256: as good a name
-- within a project, in the same order, at a quarter of the size.
CREATE TABLE posting (
    project text COLLATE "C" NOT NULL,
    term    text COLLATE "C" NOT NULL,
    level   text COLLATE "C" NOT NULL,
    node    uuid             NOT NULL,
    tf      smallint         NOT NULL,  -- how often it occurs there
    length  integer          NOT NULL   -- of the node
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX posting_term ON posting (project, term, level, node) INCLUDE (tf, length);

-- The nodes that have their postings, and the sum of their lengths.
CREATE TABLE lexical_count (
    project text COLLATE "C" NOT NULL REFERENCES project ON DELETE CASCADE,
    level   text COLLATE "C" NOT NULL,
    nodes   bigint           NOT NULL,
    length  bigint           NOT NULL,
    PRIMARY KEY (project, level)
);

CREATE FUNCTION count_added_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lexical_count AS counted (project, level, nodes, length)
    SELECT project, level, count(*), sum(length)
      FROM added GROUP BY project, level ORDER BY project, level
        ON CONFLICT (project, level) DO UPDATE SET
           nodes = counted.nodes + excluded.nodes, length = counted.length + excluded.length;
    RETURN NULL;
END $$;

-- The postings of nodes go with their terms. Where nothing of a project is left, all at once.
CREATE FUNCTION remove_postings() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    emptied text[] := ARRAY(
        SELECT project FROM (SELECT DISTINCT project FROM removed) AS touched
         WHERE NOT EXISTS (SELECT FROM node_terms WHERE node_terms.project = touched.project));
BEGIN
    DELETE FROM posting WHERE project = ANY(emptied);
    DELETE FROM posting
     USING (SELECT project, level, left(sha256, 32)::uuid AS node, unnest(terms) AS term
              FROM removed WHERE project <> ALL(emptied)) AS gone
     WHERE posting.project = gone.project AND posting.term = gone.term
       AND posting.level = gone.level AND posting.node = gone.node;
    UPDATE lexical_count AS counted
       SET nodes = counted.nodes - gone.nodes, length = counted.length - gone.length
      FROM (SELECT project, level, count(*) AS nodes, sum(length) AS length
              FROM removed GROUP BY project, level) AS gone
     WHERE counted.project = gone.project AND counted.level = gone.level;
    RETURN NULL;
END $$;

CREATE TRIGGER terms_added AFTER INSERT ON node_terms
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_added_terms();
CREATE TRIGGER terms_removed AFTER DELETE ON node_terms
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION remove_postings();

-- Whoever removes a node, or changes headings that are searched, takes its terms along, whatever
-- that process knows of them. By statement and not by a foreign key, which would go row by row.
CREATE FUNCTION remove_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM node_terms USING removed
     WHERE node_terms.project = removed.project AND node_terms.sha256 = removed.sha256;
    RETURN NULL;
END $$;

CREATE FUNCTION remove_outdated_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM node_terms WHERE project = NEW.project AND sha256 = NEW.sha256;
    RETURN NULL;
END $$;

CREATE TRIGGER node_removed_with_terms AFTER DELETE ON memory_node
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION remove_terms();
CREATE TRIGGER node_retitled AFTER UPDATE OF title, breadcrumb ON memory_node
    FOR EACH ROW
    WHEN (NEW.kind <> 'turn'  -- a turn is searched by its text alone
          AND (OLD.title, OLD.breadcrumb) IS DISTINCT FROM (NEW.title, NEW.breadcrumb))
    EXECUTE FUNCTION remove_outdated_terms();
