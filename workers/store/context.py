"""What stands beside a hit in its session or document."""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.deadline import Deadline
from workers.model import Context, Kind, Level, Neighbour, NodeKey
from workers.store.database import Database, Statement
from workers.store.queries import load_queries

QUERIES = load_queries("context.sql")

CHARACTERS = 1_000  # of each neighbour's text that an answer carries


class PostgresContexts:
    """Implements `app.context_service.Contexts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load_contexts(
        self, hits: Sequence[NodeKey], count: int, deadline: Deadline
    ) -> dict[NodeKey, Context]:
        """Up to `count` neighbours on each side, for all hits in one statement.

        Raises:
            DeadlineExceeded: there was too little time.
            StoreUnavailable: PostgreSQL does not answer.
        """
        arguments = {
            "projects": [project for project, _ in hits],
            "shas": [sha256 for _, sha256 in hits],
            "count": count,
            "characters": CHARACTERS,
        }
        statement = Statement(QUERIES["neighbours"], arguments)
        (rows,) = self._database.read([statement], deadline, "force_generic_plan")
        sides: dict[tuple[NodeKey, bool], list[Neighbour]] = {}
        for row in rows:
            side = ((row["project"], row["hit"]), row["is_next"])
            sides.setdefault(side, []).append(_neighbour(row))
        return {
            key: Context(tuple(sides.get((key, False), ())), tuple(sides.get((key, True), ())))
            for key in hits
        }


def _neighbour(row: Mapping[str, Any]) -> Neighbour:
    return Neighbour(
        project=row["project"],
        sha256=row["sha256"],
        level=Level(row["level"]),
        kind=Kind(row["kind"]),
        source=row["source"],
        position=row["position"],
        title=row["title"],
        text=row["text"],
        timestamp=row["occurred_at"],
        tags=tuple(row["tags"]),
        is_excerpt=row["is_excerpt"],
    )
