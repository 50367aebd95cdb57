"""What readiness says of upkeep and of submissions that wait."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.readiness import backlog_state, sweep_state, upkeep_state

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
