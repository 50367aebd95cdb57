-- Nodes that came with a vector of their own are stored without the model being run. What the
-- reranker wants prepared of them is made afterwards; until then they rank by their vector.
CREATE TABLE token_backlog (
    project text COLLATE "C" NOT NULL,
    sha256  text COLLATE "C" NOT NULL,
    PRIMARY KEY (project, sha256),
    FOREIGN KEY (project, sha256) REFERENCES memory_node ON DELETE CASCADE
);
