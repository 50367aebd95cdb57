"""Which models this memory has vectors of: the one that is searched, and one to come."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import Connection

from workers.deadline import Deadline
from workers.errors import CannotReindex, ModelMismatch
from workers.model import EmbeddingModel, Missing, ProjectName, StoredModel
from workers.store.database import Database, Statement
from workers.store.queries import load_queries

QUERIES = load_queries("models.sql")

DROPPED = 5_000  # vectors removed in one transaction
_READ_S = 5.0
_COUNT_S = 60.0  # counting all that waits, for a message

Rows = Connection[dict[str, Any]]


class PostgresModels:
    """The table of models. Every method raises StoreUnavailable when PostgreSQL does not answer."""

    def __init__(self, database: Database, read_s: float = _READ_S) -> None:
        """read_s: most for each read."""
        self._database = database
        self._read_s = read_s

    def list_models(self) -> list[StoredModel]:
        (rows,) = self._read("list_models", {})
        return [_stored(row) for row in rows]

    def count_missing(self, number: int, most: int | None = None) -> Missing:
        """How many nodes have no vector of a model; each kind counted up to `most`."""
        (rows,) = self._read("count_missing", {"model": number, "most": most})
        return Missing(**rows[0])

    def list_refused(self, number: int, limit: int) -> list[dict[str, Any]]:
        """project, sha256 and reason of nodes that the model makes no vector of."""
        (rows,) = self._read("list_refused", {"model": number, "limit": limit})
        return rows

    def register(self, model: EmbeddingModel, token_model: str | None) -> StoredModel:
        """Make it one that every node is to have a vector of; from now on new nodes are listed.

        Waits for transactions that store vectors, and they for it.

        Raises:
            CannotReindex: the memory has no vectors yet.
        """
        given = _columns(model, token_model)
        with self._database.transaction() as connection:
            known = _known(connection)
            if not any(one.is_active for one in known):
                raise CannotReindex(
                    "This memory has no vectors yet.",
                    "Start the workers with the model that you want.",
                )
            found = _find(known, model)
            if found is None or not found.is_wanted:
                connection.execute(QUERIES["lock_out_writers"].encode())
                connection.execute(QUERIES["register_target"].encode(), given)
                found = _find(_known(connection), model)
            assert found is not None  # noqa: S101  # the insert made sure of it
            connection.execute(QUERIES["want"].encode(), given | {"model": found.number})
            found = _find(_known(connection), model)
        assert found is not None  # noqa: S101
        return found

    def list_missing(self, number: int) -> None:
        """List the nodes that were stored before the model was registered and have no vector."""
        with self._database.transaction() as connection:
            connection.execute(QUERIES["list_missing"].encode(), {"model": number})
            connection.execute(QUERIES["save_listed"].encode(), {"model": number})

    def retry_refused(self, number: int) -> None:
        with self._database.transaction() as connection:
            connection.execute(QUERIES["retry_refused"].encode(), {"model": number})

    def time(self) -> datetime:
        """The database's clock."""
        (rows,) = self._read("database_time", {})
        now: datetime = rows[0]["now"]
        return now

    def analyze(self) -> None:
        """Let the planner know how many vectors each model has."""
        with self._database.transaction() as connection:
            connection.execute(QUERIES["analyze_vectors"].encode())

    def save_ready(self, number: int, before: datetime) -> bool:
        """Whether everything that was listed before that instant is done: then it is ready."""
        with self._database.transaction() as connection:
            arguments = {"model": number, "before": before}
            return bool(connection.execute(QUERIES["save_ready"].encode(), arguments).fetchall())

    def give_up(self, number: int) -> None:
        """No node needs a vector of it any more; `drop` removes those that there are."""
        with self._database.transaction() as connection:
            connection.execute(QUERIES["give_up"].encode(), {"model": number})

    def to_drop(self) -> list[StoredModel]:
        """Models that are not wanted and have vectors left."""
        (rows,) = self._read("models_to_drop", {})
        left = {row["model"] for row in rows}
        return [one for one in self.list_models() if one.number in left]

    def drop(self, number: int, token_model: str) -> Iterator[tuple[ProjectName, int]]:
        """Remove a model's vectors, some at a time; tells each project with how many went.

        Indexes are left for `VectorIndexes.drop_orphans`. token_model: the one still in use.
        """
        for name in ("drop_index_rows", "drop_backlog"):
            with self._database.transaction() as connection:
                connection.execute(QUERIES[name].encode(), {"model": number})
        (projects,) = self._read("list_projects", {})
        for row in projects:
            arguments = {**row, "model": number, "limit": DROPPED, "token_model": token_model}
            count = DROPPED
            while count == DROPPED:
                with self._database.transaction() as connection:
                    cursor = connection.execute(QUERIES["drop_vectors"].encode(), arguments)
                    count = cursor.rowcount
                yield row["project"], count
            with self._database.transaction() as connection:
                connection.execute(QUERIES["drop_tokens"].encode(), arguments)

    def _read(self, name: str, arguments: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
        return self._database.read(
            [Statement(QUERIES[name], arguments)], Deadline.after(self._read_s)
        )


def use_model(database: Database, model: EmbeddingModel, token_model: str | None) -> int:
    """Register the first model, find the active one to be it, or switch to it if it is ready.

    Processes that run already go on with the model that they were started with.

    Returns:
        The model's number in `node_vector`.

    Raises:
        ModelMismatch: stored vectors were made by another model, and its own are not all there.
    """
    given = _columns(model, token_model)
    with database.transaction() as connection:
        connection.execute(QUERIES["register_first"].encode(), given)
        own = _find(_known(connection), model)
        if own is not None and not own.is_active and own.ready_at is not None:
            own = _activate(connection, model)
        if own is not None and own.is_active:
            return own.number
        active = next(one for one in _known(connection) if one.is_active)
    raise _mismatch(database, active.model, model, own)


def _activate(connection: Rows, model: EmbeddingModel) -> StoredModel | None:
    connection.execute(QUERIES["lock_models"].encode())
    own = _find(_known(connection), model)  # as it is now that nobody else changes it
    if own is None:
        return None
    for name in ("retire_active", "activate"):
        connection.execute(QUERIES[name].encode(), {"model": own.number})
    return _find(_known(connection), model)


def _mismatch(
    database: Database, active: EmbeddingModel, model: EmbeddingModel, own: StoredModel | None
) -> ModelMismatch:
    said = f"This memory's vectors were made by {active}, the configured model is {model}."
    if own is None or not own.is_wanted:
        return ModelMismatch(
            f"{said} They cannot be compared: configure the first one again"
            " (POIMEN_EMBEDDING_URL, POIMEN_EMBEDDING_MODEL), or let `mem reindex` make vectors of"
            " the configured one first."
        )
    missing = PostgresModels(database, _COUNT_S).count_missing(own.number)
    done = missing.nodes - missing.waiting if own.listed_at else 0
    return ModelMismatch(
        f"{said} Its vectors are not all there yet: {done:,} of {missing.nodes:,} nodes have one"
        f" ({done / max(1, missing.nodes):.0%}). `mem reindex` goes on with it and says when it is"
        " ready; until then configure the first one."
    )


def _known(connection: Rows) -> list[StoredModel]:
    return [_stored(row) for row in connection.execute(QUERIES["list_models"].encode())]


def _find(known: Sequence[StoredModel], model: EmbeddingModel) -> StoredModel | None:
    return next((one for one in known if one.model == model), None)


def _stored(row: Mapping[str, Any]) -> StoredModel:
    return StoredModel(
        number=row["model"],
        model=EmbeddingModel(row["name"], row["sha256"], row["dimension"]),
        is_active=row["is_active"],
        is_wanted=row["is_wanted"],
        listed_at=row["listed_at"],
        ready_at=row["ready_at"],
    )


def _columns(model: EmbeddingModel, token_model: str | None) -> dict[str, Any]:
    return {
        "name": model.name,
        "sha256": model.sha256,
        "dimension": model.dimension,
        "token_model": token_model,
    }
