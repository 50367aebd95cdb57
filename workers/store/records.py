"""Single nodes and whole projects: to look at, to forget, to carry elsewhere."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from psycopg import Connection

from workers.deadline import Deadline
from workers.errors import NodeNotFound, ProjectNotFound, SourceNotFound
from workers.ingest.nodes import find_occurrence
from workers.model import Principal, ProjectName, Sha256
from workers.store.database import Database, Statement
from workers.store.queries import load_queries
from workers.store.query_jobs import counted_in
from workers.store.sources import PostgresSources

QUERIES = load_queries("records.sql")

_READ_S = 5.0
_PAGE = 500

Rows = list[dict[str, Any]]


class PostgresRecords:
    """What is stored, one by one. Forgetting is one transaction each.

    Every method raises StoreUnavailable when PostgreSQL does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def load_node(self, project: ProjectName, sha256: Sha256) -> dict[str, Any]:
        """A node whole, with the sha256 of its `parents` and of up to 1,000 `children`.

        Raises:
            NodeNotFound: there is none.
        """
        key = {"project": project, "sha256": sha256}
        names = ("find_node", "parents_of", "children_of")
        found, parents, children = self._read(*((name, key) for name in names))
        if not found:
            raise _no_node(project, sha256)
        return found[0] | {
            "parents": [row["parent"] for row in parents],
            "children": [row["child"] for row in children],
        }

    def list_nodes(self, project: ProjectName, prefix: str, limit: int) -> Rows:
        """The nodes whose sha256 begins so, by their names."""
        arguments = {"project": project, "prefix": prefix, "limit": limit}
        (rows,) = self._read(("find_nodes_by_prefix", arguments))
        return rows

    def list_sources(self, project: ProjectName, after: str, limit: int) -> Rows:
        """One page of a project's sources by name, each with the number of its nodes."""
        arguments = {"project": project, "after": after, "limit": limit}
        (rows,) = self._read(("list_sources", arguments))
        return rows

    def forget_node(self, project: ProjectName, sha256: Sha256, principal: Principal) -> int:
        """Remove a node, and the notes that rested on it alone; returns how many went.

        Raises:
            NodeNotFound: there is none.
        """
        with self._database.transaction() as connection:
            self._lock(connection, project)
            found = _run(connection, "find_node", project=project, sha256=sha256)
            if not found:
                raise _no_node(project, sha256)
            count = self._forget(connection, project, [sha256], "node", principal)
            _forget_title(connection, found[0])
            _run(connection, "drop_bare_sources", project=project, sources=[found[0]["source"]])
            return count

    def forget_source(self, project: ProjectName, source: str, principal: Principal) -> int:
        """Remove what a source brought, and the notes that rested on it alone.

        Raises:
            SourceNotFound: nothing is stored under this name.
        """
        with self._database.transaction() as connection:
            self._lock(connection, project)
            rows = _run(connection, "nodes_of_source", project=project, source=source)
            if not rows:
                raise SourceNotFound("Nothing is stored under this name; list the sources.")
            nodes = [row["sha256"] for row in rows]
            count = self._forget(connection, project, nodes, "source", principal)
            _run(connection, "drop_source", project=project, source=source)
            return count

    def forget_project(self, project: ProjectName, principal: Principal) -> int:
        """Remove a project with everything in it.

        Raises:
            ProjectNotFound: there is none.
        """
        with self._database.transaction() as connection:
            self._lock(connection, project)
            count: int = _run(connection, "count_nodes", project=project)[0]["nodes"]
            _run(connection, "forget_answers_of_project", project=project)
            _run(connection, "forget_feedback_of_project", project=project)
            _run(connection, "cancel_submissions", project=project)
            _run(connection, "forget_submissions", project=project)
            _run(connection, "drop_project", project=project)
            self._remember(connection, project, "project", count, principal)
            return count

    def export(self, project: ProjectName) -> Iterator[str]:
        """A project as JSON lines: itself, its sources, its nodes, parents first, and an end.

        Pages are read one after the other, so what is stored meanwhile may or may not be in it.
        """
        names = ("export_project", "export_sources")
        own, sources = self._read(*((name, {"project": project}) for name in names))
        for kind, rows in (("project", own), ("source", sources)):
            for row in rows:
                yield _line({"type": kind, **row})
        last = {"level": "", "sha256": ""}
        count = 0
        while True:
            arguments = {"project": project, "limit": _PAGE, **last}
            (rows,) = self._read(("export_nodes", arguments))
            for row in rows:
                yield _line(_node_line(project, row))
            count += len(rows)
            if len(rows) < _PAGE:
                break
            last = {"level": rows[-1]["level"], "sha256": rows[-1]["sha256"]}
        yield _line({"type": "end", "nodes": count})

    def _lock(self, connection: Connection[dict[str, Any]], project: ProjectName) -> None:
        if not _run(connection, "lock_project", project=project):
            raise ProjectNotFound(project)

    def _forget(
        self,
        connection: Connection[dict[str, Any]],
        project: ProjectName,
        nodes: Sequence[Sha256],
        what: str,
        principal: Principal,
    ) -> int:
        removed = PostgresSources(connection, project).drop(nodes)
        _run(connection, "forget_answers", nodes=[*removed, counted_in(project)])
        _run(connection, "forget_feedback", project=project, shas=removed)
        _run(connection, "forget_submissions", project=project)
        self._remember(connection, project, what, len(removed), principal)
        return len(removed)

    def _remember(
        self,
        connection: Connection[dict[str, Any]],
        project: ProjectName,
        what: str,
        count: int,
        principal: Principal,
    ) -> None:
        told = {"key_id": principal.key_id, "project": project, "what": what, "count": count}
        _run(connection, "save_forgetting", **told)

    def _read(self, *queries: tuple[str, dict[str, Any]]) -> list[Rows]:
        statements = [Statement(QUERIES[name], arguments) for name, arguments in queries]
        return self._database.read(statements, Deadline.after(_READ_S))


def _run(connection: Connection[dict[str, Any]], name: str, **arguments: Any) -> Rows:
    cursor = connection.execute(QUERIES[name].encode(), arguments)
    return cursor.fetchall() if cursor.description else []


def _forget_title(connection: Connection[dict[str, Any]], node: dict[str, Any]) -> None:
    """A session is often called by the first words of a turn; they go with it."""
    title = node["title"]
    words = " ".join((title or "").split()).rstrip("…").rstrip()
    if words and words in " ".join(node["text"].split()):
        told = {"project": node["project"], "source": node["source"], "title": title}
        _run(connection, "clear_title", **told)


def _no_node(project: ProjectName, sha256: Sha256) -> NodeNotFound:
    return NodeNotFound(f"No node {sha256[:100]!r} in project {project!r}.")


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, default=datetime.isoformat, ensure_ascii=False) + "\n"


def _node_line(project: ProjectName, row: dict[str, Any]) -> dict[str, Any]:
    occurrence = _occurrence(project, row)
    embedding, model = row.pop("embedding"), row.pop("embedding_model")
    # An empty span is not none: only what an import takes for left out is left out.
    told = {
        name: value
        for name, value in row.items()
        if value is not None and (value not in ([], {}) or name == "span")
    }
    told["id"] = told.pop("sha256")
    if embedding is not None:
        # The shortest decimals that are read back as the same 32 bits.
        numbers = [float(str(number)) for number in embedding.to_numpy().astype(np.float32)]
        told |= {"embedding": numbers, "embedding_model": model}
    return {"type": "node", "occurrence": occurrence, **told}


def _occurrence(project: ProjectName, row: dict[str, Any]) -> int:
    """Which of its equals in its source a node is: the one number that its name does not tell."""
    same = (project, row["level"], row["kind"], row["source"], row["text"])
    return find_occurrence(*same, row["sha256"]) or 0
