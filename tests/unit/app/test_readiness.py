"""What readiness says of upkeep and of submissions that wait."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.readiness import (
    MOST_COUNTED,
    backlog_state,
    content,
    sweep_state,
    upkeep_state,
    vectors_state,
    word_index_state,
    words_state,
)
from workers.model import EmbeddingModel, Missing, StoredModel

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> str:
    return f"{NOW - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def worker(
    started_s: float,
    ran_s: float | None,
    is_busy: bool = False,
    queues: tuple[str, ...] = ("upkeep",),
) -> dict[str, Any]:
    upkeep_at = None if ran_s is None else ago(ran_s)
    return {
        "queues": queues,
        "started_at": ago(started_s),
        "upkeep_at": upkeep_at,
        "is_busy": is_busy,
    }


def merger(started_s: float, swept_s: float | None) -> dict[str, Any]:
    swept_at = None if swept_s is None else ago(swept_s)
    return {"queues": ["merge"], "started_at": ago(started_s), "swept_at": swept_at}


@pytest.mark.parametrize(
    ("workers", "state", "said"),
    [
        ([], "failed", "no live worker"),
        ([worker(900, 1, queues=("query",))], "failed", "no live worker"),
        ([worker(2, None)], "ok", "not run yet"),
        ([worker(900, 4)], "ok", "4 s ago"),
        ([worker(900, None)], "failed", "not run yet"),
        ([worker(900, 31)], "failed", "31 s ago"),
        ([worker(2, 400)], "ok", "400 s ago"),
        ([worker(900, 31), worker(900, 3)], "ok", "3 s ago"),
        ([worker(900, 700, is_busy=True)], "degraded", "at work"),
        ([worker(900, 700, is_busy=True), worker(900, None)], "failed", "is free"),
    ],
)
def test_upkeep_that_does_not_run_is_missed_unless_everyone_is_at_work(
    workers: list[dict[str, Any]], state: str, said: str
) -> None:
    found, detail = upkeep_state(workers, NOW)

    assert (found, said in detail) == (state, True), detail


@pytest.mark.parametrize(
    ("workers", "state", "said"),
    [
        ([], "failed", "no live worker"),
        ([{"queues": ["query"], "started_at": ago(900)}], "failed", "no live worker"),
        ([merger(2, None)], "ok", "not run yet"),
        ([merger(900, 4)], "ok", "4 s ago"),
        ([merger(900, 31)], "failed", "31 s ago"),
        ([merger(900, 31), merger(900, 3)], "ok", "3 s ago"),
        ([merger(900, None)], "failed", "not run yet"),
    ],
)
def test_a_sweep_that_does_not_run_is_missed(
    workers: list[dict[str, Any]], state: str, said: str
) -> None:
    found, detail = sweep_state(workers, NOW)

    assert (found, said in detail) == (state, True), detail


def test_submissions_that_wait_for_long_are_told() -> None:
    assert backlog_state(0, 0.0) == ("ok", "no submission waits")
    assert backlog_state(3, 75.4) == ("degraded", "3 wait to be worked on, the oldest for 75 s")


ACTIVE = StoredModel(1, EmbeddingModel("old", None, 4), True, True, None, None)
TARGET = StoredModel(2, EmbeddingModel("new", None, 8), False, True, NOW, None)
RETIRED = StoredModel(3, EmbeddingModel("gone", None, 8), False, False, None, None)
NONE_MISSING = Missing(0, 0, 100)


@pytest.mark.parametrize(
    ("missing", "state", "said"),
    [
        (NONE_MISSING, "ok", "old (4 dimensions)"),
        (Missing(1, 0, 100), "degraded", "old (4 dimensions); 1 node without a vector yet"),
        (Missing(1200, 0, 9000), "degraded", "1,200 nodes without"),
        (Missing(MOST_COUNTED, 0, 10**7), "degraded", "100,000 nodes or more without"),
        (Missing(0, 2, 100), "degraded", "2 nodes cannot be embedded; mem reindex names them"),
    ],
)
def test_nodes_that_cannot_be_found_are_told(missing: Missing, state: str, said: str) -> None:
    found, detail = vectors_state([RETIRED, ACTIVE], {1: missing}, [])

    assert (found, said in detail) == (state, True), detail
    assert "gone" not in detail


@pytest.mark.parametrize(
    ("target", "missing", "said"),
    [
        (replace(TARGET, listed_at=None), NONE_MISSING, "new is registered"),
        (TARGET, Missing(60, 0, 100), "new has 60 nodes to go"),
        (replace(TARGET, ready_at=NOW), Missing(3, 0, 100), "new is ready to be switched to"),
    ],
)
def test_a_model_to_come_is_told_and_degrades_nothing(
    target: StoredModel, missing: Missing, said: str
) -> None:
    found, detail = vectors_state([ACTIVE, target], {1: NONE_MISSING, 2: missing}, [])

    assert (found, said in detail) == ("ok", True), detail


def test_workers_that_were_started_with_another_model_are_named() -> None:
    workers = [
        {"name": "query1", "embedder": "old"},
        {"name": "query2", "embedder": "gone"},
        {"name": "merge"},
    ]

    found, detail = vectors_state([ACTIVE], {1: NONE_MISSING}, workers)

    assert found == "degraded"
    assert detail.endswith("started with another model, to be restarted: query2")


@pytest.mark.parametrize(
    ("waiting", "state", "said"),
    [
        (0, "ok", "every node has its words"),
        (1, "degraded", "1 node without words yet"),
        (1200, "degraded", "1,200 nodes without words yet"),
        (10 * MOST_COUNTED, "degraded", "100,000 nodes or more without words yet"),
    ],
)
def test_nodes_that_no_word_finds_yet_are_told(waiting: int, state: str, said: str) -> None:
    assert words_state(waiting) == (state, said)


@pytest.mark.parametrize(
    ("is_read", "waiting", "expected"),
    [
        (True, 0, ("ok", "OpenSearch 3.1.0; up to date")),
        (True, 1200, ("ok", "OpenSearch 3.1.0; 1,200 nodes to be told it")),
        (False, 0, ("degraded", "OpenSearch 3.1.0; its index is being made")),
        (
            False,
            1,
            ("degraded", "OpenSearch 3.1.0; its index is being made; 1 node to be told it"),
        ),
    ],
)
def test_an_index_that_cannot_be_read_yet_degrades_one_that_is_behind_does_not(
    is_read: bool, waiting: int, expected: tuple[str, str]
) -> None:
    assert word_index_state("OpenSearch 3.1.0", is_read, waiting) == expected


def test_a_memory_without_vectors_is_well() -> None:
    assert vectors_state([], {}, [])[0] == "ok"


def test_what_a_memory_holds_is_told_in_words() -> None:
    assert content(0, 0) == "0 projects, 0 nodes"
    assert content(1, 1) == "1 project, 1 node"
    assert content(1200, 34567) == "1,200 projects, 34,567 nodes"
