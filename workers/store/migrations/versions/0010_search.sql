-- What a project's questions weigh the meaning with unless they say it; NULL: as all others.
ALTER TABLE project ADD COLUMN semantic_weight double precision
    CHECK (semantic_weight BETWEEN 0 AND 1);

-- Token vectors stay in their row where they fit on a page: a question reads those of fifty nodes a
-- project, and each that lies beside its row costs one more look-up. Rows that are there keep their
-- place until they are written anew.
ALTER TABLE node_tokens ALTER COLUMN tokens SET STORAGE MAIN;
