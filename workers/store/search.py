"""One project's nodes, as the query pipeline reads them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from workers.deadline import Deadline
from workers.model import (
    Candidate,
    Filters,
    Kind,
    Level,
    Loaded,
    Node,
    Parent,
    ProjectName,
    Reads,
    Recalled,
    Sha256,
    Step,
    Vector,
)
from workers.ports import NO_FILTERS
from workers.store.database import Database, Rows, Statement
from workers.store.filters import filtered, filtering
from workers.store.queries import load_queries
from workers.store.vector_indexes import IndexedProjects

QUERIES = load_queries("search.sql")
_MEASURED = QUERIES["measured"] + QUERIES["read"]
_LOADED = QUERIES["hits"] + QUERIES["loaded"]
RECALL_EXACT = "WITH " + QUERIES["nearest_exact"] + _MEASURED
RECALL_HNSW = "WITH " + QUERIES["nearest_hnsw"] + _MEASURED
RECALL_FILTERED = filtered("WITH " + QUERIES["nearest_filtered"] + _MEASURED)
RECALL_AND_LOAD = "WITH " + QUERIES["nearest_exact"] + _LOADED
RECALL_FILTERED_AND_LOAD = filtered("WITH " + QUERIES["nearest_filtered"] + _LOADED)
READ = QUERIES["chosen"] + QUERIES["read"]
LOAD = QUERIES["given"] + QUERIES["loaded"]

HIT_CHARACTERS = 20_000  # of a hit's text that an answer carries
PARENT_CHARACTERS = 1_000  # of each parent's
# A look into a dictionary costs a tenth of making an enumeration's member by its value.
LEVELS: Mapping[str, Level] = {level.value: level for level in Level}
_KINDS: Mapping[str, Kind] = {kind.value: kind for kind in Kind}
EVIDENCE = 2  # turns that a note rests on whose tokens the reranker reads with its own


class ProjectSearch:
    """Reads of one project with vectors of one model. Implements `workers.ports.Searchable`."""

    def __init__(
        self,
        database: Database,
        project: ProjectName,
        model: int,
        token_model: str | None,
        indexed: IndexedProjects,
        exact_rows: int,
    ) -> None:
        self._database = database
        self.project = project
        self.key = {"project": project, "model": model, "token_model": token_model}
        self._indexed = indexed
        self._exact_rows = exact_rows

    def recall(
        self,
        query: Vector,
        levels: Sequence[Level],
        depth: int,
        also: Collection[Sha256],
        reads: Reads,
        deadline: Deadline,
        filters: Filters = NO_FILTERS,
    ) -> Recalled:
        """Exact while that is quick; by the index, and exact after all if that found too few.

        Never by the index with filters: it might lose all that pass.
        """
        arguments = self._looking(query, levels, depth) | reading(reads) | {"also": list(also)}
        if filters:
            rows = self._read_filtered(RECALL_FILTERED, arguments, filters, deadline)
            return _recalled("exact", rows)
        share = self._share_if_large(levels, deadline)
        if share is not None:
            recalled = self._recall_hnsw(arguments, len(query), depth, share, deadline)
            if recalled.found >= min(depth, recalled.documents):
                return recalled
        statement = Statement(RECALL_EXACT, arguments)
        (rows,) = self._database.read([statement], deadline, "force_generic_plan")
        return _recalled("exact", rows)

    def recall_and_load(
        self,
        query: Vector,
        levels: Sequence[Level],
        depth: int,
        hits: int,
        fans: Sequence[int],
        deadline: Deadline,
        filters: Filters = NO_FILTERS,
    ) -> tuple[Recalled, Loaded]:
        """In one statement, but for a large project without filters."""
        if not filters and self._share_if_large(levels, deadline) is not None:
            recalled = self.recall(query, levels, depth, (), Reads.NOTHING, deadline)
            best = recalled.candidates[:hits]
            return recalled, self.load([one.sha256 for one in best], fans, deadline)
        arguments = self._looking(query, levels, depth) | {"hits": hits} | _loading(fans)
        if filters:
            rows = self._read_filtered(RECALL_FILTERED_AND_LOAD, arguments, filters, deadline)
        else:
            statement = Statement(RECALL_AND_LOAD, arguments)
            (rows,) = self._database.read([statement], deadline, "force_generic_plan")
        best = tuple(
            Candidate(row["sha256"], Level(row["level"]), row["distance"])
            for row in _nodes_of(rows)
        )
        found, documents = rows[0]["found"], rows[0]["documents"]
        return Recalled(best, found, documents, "exact"), _loaded(rows)

    def read(
        self, candidates: Sequence[Candidate], reads: Reads, deadline: Deadline
    ) -> list[Candidate]:
        shas = [candidate.sha256 for candidate in candidates]
        statement = Statement(READ, self.key | reading(reads) | {"nodes": shas})
        (rows,) = self._database.read([statement], deadline, "force_generic_plan")
        return [
            candidate._replace(**read_of(row))
            for candidate, row in zip(candidates, rows, strict=True)
        ]

    def read_evidence(self, candidates: Sequence[Candidate], deadline: Deadline) -> list[Candidate]:
        asked = {"nodes": [one.sha256 for one in candidates], "most": EVIDENCE}
        statement = Statement(QUERIES["evidence"], self.key | asked)
        (rows,) = self._database.read([statement], deadline, "force_generic_plan")
        found = {row["child"]: row for row in rows}
        return [
            _with_evidence(one, found[one.sha256]) if one.sha256 in found else one
            for one in candidates
        ]

    def load(self, nodes: Sequence[Sha256], fans: Sequence[int], deadline: Deadline) -> Loaded:
        statement = Statement(LOAD, self.key | {"nodes": list(nodes)} | _loading(fans))
        (rows,) = self._database.read([statement], deadline, "force_generic_plan")
        return _loaded(rows)

    def _read_filtered(
        self, query: str, arguments: dict[str, Any], filters: Filters, deadline: Deadline
    ) -> Rows:
        statement = Statement(query, arguments | filtering(filters), is_planned_anew=True)
        (rows,) = self._database.read([statement], deadline)
        return rows

    def _looking(self, query: Vector, levels: Sequence[Level], depth: int) -> dict[str, Any]:
        return self.key | {"query": query, "levels": list(levels), "depth": depth}

    def is_large(self, levels: Sequence[Level], deadline: Deadline) -> bool:
        """Whether so many nodes are on these levels that an index searches them."""
        return self._share_if_large(levels, deadline) is not None

    def _share_if_large(self, levels: Sequence[Level], deadline: Deadline) -> float | None:
        """Where the index is to be used, the share of the project's nodes on these levels."""
        rows = self._indexed.rows_of(self.project, deadline)
        if rows is None:
            return None
        asked = sum(rows.get(level, 0) for level in levels)
        return asked / max(1, sum(rows.values())) if asked > self._exact_rows else None

    def _recall_hnsw(
        self,
        arguments: dict[str, Any],
        dimension: int,
        depth: int,
        share: float,
        deadline: Deadline,
    ) -> Recalled:
        """share: of the project's nodes that are on the asked levels, in (0, 1]."""
        settings = {
            "ef_search": str(min(1000, max(400, round(2 * depth / share)))),
            "max_scan_tuples": str(min(200_000, max(20_000, round(4 * depth / share)))),
        }
        query = RECALL_HNSW.replace("DIMENSION", str(dimension))
        statements = [
            Statement(QUERIES["hnsw_settings"], settings),
            Statement(query, arguments, is_planned_anew=True),
        ]
        _, rows = self._database.read(statements, deadline)
        return _recalled("hnsw", rows)


def _loading(fans: Sequence[int]) -> dict[str, Any]:
    return {
        "fans": list(fans),
        "hit_characters": HIT_CHARACTERS,
        "parent_characters": PARENT_CHARACTERS,
    }


def reading(reads: Reads) -> dict[str, Any]:
    """What search.sql's `read` takes."""
    return {
        "has_length": reads is not Reads.NOTHING,
        "has_tokens": reads is Reads.TOKENS,
        "has_text": reads is Reads.TEXT,
    }


def read_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a reranker reads of a candidate."""
    return {
        "text_length": row["text_length"] or 0,
        "tokens": row["tokens"],
        "text": row["text"],
        "kind": _KINDS.get(row["kind"]),
        "source": row["source"],
        "position": row["position"],
    }


def _with_evidence(candidate: Candidate, evidence: Mapping[str, Any]) -> Candidate:
    return candidate._replace(
        tokens=(candidate.tokens or b"") + evidence["tokens"],
        text_length=candidate.text_length + evidence["text_length"],
    )


def _recalled(plan: str, rows: Rows) -> Recalled:
    found = [row for row in rows if row["sha256"] is not None]
    candidates = tuple(
        Candidate(row["sha256"], LEVELS[row["level"]], row["distance"], **read_of(row))
        for row in found
    )
    nearest = sum(row["is_near"] for row in found)
    return Recalled(candidates, nearest, rows[0]["documents"], plan)


def _loaded(rows: Rows) -> Loaded:
    steps = [
        Step(row["child"], _parent(row), row["siblings"])
        for row in rows
        if row["child"] is not None
    ]
    return Loaded({row["sha256"]: _node(row) for row in _nodes_of(rows)}, steps)


def _nodes_of(rows: Rows) -> list[dict[str, Any]]:
    """Of rows of `loaded`, those of the hits themselves; of one that is not there, all is NULL."""
    return [row for row in rows if row["child"] is None and row["sha256"] is not None]


def _node(row: dict[str, Any]) -> Node:
    return Node(
        project=row["project"],
        sha256=row["sha256"],
        level=Level(row["level"]),
        kind=Kind(row["kind"]),
        source=row["source"],
        text=row["text"],
        position=row["position"],
        occurred_at=row["occurred_at"],
        title=row["title"],
        breadcrumb=tuple(row["breadcrumb"]),
        span=row["span"],
        standing_id=row["standing_id"],
        tags=tuple(row["tags"]),
        metadata=row["metadata"],
        is_excerpt=row["is_excerpt"],
    )


def _parent(row: dict[str, Any]) -> Parent:
    return Parent(
        level=Level(row["level"]),
        kind=Kind(row["kind"]),
        sha256=row["sha256"],
        source=row["source"],
        text=row["text"],
        turn=row["position"],
        timestamp=row["occurred_at"],
        is_excerpt=row["is_excerpt"],
    )
