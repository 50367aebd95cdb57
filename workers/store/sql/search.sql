-- name: count_nodes
-- How many nodes of one project a query on these levels looks at.
SELECT coalesce(sum(nodes), 0)::bigint AS nodes
  FROM node_count
 WHERE project = %(project)s AND level = ANY(%(levels)s)

-- name: recall_exact
-- The nodes of one project nearest to a question, best first, each exactly measured.
-- The vector table alone picks them; each is looked up after (OFFSET 0 keeps the planner from turning
-- that into joins, which cost more than the search). `+ 0` keeps any vector index out of it: an index
-- would lose rows to the filters. The first %(tokens_for)s carry their token vectors, and their texts
-- if the reranker reads them, so that reranking needs no second statement.
WITH nearest AS MATERIALIZED (
    SELECT sha256, (embedding <=> %(query)s) + 0 AS distance
      FROM node_vector
     WHERE project = %(project)s AND model = %(model)s AND level = ANY(%(levels)s)
     ORDER BY distance, sha256
     LIMIT %(depth)s
), ranked AS (
    SELECT sha256, distance, row_number() OVER (ORDER BY distance, sha256) AS rank FROM nearest
)
SELECT ranked.sha256, node.level, node.kind, ranked.distance, node.text_length, node.text,
       tokens.tokens
  FROM ranked
 CROSS JOIN LATERAL (
       SELECT level, kind, length(text) AS text_length,
              CASE WHEN %(has_text)s AND ranked.rank <= %(tokens_for)s THEN text END AS text
         FROM memory_node
        WHERE project = %(project)s AND sha256 = ranked.sha256
       OFFSET 0) AS node
  LEFT JOIN LATERAL (
       SELECT tokens
         FROM node_tokens
        WHERE project = %(project)s AND token_model = %(token_model)s
          AND sha256 = ranked.sha256 AND ranked.rank <= %(tokens_for)s
       OFFSET 0) AS tokens ON true
 ORDER BY ranked.rank

-- name: hnsw_settings
-- For the rest of this transaction: let the index go on until enough rows pass the filters, within
-- bounds, and leave the planner no way around it (exact recall needs a sort, the index does not).
SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.ef_search', %(ef_search)s, true),
       set_config('hnsw.max_scan_tuples', %(max_scan_tuples)s, true),
       set_config('hnsw.scan_mem_multiplier', '4', true),
       set_config('enable_sort', 'off', true)

-- name: recall_hnsw
-- As recall_exact, by the project's own index. Its rows come in nearly the right order and are
-- sorted outside. DIMENSION stands for a number: a type modifier cannot be a parameter.
WITH nearest AS MATERIALIZED (
    SELECT sha256, embedding::vector(DIMENSION) <=> %(query)s AS distance
      FROM node_vector
     WHERE project = %(project)s AND model = %(model)s AND level = ANY(%(levels)s)
     ORDER BY embedding::vector(DIMENSION) <=> %(query)s
     LIMIT %(depth)s
), ranked AS (
    SELECT sha256, distance, row_number() OVER (ORDER BY distance + 0, sha256) AS rank FROM nearest
)
SELECT ranked.sha256, node.level, node.kind, ranked.distance, node.text_length, node.text,
       tokens.tokens
  FROM ranked
 CROSS JOIN LATERAL (
       SELECT level, kind, length(text) AS text_length,
              CASE WHEN %(has_text)s AND ranked.rank <= %(tokens_for)s THEN text END AS text
         FROM memory_node
        WHERE project = %(project)s AND sha256 = ranked.sha256
       OFFSET 0) AS node
  LEFT JOIN LATERAL (
       SELECT tokens
         FROM node_tokens
        WHERE project = %(project)s AND token_model = %(token_model)s
          AND sha256 = ranked.sha256 AND ranked.rank <= %(tokens_for)s
       OFFSET 0) AS tokens ON true
 ORDER BY ranked.rank

-- name: load_nodes
-- The nodes behind the best candidates; of a very long text only the beginning.
SELECT project, sha256, level, kind, source, left(text, %(most)s) AS text,
       length(text) > %(most)s AS is_excerpt, position, occurred_at, title, breadcrumb, span,
       standing_id, tags, metadata
  FROM memory_node
 WHERE project = %(project)s AND sha256 = ANY(%(nodes)s)

-- name: walk_edges
-- The edges within two hops of these nodes (L2 to L1 to L0), with an excerpt of the parent at the end
-- of each. At most fans[1] parents of a node are followed at the first hop, fans[2] at the second;
-- `siblings` says how many a node has, so that an answer can say what it leaves out.
WITH first AS (
    SELECT child, parent, rank, siblings
      FROM (SELECT child, parent, count(*) OVER (PARTITION BY child) AS siblings,
                   row_number() OVER (PARTITION BY child ORDER BY precedence, parent) AS rank
              FROM memory_edge
             WHERE project = %(project)s AND child = ANY(%(nodes)s)) AS step
     WHERE rank <= (%(fans)s::integer[])[1]
), second AS (
    SELECT child, parent, rank, siblings
      FROM (SELECT child, parent, count(*) OVER (PARTITION BY child) AS siblings,
                   row_number() OVER (PARTITION BY child ORDER BY precedence, parent) AS rank
              FROM memory_edge
             WHERE project = %(project)s
               AND child = ANY(ARRAY(SELECT parent FROM first))) AS step
     WHERE rank <= (%(fans)s::integer[])[2]
), edge AS (
    SELECT * FROM first UNION SELECT * FROM second
)
SELECT edge.child, edge.siblings, node.project, node.sha256, node.level, node.kind, node.source,
       left(node.text, %(most)s) AS text, length(node.text) > %(most)s AS is_excerpt,
       node.position, node.occurred_at
  FROM edge
 CROSS JOIN LATERAL (  -- OFFSET 0 keeps it one look-up an edge; a hash would read the whole project
       SELECT * FROM memory_node WHERE project = %(project)s AND sha256 = edge.parent OFFSET 0
       ) AS node
 ORDER BY edge.child, edge.rank
