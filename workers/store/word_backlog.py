"""The nodes whose words an index outside lacks, to be worked off by whoever writes to it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from workers.deadline import Deadline
from workers.model import NodeKey, ProjectName
from workers.store.database import Database, Rows, Statement
from workers.store.queries import load_queries

QUERIES = load_queries("word_backlog.sql")

WRITER_LOCK = 0x706F6979  # "poiy": one process at a time writes to the index


@dataclass(frozen=True, slots=True)
class Changed:
    """A node on the list, as it is stored now."""

    key: NodeKey
    change: int
    fields: dict[str, Any] | None  # what is searched of it; None: nothing (any more)


class PostgresWordBacklog:
    """The list. The caller owns the connection, outside of a transaction."""

    def __init__(self, connection: Connection[dict[str, Any]]) -> None:
        self._connection = connection

    def find_index(self) -> str | None:
        """The name of the index that follows."""
        rows = self._run("find_index")
        return rows[0]["name"] if rows else None

    def begin(self, name: str) -> None:
        """From now on this index follows: each node that is changed is listed, and every other one.

        Writers are held up until those under way have ended; then a project at a time is listed.
        """
        with self._connection.transaction():
            self._run("lock_out_writers")
            self._run("save_index", name=name)
        for row in self._run("list_projects"):
            self._run("list_nodes", project=row["project"])
        self._run("save_listed")

    def end(self) -> None:
        """No index follows any more."""
        with self._connection.transaction():
            self._run("lock_out_writers")
            self._run("drop_index")

    def list_again(self, project: ProjectName) -> None:
        """List every node of a project."""
        self._run("list_nodes", project=project)

    def next_number(self) -> int:
        """Larger than that of any change or write before."""
        number: int = self._run("next_number")[0]["number"]
        return number

    def take(self, limit: int) -> list[Changed]:
        """The nodes that have waited longest; they stay on the list."""
        return [_changed(row) for row in self._run("take_changed", limit=limit)]

    def settle(self, done: Sequence[Changed], later: Collection[NodeKey]) -> None:
        """Take nodes off the list, unless they were changed since; put others to its end."""
        self._run(
            "drop_listed",
            projects=[one.key[0] for one in done],
            nodes=[one.key[1] for one in done],
            changes=[one.change for one in done],
        )
        if later:
            self._run(
                "put_off", projects=[key[0] for key in later], nodes=[key[1] for key in later]
            )

    def is_complete(self) -> bool:
        """Whether the index has every node that was there when it was begun."""
        is_complete: bool = self._run("is_complete")[0]["is_complete"]
        return is_complete

    def _run(self, query: str, /, **arguments: Any) -> Rows:
        # Not prepared: a plan for any limit would read every node's terms for a few of them.
        cursor = self._connection.execute(QUERIES[query].encode(), arguments, prepare=False)
        return cursor.fetchall() if cursor.description else []


def count_listed(
    database: Database,
    deadline: Deadline,
    project: ProjectName | None = None,
    until: int | None = None,
) -> int:
    """How many nodes of a project, or of all, the index lacks: those listed up to a change, or all.

    Raises:
        DeadlineExceeded, StoreUnavailable: as any read.
    """
    arguments = {"project": project, "until": until}
    (rows,) = database.read([Statement(QUERIES["count_listed"], arguments)], deadline)
    count: int = rows[0]["nodes"]
    return count


def _changed(row: dict[str, Any]) -> Changed:
    key, change = (row.pop("project"), row.pop("sha256")), row.pop("change")
    if row["level"] is None:
        return Changed(key, change, None)
    # A node may have no term at all; it is counted all the same.
    return Changed(key, change, row | {"terms": row["terms"] or ""})
