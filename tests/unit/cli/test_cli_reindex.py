"""`mem reindex`: which model it goes to, what it tells, and what it asks before it removes."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.canned import Mem
from workers.errors import CannotReindex, EmbeddingServiceUnavailable, ModelMismatch
from workers.model import EmbeddingModel, Missing, StoredModel

NOW = datetime(2026, 11, 30, tzinfo=UTC)
OLD = StoredModel(1, EmbeddingModel("old", None, 4), True, True, None, None)
NEW = StoredModel(2, EmbeddingModel("new", None, 8), False, True, NOW, NOW)
RETIRED = StoredModel(3, EmbeddingModel("retired", None, 8), False, False, None, None)
SERVER = ("--url", "http://gpu:8080", "--model", "new", "--dimension", "8")


class Wiring:
    """What the command asks to be done, and what comes of it."""

    def __init__(self) -> None:
        self.targets: list[tuple[str | None, str, int]] = []
        self.given_up: list[int] = []
        self.dropped: list[int] = []
        self.found: StoredModel = NEW
        self.missing = Missing(0, 0, 150)
        self.error: BaseException | None = None
        self.to_drop: list[StoredModel] = []
        self.workers: list[dict[str, Any]] = []

    def reindex(
        self,
        _url: str,
        _settings: object,
        *,
        url: str | None,
        model: str,
        dimension: int,
        told: Callable[[Missing], None],
        troubled: Callable[[str], None],
    ) -> tuple[StoredModel, Missing, int]:
        self.targets.append((url, model, dimension))
        told(Missing(100, 0, 150))
        if self.error is not None:
            raise self.error
        troubled("the server failed.")
        return self.found, self.missing, 100

    def drop_model(self, _url: str, model: StoredModel, told: Callable[[int], None]) -> int:
        self.dropped.append(model.number)
        told(150)
        return 150


@pytest.fixture
def wiring(away: Path, monkeypatch: pytest.MonkeyPatch) -> Wiring:
    canned = Wiring()
    monkeypatch.setenv("POIMEN_DATABASE_URL", "postgresql://db/x")
    monkeypatch.setattr("app.wiring.check_database", lambda url: "PostgreSQL 18.4")
    monkeypatch.setattr("app.wiring.reindex", canned.reindex)
    monkeypatch.setattr("app.wiring.drop_model", canned.drop_model)
    monkeypatch.setattr(
        "app.wiring.give_up_model", lambda url, number: canned.given_up.append(number)
    )
    monkeypatch.setattr("app.wiring.list_models", lambda url: ([OLD, canned.found], canned.to_drop))
    refused = [{"project": "p", "sha256": "ab" * 32, "reason": "too\nlong"}]
    monkeypatch.setattr("app.wiring.list_refused", lambda url, number, limit: refused)
    monkeypatch.setattr("app.wiring.live_workers", lambda url: canned.workers)
    return canned


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (("--to", "embedded"), (None, "", 0)),
        (SERVER, ("http://gpu:8080", "new", 8)),
        (("--url", "http://gpu:1"), ("http://gpu:1", "nomic-ai/nomic-embed-text-v2-moe", 768)),
    ],
)
def test_options_name_the_model(
    wiring: Wiring, mem: Mem, arguments: tuple[str, ...], target: tuple[str | None, str, int]
) -> None:
    assert mem("reindex", *arguments).exit_code == 0
    assert wiring.targets == [target]


def test_without_options_it_is_the_one_of_the_settings(
    wiring: Wiring, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POIMEN_EMBEDDING_URL", "http://gpu:2")
    monkeypatch.setenv("POIMEN_EMBEDDING_DIMENSION", "5")

    assert mem("reindex", "--model", "mine").exit_code == 0
    assert wiring.targets == [("http://gpu:2", "mine", 5)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--to embedded"),
        (("--to", "embedded", "--url", "http://gpu"), "choose one"),
        (("--to", "embedded", "--dimension", "8"), "belong to --url"),
        (("--drop-old", "--cancel"), "choose one"),
        (("--url", "gpu:8080"), "http://"),
    ],
)
def test_a_model_that_is_not_named_clearly_is_a_usage_error(
    wiring: Wiring, mem: Mem, arguments: tuple[str, ...], said: str
) -> None:
    ran = mem("reindex", *arguments)

    assert (ran.exit_code, said in ran.stderr) == (2, True), ran.stderr
    assert wiring.targets == []


def test_it_tells_how_far_it_is_and_how_to_switch(wiring: Wiring, mem: Mem) -> None:
    ran = mem("reindex", "--url", "http://me:hush@gpu", "--model", "new", "--dimension", "8")

    assert ran.stdout == "new (8 dimensions) is ready: 150 nodes, 100 encoded now\n"
    assert "reindexing: 50 of 150 nodes (33%)" in ran.stderr
    assert "the server failed. Trying again." in ran.stderr
    assert "POIMEN_EMBEDDING_URL=http://***@gpu POIMEN_EMBEDDING_MODEL=new" in ran.stderr
    assert "hush" not in ran.output


def test_nodes_that_the_model_refuses_are_named_and_make_it_partial(
    wiring: Wiring, mem: Mem
) -> None:
    wiring.missing = Missing(0, 1, 150)

    ran = mem("reindex", *SERVER)
    sent = json.loads(mem("reindex", *SERVER, "--format", "json").stdout)

    assert ran.exit_code == 3
    assert "p/abababababab: cannot be embedded: too long" in ran.stderr
    assert (sent["status"], sent["refused_count"], len(sent["refused"])) == ("ready", 1, 1)


def test_the_active_model_needs_no_switch(wiring: Wiring, mem: Mem) -> None:
    wiring.found = OLD

    ran = mem("reindex", *SERVER)

    assert "old (4 dimensions) is the active model" in ran.stdout
    assert "To switch" not in ran.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (EmbeddingServiceUnavailable("It is down."), "embedding_service_unavailable", "goes on"),
        (ModelMismatch("Its vectors have dimension 3."), "model_mismatch", "--dimension"),
        (CannotReindex("This memory has no vectors yet.", "Start."), "cannot_reindex", "Start."),
    ],
)
def test_a_failure_says_what_to_do_next(
    wiring: Wiring, mem: Mem, error: Exception, code: str, said: str
) -> None:
    wiring.error = error

    ran = mem("reindex", *SERVER)

    assert ran.exit_code == 1
    assert str(error) in ran.stderr
    assert said in ran.stderr
    assert ran.stderr.splitlines()[-1] == f"  {code}"


def test_ctrl_c_says_that_it_goes_on(wiring: Wiring, mem: Mem) -> None:
    wiring.error = KeyboardInterrupt()

    ran = mem("reindex", *SERVER)

    assert ran.exit_code == 130
    assert "The same command goes on where it was." in ran.stderr


@pytest.mark.parametrize(("answer", "dropped"), [("y\n", [3]), ("n\n", [])])
def test_removing_asks_first(wiring: Wiring, mem: Mem, answer: str, dropped: list[int]) -> None:
    wiring.to_drop = [RETIRED]

    ran = mem("reindex", "--drop-old", input=answer)

    assert wiring.dropped == dropped
    assert "retired (8 dimensions)" in ran.stderr
    assert "would find nothing" in ran.stderr


def test_nothing_is_removed_while_a_worker_is_seen_to_use_it(
    wiring: Wiring, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POIMEN_REDIS_URL", "redis://cache")
    wiring.to_drop = [RETIRED]
    wiring.workers = [{"name": "query1", "embedder": "retired"}, {"name": "merge"}]

    ran = mem("reindex", "--drop-old", "--yes")

    assert ran.exit_code == 1
    assert "query1 still answers by the old vectors" in ran.stderr
    assert wiring.dropped == []


def test_what_was_begun_is_given_up_and_removed(wiring: Wiring, mem: Mem) -> None:
    ran = mem("reindex", "--cancel", "--yes")

    assert (wiring.given_up, wiring.dropped) == ([2], [2])
    assert ran.stdout == "new: 150 vectors removed\n"


def test_where_nothing_is_left_nothing_is_asked(wiring: Wiring, mem: Mem) -> None:
    ran = mem("reindex", "--drop-old", "--format", "json")

    assert (ran.exit_code, json.loads(ran.stdout)) == (0, {"dropped": []})
