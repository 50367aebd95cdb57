"""Writing nodes: a node, its vectors and its edges together, or nothing of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from psycopg import Connection
from psycopg.types.json import Jsonb

from workers.errors import ModelMismatch
from workers.model import EmbeddingModel, Encoding, Level, Node, ProjectName, Sha256
from workers.store.database import Database
from workers.store.queries import load_queries

QUERIES = load_queries("write.sql")

Rows = Connection[dict[str, Any]]


class PostgresNodes:
    """The node tables. The caller owns the connection and its transaction."""

    def __init__(self, connection: Rows, model: int, token_model: str | None) -> None:
        self._connection = connection
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
        arguments = {"projects": sorted(set(projects))}
        self._connection.execute(QUERIES["save_projects"].encode(), arguments)
        self._connection.execute(QUERIES["lock_projects"].encode(), arguments)

    def save(self, node: Node, encoding: Encoding | None) -> str:
        """Insert or update one node, its edges, and its vectors when given.

        Returns:
            stored, updated or unchanged.
        """
        result = self._one("save_node", _columns(node))["result"]
        edges = {"project": node.project, "child": node.sha256, "parents": list(node.parents)}
        if self._one("save_edges", edges)["is_changed"] and result == "unchanged":
            result = "updated"
        if self._save_encoding(node, encoding) and result == "unchanged":
            result = "updated"
        return str(result)

    def _save_encoding(self, node: Node, encoding: Encoding | None) -> bool:
        """A vector given with the node wins over the engine's. Says whether the vector is new."""
        key = {"project": node.project, "sha256": node.sha256}
        if encoding is not None and encoding.tokens is not None:
            tokens = {**key, "token_model": self._token_model, "tokens": encoding.tokens}
            self._connection.execute(QUERIES["save_tokens"].encode(), tokens)
        vector = encoding.vector if encoding is not None else None
        if node.embedding is not None:
            vector = np.asarray(node.embedding, dtype=np.float32)
        if vector is None:
            return False
        arguments = {**key, "model": self._model, "level": node.level.value, "embedding": vector}
        saved = self._connection.execute(QUERIES["save_vector"].encode(), arguments)
        return saved.fetchone() is not None

    def _one(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        row = self._connection.execute(QUERIES[name].encode(), arguments).fetchone()
        assert row is not None  # noqa: S101  # both statements are a bare SELECT of one value
        return row


def _columns(node: Node) -> dict[str, Any]:
    return {
        "project": node.project,
        "sha256": node.sha256,
        "level": node.level.value,
        "kind": node.kind.value,
        "source": node.source,
        "text": node.text,
        "position": node.position,
        "title": node.title,
        "breadcrumb": list(node.breadcrumb),
        "span": Jsonb(node.span) if node.span is not None else None,
        "standing_id": node.standing_id,
        "occurred_at": node.occurred_at,
        "tags": list(node.tags),
        "metadata": Jsonb(dict(node.metadata)),
    }


def use_model(database: Database, model: EmbeddingModel, token_model: str | None) -> int:
    """Register the model whose vectors this memory compares, or check that it is the same one.

    Returns:
        The model's number in `node_vector`.

    Raises:
        ModelMismatch: stored vectors were made by another model.
    """
    given = {"name": model.name, "sha256": model.sha256, "dimension": model.dimension}
    with database.transaction() as connection:
        connection.execute(QUERIES["use_model"].encode(), {**given, "token_model": token_model})
        row = connection.execute(QUERIES["find_model"].encode()).fetchone()
    assert row is not None  # noqa: S101  # the insert made sure of it
    stored = {name: row[name] for name in given}
    if stored != given:
        raise ModelMismatch(
            f"This memory's vectors were made by {_shown(stored)}, the configured model is"
            f" {_shown(given)}. They cannot be compared: configure the first one again"
            " (POIMEN_EMBEDDING_URL, POIMEN_EMBEDDING_MODEL), or use another database."
        )
    return int(row["model"])


def _shown(model: Mapping[str, Any]) -> str:
    sha256 = f", sha256 {model['sha256'][:12]}" if model["sha256"] else ""
    return f"{model['name']} ({model['dimension']} dimensions{sha256})"


def group_by_project(nodes: Sequence[Node]) -> dict[ProjectName, list[Sha256]]:
    grouped: dict[ProjectName, list[Sha256]] = {}
    for node in nodes:
        grouped.setdefault(node.project, []).append(node.sha256)
    return grouped
