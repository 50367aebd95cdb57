"""The nodes that have no vector of a model yet, to be worked off by whoever has that model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from workers.model import NodeKey, Vector
from workers.store.models import QUERIES

START: NodeKey = ("", "")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A node on the list. text: None where there is nothing left to do for it."""

    key: NodeKey
    text: str | None
    has_tokens: bool


class PostgresVectorBacklog:
    """One model's list. The caller owns the connection and its transaction."""

    def __init__(
        self, connection: Connection[dict[str, Any]], model: int, token_model: str | None
    ) -> None:
        self._connection = connection
        self._model = model
        self._token_model = token_model

    def take(self, after: NodeKey, limit: int) -> list[Waiting]:
        """The next nodes that nobody else has taken; they are off the list once `save` commits."""
        project, sha256 = after
        rows = self._run("take_missing", project=project, sha256=sha256, limit=limit)
        return [
            Waiting(
                (row["project"], row["sha256"]),
                None if row["has_vector"] else row["text"],
                row["has_tokens"],
            )
            for row in rows
        ]

    def save(
        self,
        taken: Sequence[Waiting],
        vectors: Mapping[NodeKey, Vector],
        tokens: Mapping[NodeKey, bytes],
        refused: Mapping[NodeKey, str],
    ) -> None:
        """Store what was made of them. Nodes that were removed meanwhile stay removed."""
        self._run("lock_projects", projects=sorted({one.key[0] for one in taken}))
        self._each("save_missing_vector", "embedding", vectors)
        self._each("save_missing_tokens", "tokens", tokens)
        self._each("refuse_missing", "reason", refused)
        done = [one.key for one in taken if one.key not in refused]
        projects, nodes = [key[0] for key in done], [key[1] for key in done]
        self._run("drop_missing", projects=projects, nodes=nodes)

    def _run(self, name: str, **arguments: Any) -> list[dict[str, Any]]:
        cursor = self._connection.execute(QUERIES[name].encode(), self._own | arguments)
        return cursor.fetchall() if cursor.description else []

    def _each(self, name: str, column: str, values: Mapping[NodeKey, Any]) -> None:
        cursor = self._connection.cursor(binary=True)
        cursor.executemany(
            QUERIES[name].encode(),
            [
                {**self._own, "project": project, "sha256": sha256, column: value}
                for (project, sha256), value in values.items()
            ],
        )

    @property
    def _own(self) -> dict[str, Any]:
        return {"model": self._model, "token_model": self._token_model}
