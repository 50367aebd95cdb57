"""Writing nodes: a node, its vectors, words and edges together, or nothing of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from psycopg import Connection
from psycopg.types.json import Jsonb

from workers.engines.search_text import SearchText
from workers.model import (
    Encoding,
    Level,
    Node,
    NodeKey,
    ProjectName,
    Sha256,
    Vector,
)
from workers.store.lexical import PostgresTerms
from workers.store.queries import load_queries

QUERIES = load_queries("write.sql")

Rows = Connection[dict[str, Any]]


class PostgresNodes:
    """The node tables. The caller owns the connection and its transaction."""

    def __init__(
        self, connection: Rows, model: int, token_model: str | None, search_text: SearchText
    ) -> None:
        self._connection = connection
        self._terms = PostgresTerms(connection, search_text)
        self._model = model
        self._token_model = token_model

    def find_nodes(
        self, project: ProjectName, nodes: Iterable[Sha256]
    ) -> dict[Sha256, tuple[Level, bool]]:
        """Those that exist: their level, and whether they have a vector of this model."""
        arguments = {"project": project, "nodes": list(nodes), "model": self._model}
        rows = self._connection.execute(QUERIES["find_nodes"].encode(), arguments)
        return {row["sha256"]: (Level(row["level"]), row["has_vector"]) for row in rows}

    def claim_projects(self, projects: Iterable[ProjectName]) -> None:
        """Create what is missing of them, and be their only writer until the transaction ends."""
        # Sorted, as every multi-row lock of ours: two writers then wait instead of deadlocking.
        names = sorted(set(projects))
        arguments = {"projects": names}
        locked = 0
        while locked < len(names):  # one that is just being forgotten is there, and then is not
            self._connection.execute(QUERIES["save_projects"].encode(), arguments)
            cursor = self._connection.execute(QUERIES["lock_projects"].encode(), arguments)
            locked = cursor.rowcount

    def save(
        self, nodes: Sequence[Node], encodings: Mapping[NodeKey, Encoding]
    ) -> dict[NodeKey, str]:
        """Insert or update nodes, their words, their edges, and new vectors where there are some.

        A vector given with a node wins over the engine's. A new node that has one and no encoding
        is left to be prepared for the reranker later.

        Returns:
            Of each node: stored, updated or unchanged.
        """
        columns = Jsonb([_columns(node) for node in nodes])
        rows = self._rows("save_nodes", {"nodes": columns})
        results = {(row["project"], row["sha256"]): str(row["result"]) for row in rows}
        self._terms.save([node for node in nodes if results[node.key] != "unchanged"])
        changed = self._save_edges(nodes) | self._save_vectors(nodes, encodings)
        self.save_tokens({key: one.tokens for key, one in encodings.items() if one.tokens})
        unprepared = [
            node for node in nodes if node.key not in encodings and results[node.key] == "stored"
        ]
        if unprepared and self._token_model is not None:
            self._rows("save_backlog", _keys(unprepared))
        return {
            key: "updated" if result == "unchanged" and key in changed else result
            for key, result in results.items()
        }

    def take_backlog(self, limit: int) -> list[tuple[NodeKey, str]]:
        """Nodes that wait to be prepared, with their texts; they are off the list on commit."""
        rows = self._rows("take_backlog", {"limit": limit})
        return [((row["project"], row["sha256"]), row["text"]) for row in rows]

    def _save_edges(self, nodes: Sequence[Node]) -> set[NodeKey]:
        edges = [
            (node.project, node.sha256, parent, precedence)
            for node in nodes
            for precedence, parent in enumerate(node.parents, start=1)
        ]
        names = ("edge_projects", "children", "parents", "precedences")
        columns = zip(*edges, strict=True) if edges else ([], [], [], [])
        given = {name: list(column) for name, column in zip(names, columns, strict=True)}
        rows = self._rows("save_edges", _keys(nodes) | given)
        return {(row["project"], row["sha256"]) for row in rows}

    def _save_vectors(
        self, nodes: Sequence[Node], encodings: Mapping[NodeKey, Encoding]
    ) -> set[NodeKey]:
        vectors = [
            {
                "project": node.project,
                "sha256": node.sha256,
                "model": self._model,
                "level": node.level.value,
                "embedding": _vector(node, encodings.get(node.key)),
            }
            for node in nodes
            if node.embedding is not None or node.key in encodings
        ]
        return self._each("save_vector", vectors)

    def save_tokens(self, tokens: Mapping[NodeKey, bytes]) -> None:
        arguments = [
            {
                "project": project,
                "sha256": sha256,
                "token_model": self._token_model,
                "tokens": own,
            }
            for (project, sha256), own in tokens.items()
        ]
        self._each("save_tokens", arguments)

    def _rows(self, name: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        cursor = self._connection.execute(QUERIES[name].encode(), arguments)
        return cursor.fetchall() if cursor.description else []

    def _each(self, name: str, arguments: Sequence[Mapping[str, Any]]) -> set[NodeKey]:
        """Run a statement for each of these, all on their way at once; the keys they return."""
        if not arguments:
            return set()
        cursor = self._connection.cursor(binary=True)
        cursor.executemany(QUERIES[name].encode(), arguments, returning=True)
        found = {(row["project"], row["sha256"]) for row in cursor}
        while cursor.nextset():
            found |= {(row["project"], row["sha256"]) for row in cursor}
        return found


def _keys(nodes: Sequence[Node]) -> dict[str, list[str]]:
    return {
        "projects": [node.project for node in nodes],
        "nodes": [node.sha256 for node in nodes],
    }


def _vector(node: Node, encoding: Encoding | None) -> Vector:
    if node.embedding is not None:
        return np.asarray(node.embedding, dtype=np.float32)
    assert encoding is not None  # noqa: S101  # the caller chose nodes that have one of both
    return encoding.vector


def _columns(node: Node) -> dict[str, Any]:
    """A node as `save_nodes` reads it. What is not there is left out, and so becomes NULL."""
    columns = {
        "project": node.project,
        "sha256": node.sha256,
        "level": node.level.value,
        "kind": node.kind.value,
        "source": node.source,
        "text": node.text,
        "position": node.position,
        "title": node.title,
        "breadcrumb": node.breadcrumb,
        "span": node.span,
        "standing_id": node.standing_id,
        "occurred_at": node.occurred_at.isoformat() if node.occurred_at else None,
        "tags": node.tags,
        "metadata": node.metadata,
    }
    return {name: value for name, value in columns.items() if value is not None}
