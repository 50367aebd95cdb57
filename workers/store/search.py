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
from workers.store.database import Database
from workers.store.queries import load_queries

QUERIES = load_queries("search.sql")


class ProjectSearch:
    """Reads of one project with vectors of one model. Implements `workers.ports.Searchable`."""

    def __init__(
        self, database: Database, project: ProjectName, model: int, token_model: str | None
    ) -> None:
        self._database = database
        self._key = {"project": project, "model": model, "token_model": token_model}

    def recall(
        self,
        query: Vector,
        levels: Sequence[Level],
        depth: int,
        tokens_for: int,
        has_text: bool,
        deadline: Deadline,
    ) -> Recalled:
        looked = {"query": query, "levels": list(levels), "depth": depth}
        carried = {"tokens_for": tokens_for, "has_text": has_text}
        rows, counted = self._database.read(
            [
                (QUERIES["recall_exact"], self._key | looked | carried),
                (QUERIES["count_nodes"], self._key | looked),
            ],
            deadline,
        )
        return Recalled(
            tuple(_candidate(row) for row in rows), int(counted[0]["nodes"]), plan="exact"
        )

    def load(
        self,
        nodes: Sequence[Sha256],
        climbing: Sequence[Sha256],
        hops: int,
        fan: int,
        deadline: Deadline,
    ) -> Loaded:
        walk = self._key | {"nodes": list(climbing), "hops": hops, "fan": fan}
        statements = [
            (QUERIES["load_nodes"], self._key | {"nodes": list(nodes)}),
            (QUERIES["walk_edges"], walk),
        ]
        found, *walked = self._database.read(statements if climbing else statements[:1], deadline)
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
