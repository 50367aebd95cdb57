-- Token vectors stay in their row where they fit on a page: a question reads those of fifty nodes a
-- project, and each that lies beside its row costs one more look-up. Rows that are there keep their
-- place until they are written anew.
ALTER TABLE node_tokens ALTER COLUMN tokens SET STORAGE MAIN;
