"""Recall by meaning and by words in one statement, where PostgreSQL has both."""

from collections.abc import Iterable

from workers.deadline import Deadline
from workers.engines.search_text import SearchText
from workers.model import (
    BM25_HALF,
    Candidate,
    Found,
    Query,
    Reads,
    Sha256,
    Vector,
    Weights,
)
from workers.store.database import Database, Rows, Statement
from workers.store.lexical import KEPT, WEIGHED, asking
from workers.store.queries import load_queries
from workers.store.search import LEVELS, QUERIES, ProjectSearch, read_of, reading

RECALL = "\n".join(
    (WEIGHED, ",", QUERIES["nearest_exact"], load_queries("hybrid.sql")["both"], QUERIES["read"])
)


class ProjectHybrid:
    """Reads of one project. Implements `workers.ports.BothLegs`."""

    def __init__(self, database: Database, nodes: ProjectSearch, search_text: SearchText) -> None:
        self._database = database
        self._nodes = nodes
        self._search_text = search_text

    def suits(self, query: Query, deadline: Deadline) -> bool:
        """A large project is searched by its vector index, and filters choose another plan."""
        return not query.filters and not self._nodes.is_large(query.levels, deadline)

    def recall(
        self,
        query: Query,
        vector: Vector,
        weights: Weights,
        most: int | None,
        reads: Reads,
        deadline: Deadline,
    ) -> Found:
        terms = self._search_text.query_terms(query.text)
        arguments = {
            **asking(self._nodes.project, terms, query.levels, query.recall_depth),
            **self._nodes.key,
            **reading(reads),
            "query": vector,
            "kept": max(KEPT, 2 * query.recall_depth),
            "semantic_weight": weights.semantic,
            "lexical_weight": weights.lexical,
            "half": BM25_HALF,
            "most": most,
        }
        statement = Statement(RECALL, arguments)
        (rows,) = self._database.read([statement], deadline, "force_generic_plan")
        return _found(rows, reads)


def _found(rows: Rows, reads: Reads) -> Found:
    documents = rows[0]["documents"]
    if rows[0]["sha256"] is None:
        return Found((), 0, documents, "exact")
    candidates = [
        Candidate(
            row["sha256"], LEVELS[row["level"]], row["distance"], bm25=row["bm25"], **read_of(row)
        )
        for row in rows
    ]
    return Found(
        candidates,
        rows[0]["found"],
        documents,
        "exact",
        read=frozenset() if reads is Reads.NOTHING else frozenset(c.sha256 for c in candidates),
        nearest=_in_order((row["distance"], row["sha256"]) for row in rows if row["is_near"]),
        matched=_in_order((row["match_rank"], row["sha256"]) for row in rows if row["match_rank"]),
    )


def _in_order(ranked: Iterable[tuple[float, Sha256]]) -> list[Sha256]:
    """The candidates of one leg in its order."""
    return [sha256 for _, sha256 in sorted(ranked)]
