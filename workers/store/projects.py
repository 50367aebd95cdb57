"""The projects of this memory."""

from collections.abc import Sequence
from typing import Any

from workers.deadline import Clock, Deadline
from workers.model import Level, Principal, ProjectName
from workers.store.database import Database, Statement
from workers.store.queries import load_queries
from workers.store.remembered import Remembered

QUERIES = load_queries("registry.sql")


class PostgresProjects:
    """What a principal may see of the project table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find_projects(
        self,
        principal: Principal,
        levels: Sequence[Level],
        deadline: Deadline,
        among: Sequence[ProjectName] | None = None,
    ) -> dict[ProjectName, int]:
        """Sorted by name, each with its nodes of these levels."""
        # PostgreSQL takes no U+0000, and no project has one in its name.
        asked = None if among is None else [name for name in among if "\x00" not in name]
        arguments = {"projects": _reach(principal), "among": asked, "levels": list(levels)}
        (rows,) = self._database.read([Statement(QUERIES["find_projects"], arguments)], deadline)
        return {row["project"]: row["nodes"] for row in rows}

    def list_projects(
        self, principal: Principal, deadline: Deadline, only: ProjectName | None = None
    ) -> list[dict[str, Any]]:
        """The table's rows, each with the node counts l0, l1 and l2."""
        arguments = {"projects": [only] if only else _reach(principal)}
        (rows,) = self._database.read([Statement(QUERIES["list_projects"], arguments)], deadline)
        return rows

    def count_content(self, deadline: Deadline) -> tuple[int, int]:
        """How many projects and nodes there are."""
        (rows,) = self._database.read([Statement(QUERIES["count_content"], {})], deadline)
        return rows[0]["projects"], rows[0]["nodes"]

    def count_wordless(self, deadline: Deadline) -> int:
        """Nodes that lexical search does not know yet."""
        (rows,) = self._database.read([Statement(QUERIES["count_wordless"], {})], deadline)
        return int(rows[0]["nodes"])

    def save_project(
        self,
        project: ProjectName,
        title: str | None,
        roots: Sequence[str],
        semantic_weight: float | None,
    ) -> None:
        arguments = {
            "project": project,
            "title": title,
            "roots": list(roots),
            "semantic_weight": semantic_weight,
        }
        with self._database.transaction() as connection:
            connection.execute(QUERIES["save_project"].encode(), arguments)


class ProjectWeights:
    """What each project weighs the meaning with, remembered for a few seconds in this process."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._remembered = Remembered(self._read, clock)

    def weight_of(self, project: ProjectName, deadline: Deadline) -> float | None:
        """The project's own, or None.

        Raises:
            DeadlineExceeded, StoreUnavailable: as any read.
        """
        return (self._remembered.value(deadline) or {}).get(project)

    def _read(self, deadline: Deadline) -> dict[ProjectName, float]:
        (rows,) = self._database.read([Statement(QUERIES["list_weights"], {})], deadline)
        return {row["project"]: row["semantic_weight"] for row in rows}


def _reach(principal: Principal) -> list[ProjectName] | None:
    return None if principal.projects is None else sorted(principal.projects)
