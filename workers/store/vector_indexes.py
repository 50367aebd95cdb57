"""Vector indexes of large projects: one partial HNSW index each, built while queries run.

One index over all projects would lose hits: most of a question's neighbours then belong to other
projects and are filtered away only after the index has returned them. Source: Malkov and Yashunin,
2018; pgvector's iterative scans.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from psycopg import sql

from workers.deadline import Clock, Deadline
from workers.model import Level, ProjectName
from workers.store.database import Database, Statement
from workers.store.queries import load_queries
from workers.store.remembered import Remembered

QUERIES = load_queries("vector_index.sql")

PREFIX = "node_vector_hnsw_"
M = 16
EF_CONSTRUCTION = 128
MOST_DIMENSIONS = 2000  # of a vector that pgvector can index
_READ_S = 2.0
_LOCK = 0x706F6978  # "poix": one build at a time in a whole database


class IndexedProjects:
    """Which projects have an index, remembered for a few seconds in this process."""

    def __init__(self, database: Database, model: int, clock: Clock) -> None:
        self._database = database
        self._model = model
        self._remembered = Remembered(self._read, clock)

    def rows_of(self, project: ProjectName, deadline: Deadline) -> Mapping[Level, int] | None:
        """The project's nodes by level if it has an index, else None.

        Raises:
            DeadlineExceeded, StoreUnavailable: as any read.
        """
        return (self._remembered.value(deadline) or {}).get(project)

    def _read(self, deadline: Deadline) -> dict[ProjectName, dict[Level, int]]:
        statement = Statement(QUERIES["indexed_projects"], {"model": self._model})
        (rows,) = self._database.read([statement], deadline)
        found: dict[ProjectName, dict[Level, int]] = {}
        for row in rows:
            found.setdefault(row["project"], {})[Level(row["level"])] = row["nodes"]
        return found


class VectorIndexes:
    """Building and dropping them. For upkeep; no query waits for any of it."""

    def __init__(self, database: Database, model: int, dimension: int) -> None:
        self._database = database
        self._model = model
        self._dimension = dimension

    def projects_to_index(self, exact_rows: int, limit: int = 10) -> list[ProjectName]:
        """Projects that have outgrown exact recall; none where no index can hold the vectors."""
        if self._dimension > MOST_DIMENSIONS:
            return []
        arguments = {"model": self._model, "exact_rows": exact_rows, "limit": limit}
        return [row["project"] for row in self._rows("projects_to_index", arguments)]

    def build(self, project: ProjectName) -> bool:
        """Build a project's index, or find it built. False: another process is building one.

        CONCURRENTLY, so that reads and writes of every project go on meanwhile.
        """
        name = index_name(project, self._model)
        with self._database.alone(_LOCK) as connection:
            if connection is None:
                return False
            valid = connection.execute(QUERIES["index_is_valid"].encode(), {"name": name})
            found = valid.fetchone()
            if found is not None and not found["is_valid"]:
                connection.execute(_drop(name))
                found = None
            if found is None:
                connection.execute(self._create(name, project))
            arguments = {"project": project, "model": self._model, "name": name}
            connection.execute(QUERIES["save_index"].encode(), arguments)
        return True

    def drop_orphans(self) -> list[str]:
        """Drop indexes that belong to no project any more; returns their names."""
        with self._database.alone(_LOCK) as connection:
            if connection is None:
                return []
            rows = connection.execute(QUERIES["orphaned_indexes"].encode(), {"prefix": PREFIX})
            names = [row["name"] for row in rows.fetchall()]
            for name in names:
                connection.execute(_drop(name))
        return names

    def _create(self, name: str, project: ProjectName) -> sql.Composed:
        statement = sql.SQL(
            "CREATE INDEX CONCURRENTLY {name} ON node_vector"
            " USING hnsw ((embedding::vector({dimension})) vector_cosine_ops)"
            " WITH (m = {m}, ef_construction = {ef_construction})"
            " WHERE project = {project} AND model = {model}"
        )
        return statement.format(
            name=sql.Identifier(name),
            dimension=sql.Literal(self._dimension),
            m=sql.Literal(M),
            ef_construction=sql.Literal(EF_CONSTRUCTION),
            project=sql.Literal(project),
            model=sql.SQL(str(self._model)),
        )

    def _rows(self, name: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        statement = Statement(QUERIES[name], arguments)
        return self._database.read([statement], Deadline.after(_READ_S))[0]


def index_name(project: ProjectName, model: int) -> str:
    """A name of bounded length, since PostgreSQL cuts identifiers at 63 bytes."""
    digest = hashlib.sha256(project.encode()).hexdigest()[:24]
    return f"{PREFIX}{model}_{digest}"


def _drop(name: str) -> sql.Composed:
    return sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(name))
