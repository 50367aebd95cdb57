"""One project's nodes, as the query pipeline reads them."""

from collections.abc import Sequence
from typing import Any

from psycopg.rows import dict_row

from workers.deadline import Deadline
from workers.model import Candidate, Kind, Level, Node, ProjectName, Sha256, Step, Vector
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

    def count_nodes(self, levels: Sequence[Level], deadline: Deadline) -> int:
        (row,) = self._rows("count_nodes", deadline, levels=list(levels))
        return int(row["nodes"])

    def recall(
        self,
        query: Vector,
        levels: Sequence[Level],
        depth: int,
        tokens_for: int,
        deadline: Deadline,
    ) -> list[Candidate]:
        rows = self._rows(
            "recall_exact",
            deadline,
            query=query,
            levels=list(levels),
            depth=depth,
            tokens_for=tokens_for,
        )
        return [
            Candidate(**{**row, "level": Level(row["level"]), "kind": Kind(row["kind"])})
            for row in rows
        ]

    def load_nodes(self, nodes: Sequence[Sha256], deadline: Deadline) -> dict[Sha256, Node]:
        rows = self._rows("load_nodes", deadline, nodes=list(nodes))
        return {row["sha256"]: _node(row) for row in rows}

    def walk(self, nodes: Sequence[Sha256], hops: int, fan: int, deadline: Deadline) -> list[Step]:
        rows = self._rows("walk_edges", deadline, nodes=list(nodes), hops=hops, fan=fan)
        return [
            Step(child=row.pop("child"), siblings=row.pop("siblings"), parent=_node(row))
            for row in rows
        ]

    def _rows(self, name: str, deadline: Deadline, **arguments: Any) -> list[dict[str, Any]]:
        return self._database.read(QUERIES[name], {**self._key, **arguments}, dict_row, deadline)


def _node(row: dict[str, Any]) -> Node:
    values = {**row, "level": Level(row["level"]), "kind": Kind(row["kind"])}
    values |= {name: tuple(row[name]) for name in ("breadcrumb", "tags") if name in row}
    return Node(**values)
