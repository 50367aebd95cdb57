"""One project's nodes, as the query pipeline reads them."""

from collections.abc import Sequence
from typing import Any

from workers.deadline import Deadline
from workers.model import (
    Candidate,
    Kind,
    Level,
    Loaded,
    Node,
    ProjectName,
    Recalled,
    Sha256,
    Step,
    Vector,
)
from workers.store.database import Database, Statement
from workers.store.queries import load_queries
from workers.store.vector_indexes import IndexedProjects

QUERIES = load_queries("search.sql")

HIT_CHARACTERS = 20_000  # of a hit's text that an answer carries
PARENT_CHARACTERS = 1_000  # of each parent's


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
        self._project = project
        self._key = {"project": project, "model": model, "token_model": token_model}
        self._indexed = indexed
        self._exact_rows = exact_rows

    def recall(
        self,
        query: Vector,
        levels: Sequence[Level],
        depth: int,
        tokens_for: int,
        has_text: bool,
        deadline: Deadline,
    ) -> Recalled:
        """Exact while that is quick; by the index, and exact after all if that found too few."""
        looked = {"query": query, "levels": list(levels), "depth": depth}
        arguments = self._key | looked | {"tokens_for": tokens_for, "has_text": has_text}
        rows = self._indexed.rows_of(self._project, deadline)
        if rows is not None:
            asked = sum(rows.get(level, 0) for level in levels)
            if asked > self._exact_rows:
                share = asked / max(1, sum(rows.values()))
                recalled = self._recall_hnsw(arguments, len(query), depth, share, deadline)
                if len(recalled.candidates) >= min(depth, recalled.documents):
                    return recalled
        return self._recalled("exact", [Statement(QUERIES["recall_exact"], arguments)], deadline)

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
        query = QUERIES["recall_hnsw"].replace("DIMENSION", str(dimension))
        statements = [
            Statement(QUERIES["hnsw_settings"], settings),
            Statement(query, arguments, is_planned_anew=True),
        ]
        return self._recalled("hnsw", statements, deadline)

    def _recalled(self, plan: str, statements: list[Statement], deadline: Deadline) -> Recalled:
        """Run these; the last one recalls."""
        count = Statement(QUERIES["count_nodes"], statements[-1].arguments)
        *_, rows, counted = self._database.read([*statements, count], deadline)
        candidates = tuple(_candidate(row) for row in rows)
        return Recalled(candidates, int(counted[0]["nodes"]), plan)

    def load(
        self,
        nodes: Sequence[Sha256],
        climbing: Sequence[Sha256],
        fans: Sequence[int],
        deadline: Deadline,
    ) -> Loaded:
        walk = self._key | {"nodes": list(climbing), "fans": list(fans), "most": PARENT_CHARACTERS}
        load = self._key | {"nodes": list(nodes), "most": HIT_CHARACTERS}
        statements = [
            Statement(QUERIES["load_nodes"], load),
            Statement(QUERIES["walk_edges"], walk),
        ]
        wanted = statements if climbing else statements[:1]
        found, *walked = self._database.read(wanted, deadline, "force_generic_plan")
        steps = [
            Step(child=row.pop("child"), siblings=row.pop("siblings"), parent=_node(row))
            for rows in walked
            for row in rows
        ]
        return Loaded({row["sha256"]: _node(row) for row in found}, steps)


def _candidate(row: dict[str, Any]) -> Candidate:
    return Candidate(**row | {"level": Level(row["level"]), "kind": Kind(row["kind"])})


def _node(row: dict[str, Any]) -> Node:
    values = {**row, "level": Level(row["level"]), "kind": Kind(row["kind"])}
    values |= {name: tuple(row[name]) for name in ("breadcrumb", "tags") if name in row}
    return Node(**values)
