"""Bringing a memory to another model, in its tables: nothing is missed, nothing done twice."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg
import pytest

from tests.integration.service import Service, until
from tests.integration.test_own_servers import as_administrator, migrate
from workers.engines.search_text import SearchText
from workers.errors import CannotReindex, EmbeddingServiceUnavailable, ModelMismatch
from workers.model import (
    EmbeddingModel,
    Encoding,
    Kind,
    Level,
    Missing,
    Node,
    Refused,
    StoredModel,
    Vector,
)
from workers.reindex import Reindex, drop, fill
from workers.store import models as stored
from workers.store.database import Database
from workers.store.models import PostgresModels, use_model
from workers.store.nodes import PostgresNodes

OLD = EmbeddingModel("old", None, 4)
NEW = EmbeddingModel("new", None, 8)
TOKENS = "tokens"


class TextEncoder:
    """Vectors of a model's own dimension; `on_call` sees the texts before they are encoded."""

    most_tokens = 256

    def __init__(self, model: EmbeddingModel = NEW, token_model: str | None = None) -> None:
        self.model = model
        self.token_model = token_model
        self.asked: list[str] = []
        self.prepared: list[str] = []
        self.on_call: Callable[[Sequence[str]], None] = lambda texts: None

    def embed_passages(self, texts: Sequence[str]) -> list[Vector | Refused]:
        if texts:
            self.on_call(texts)
        self.asked += texts
        return [Refused("it is cursed") if "curse" in text else self.vector() for text in texts]

    def encode_passages(self, texts: Sequence[str]) -> list[Encoding | Refused]:
        self.prepared += texts
        return [
            one if isinstance(one, Refused) else Encoding(one, b"\x01" * 128)
            for one in self.embed_passages(texts)
        ]

    def vector(self) -> Vector:
        vector = np.zeros(self.model.dimension, np.float32)
        vector[0] = 1
        return vector


@pytest.fixture(scope="module")
def own_url(session_service: Service) -> Iterator[str]:
    drop_it = "DROP DATABASE IF EXISTS models WITH (FORCE)"
    create = "CREATE DATABASE models OWNER poimen"
    as_administrator(session_service, "postgres", drop_it, create)
    as_administrator(session_service, "models", "CREATE EXTENSION vector")
    url = session_service.database_url.replace("/poimen?", "/models?")
    done = migrate(url)
    assert done.returncode == 0, done.stderr
    yield url
    as_administrator(session_service, "postgres", drop_it)


@pytest.fixture
def database(own_url: str) -> Iterator[Database]:
    with psycopg.connect(own_url, autocommit=True) as connection:
        connection.execute(
            "TRUNCATE project, memory_node, node_vector, node_tokens, node_count, vector_index,"
            " token_backlog, vector_backlog, embedding_model, memory_edge RESTART IDENTITY CASCADE"
        )
    database = Database(own_url, 6)
    yield database
    database.close()


@pytest.fixture
def old(database: Database) -> int:
    """The model that answers."""
    return use_model(database, OLD, None)


def node(number: int, project: str = "p", text: str | None = None) -> Node:
    return Node(
        project=project,
        sha256=f"{number:064x}",
        level=Level.L0,
        kind=Kind.TURN,
        source="s",
        text=text or f"text {number}",
    )


def store(database: Database, number: int, *nodes: Node, model: EmbeddingModel = OLD) -> None:
    """As a worker with this model does."""
    with database.transaction() as connection:
        save(connection, number, nodes, model)


def save(
    connection: psycopg.Connection[Any], number: int, nodes: Sequence[Node], model: EmbeddingModel
) -> None:
    repository = PostgresNodes(connection, number, None, SearchText("simple"))
    repository.claim_projects({one.project for one in nodes})
    vector = TextEncoder(model).vector()
    repository.save(nodes, {one.key: Encoding(vector, None) for one in nodes})


def reindexed(
    database: Database, encoder: TextEncoder, exact_rows: int = 10_000
) -> tuple[StoredModel, list[Missing], list[str]]:
    told: list[Missing] = []
    troubles: list[str] = []
    work = Reindex(database, encoder, exact_rows, told.append, troubles.append)  # type: ignore[arg-type]
    return work.run(), told, troubles


def vectors_of(database: Database, number: int) -> list[str]:
    with database.transaction() as connection:
        rows = connection.execute(
            "SELECT sha256 FROM node_vector WHERE model = %s ORDER BY 1", [number]
        ).fetchall()
    return [row["sha256"] for row in rows]


def waiting(database: Database, number: int) -> int:
    return PostgresModels(database).count_missing(number).waiting


def test_every_node_gets_its_vector_once_and_the_model_is_ready(
    database: Database, old: int
) -> None:
    store(database, old, *(node(number) for number in range(150)))
    encoder = TextEncoder()

    target, told, _ = reindexed(database, encoder)

    assert (target.model, target.is_active) == (NEW, False)
    assert target.ready_at is not None
    assert sorted(encoder.asked) == sorted(f"text {number}" for number in range(150))
    assert vectors_of(database, target.number) == vectors_of(database, old)
    assert (told[0], told[-1].waiting) == (Missing(150, 0, 150), 0)


def test_the_old_model_stays_the_one_until_a_worker_of_the_new_one_starts(
    database: Database, old: int
) -> None:
    store(database, old, node(1))
    target, *_ = reindexed(database, TextEncoder())

    assert use_model(database, OLD, None) == old
    assert use_model(database, NEW, None) == target.number

    active = [one.model for one in PostgresModels(database).list_models() if one.is_active]
    assert active == [NEW]


def test_an_old_worker_that_starts_again_is_refused_and_does_not_switch_back(
    database: Database, old: int
) -> None:
    store(database, old, node(1))
    reindexed(database, TextEncoder())
    use_model(database, NEW, None)

    with pytest.raises(ModelMismatch, match=r"made by new \(8 dimensions\).*`mem reindex`"):
        use_model(database, OLD, None)


def test_workers_that_start_at_once_switch_once(database: Database, old: int) -> None:
    store(database, old, node(1))
    target, *_ = reindexed(database, TextEncoder())

    with ThreadPoolExecutor(5) as pool:
        numbers = list(pool.map(lambda _: use_model(database, NEW, None), range(5)))

    assert numbers == [target.number] * 5


def test_a_model_that_is_not_ready_is_refused_and_says_how_far_it_is(
    database: Database, old: int
) -> None:
    store(database, old, *(node(number) for number in range(100)))
    encoder = TextEncoder()
    encoder.on_call = stop_after(encoder, 64)

    with pytest.raises(KeyboardInterrupt):
        reindexed(database, encoder)

    with pytest.raises(ModelMismatch, match=r"64 of 100 nodes have one \(64%\).*mem reindex"):
        use_model(database, NEW, None)
    with pytest.raises(ModelMismatch, match="or let `mem reindex` make vectors"):
        use_model(database, EmbeddingModel("third", None, 8), None)


def stop_after(encoder: TextEncoder, count: int) -> Callable[[Sequence[str]], None]:
    def stop(texts: Sequence[str]) -> None:
        if len(encoder.asked) >= count:
            raise KeyboardInterrupt

    return stop


def test_what_was_begun_goes_on_where_it_was(database: Database, old: int) -> None:
    store(database, old, *(node(number) for number in range(150)))
    first, second = TextEncoder(), TextEncoder()
    first.on_call = stop_after(first, 64)

    with pytest.raises(KeyboardInterrupt):
        reindexed(database, first)
    target, *_ = reindexed(database, second)

    assert len(first.asked) == 64
    assert len(second.asked) == 150 - 64
    assert not set(first.asked) & set(second.asked)
    assert len(vectors_of(database, target.number)) == 150


def test_several_at_once_share_the_work(database: Database, old: int) -> None:
    store(database, old, *(node(number) for number in range(600)))
    encoders = [TextEncoder(), TextEncoder()]
    both_begun = threading.Barrier(2, timeout=20)
    for encoder in encoders:
        encoder.on_call = meet_once(encoder, both_begun)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda encoder: reindexed(database, encoder)[0], encoders))

    asked = [text for encoder in encoders for text in encoder.asked]
    assert len(asked) == len(set(asked)) == 600
    assert all(one.ready_at is not None for one in found)
    assert all(encoder.asked for encoder in encoders)


def meet_once(encoder: TextEncoder, barrier: threading.Barrier) -> Callable[[Sequence[str]], None]:
    def meet(texts: Sequence[str]) -> None:
        if not encoder.asked:
            barrier.wait()

    return meet


def test_what_is_stored_meanwhile_is_done_too(database: Database, old: int) -> None:
    store(database, old, *(node(number) for number in range(10)))
    encoder = TextEncoder()
    stored_one: list[int] = []

    def store_another(texts: Sequence[str]) -> None:
        if not stored_one:
            stored_one.append(1)
            store(database, old, node(0xFFFF, "another"))

    encoder.on_call = store_another

    target, *_ = reindexed(database, encoder)

    assert len(vectors_of(database, target.number)) == 11


def test_a_writer_that_was_under_way_at_the_registration_is_not_missed(
    database: Database, old: int
) -> None:
    store(database, old, node(1))
    encoder = TextEncoder()

    with database.transaction() as connection:
        save(connection, old, [node(2)], OLD)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(reindexed, database, encoder)
            until(lambda: waits_for_lock(database))
            connection.execute("COMMIT")
            connection.execute("BEGIN")
            target, *_ = running.result(timeout=30)

    assert len(vectors_of(database, target.number)) == 2


def waits_for_lock(database: Database) -> bool:
    with database.transaction() as connection:
        rows = connection.execute(
            "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).fetchall()
    return bool(rows)


def test_what_an_old_worker_stores_after_the_switch_waits_for_the_new_one(
    database: Database, old: int
) -> None:
    store(database, old, node(1))
    target, *_ = reindexed(database, TextEncoder())
    use_model(database, NEW, None)

    store(database, old, node(2))
    assert waiting(database, target.number) == 1
    fill(database, TextEncoder(), target.number)  # type: ignore[arg-type]

    assert waiting(database, target.number) == 0
    assert len(vectors_of(database, target.number)) == 2


def test_what_a_new_worker_stores_waits_for_nobody(database: Database, old: int) -> None:
    store(database, old, node(1))
    target, *_ = reindexed(database, TextEncoder())
    use_model(database, NEW, None)

    store(database, target.number, node(2), model=NEW)

    assert (waiting(database, target.number), waiting(database, old)) == (0, 0)


def test_a_node_that_is_forgotten_while_it_is_encoded_stays_forgotten(
    database: Database, old: int
) -> None:
    store(database, old, node(1), node(2), node(3, "gone"))
    encoder = TextEncoder()

    def forget(texts: Sequence[str]) -> None:
        with database.transaction() as connection:
            connection.execute("DELETE FROM memory_node WHERE sha256 = %s", [node(2).sha256])
            connection.execute("DELETE FROM project WHERE project = 'gone'")

    encoder.on_call = forget

    target, *_ = reindexed(database, encoder)

    assert vectors_of(database, target.number) == [node(1).sha256]
    assert waiting(database, target.number) == 0


def test_a_text_that_the_model_refuses_keeps_nobody_and_is_named(
    database: Database, old: int
) -> None:
    store(database, old, node(1), node(2, text="a curse"))

    target, *_ = reindexed(database, TextEncoder())

    models = PostgresModels(database)
    assert target.ready_at is not None
    assert models.count_missing(target.number) == Missing(0, 1, 2)
    named = {"project": "p", "sha256": node(2).sha256, "reason": "it is cursed"}
    assert models.list_refused(target.number, 10) == [named]


def test_one_that_was_refused_is_tried_again_the_next_time(database: Database, old: int) -> None:
    store(database, old, node(1, text="a curse"))
    target, *_ = reindexed(database, TextEncoder())
    kinder = TextEncoder()
    kinder.embed_passages = lambda texts: [kinder.vector() for _ in texts]  # type: ignore[method-assign]

    reindexed(database, kinder)

    assert PostgresModels(database).count_missing(target.number) == Missing(0, 0, 1)


def test_token_vectors_are_made_where_there_are_none_and_only_there(
    database: Database, old: int
) -> None:
    store(database, old, node(1), node(2))
    with database.transaction() as connection:
        PostgresNodes(connection, old, TOKENS, SearchText("simple")).save_tokens(
            {node(1).key: b"\x01"}
        )
    encoder = TextEncoder(token_model=TOKENS)

    reindexed(database, encoder)

    assert encoder.prepared == ["text 2"]
    assert sorted(encoder.asked) == ["text 1", "text 2"]
    with database.transaction() as connection:
        rows = connection.execute("SELECT count(*) AS n FROM node_tokens").fetchall()
    assert rows == [{"n": 2}]


def test_a_server_that_fails_for_a_while_is_waited_for(
    database: Database, old: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.reindex.FIRST_PAUSE_S", 0.01)
    store(database, old, node(1))
    encoder = TextEncoder()
    failures = iter([True, True, False])

    def fail(texts: Sequence[str]) -> None:
        if next(failures):
            raise EmbeddingServiceUnavailable("it is down.")

    encoder.on_call = fail

    target, _, troubles = reindexed(database, encoder)

    assert troubles == ["it is down.", "it is down."]
    assert len(vectors_of(database, target.number)) == 1


def test_a_server_that_stays_down_ends_it_and_nothing_is_lost(
    database: Database, old: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.reindex.FIRST_PAUSE_S", 0.001)
    store(database, old, node(1))
    encoder = TextEncoder()

    def fail(texts: Sequence[str]) -> None:
        raise EmbeddingServiceUnavailable("it is down.")

    encoder.on_call = fail

    with pytest.raises(EmbeddingServiceUnavailable):
        reindexed(database, encoder)
    target, *_ = reindexed(database, TextEncoder())

    assert len(vectors_of(database, target.number)) == 1


def test_a_memory_without_vectors_has_nothing_to_bring_to_another_model(
    database: Database,
) -> None:
    with pytest.raises(CannotReindex, match="no vectors yet"):
        reindexed(database, TextEncoder())

    assert PostgresModels(database).list_models() == []


def test_one_that_is_given_up_ends_who_works_on_it(database: Database, old: int) -> None:
    store(database, old, *(node(number) for number in range(100)))
    models = PostgresModels(database)
    encoder = TextEncoder()
    encoder.on_call = lambda texts: models.give_up(
        next(one.number for one in models.list_models() if one.model == NEW)
    )

    with pytest.raises(CannotReindex, match="given up"):
        reindexed(database, encoder)

    assert use_model(database, OLD, None) == old


def test_dropping_the_old_model_leaves_the_new_one_whole(
    database: Database, old: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "DROPPED", 7)
    store(database, old, *(node(number) for number in range(20)), node(99, "another"))
    target, *_ = reindexed(database, TextEncoder(), exact_rows=10)
    models = PostgresModels(database)
    assert models.to_drop() == []  # it still answers
    use_model(database, NEW, None)

    (left,) = models.to_drop()
    told: list[int] = []
    count = drop(database, left, told.append)

    assert (left.number, count, told[-1]) == (old, 21, 21)
    assert vectors_of(database, old) == []
    assert len(vectors_of(database, target.number)) == 21
    assert models.to_drop() == []
    assert index_models(database) == {target.number}


def index_models(database: Database) -> set[int]:
    with database.transaction() as connection:
        rows = connection.execute(
            "SELECT model, to_regclass(name) IS NOT NULL AS is_there FROM vector_index"
        ).fetchall()
    assert all(row["is_there"] for row in rows)
    return {row["model"] for row in rows}


def test_going_back_costs_only_what_was_stored_since(database: Database, old: int) -> None:
    store(database, old, *(node(number) for number in range(50)))
    target, *_ = reindexed(database, TextEncoder())
    use_model(database, NEW, None)
    store(database, target.number, node(77), model=NEW)
    back = TextEncoder(OLD)

    found, *_ = reindexed(database, back)

    assert (found.number, back.asked) == (old, ["text 77"])
    assert use_model(database, OLD, None) == old
