"""What a soak counts, when it does its damage, and what clients remember."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from app.bench.calls import Call
from app.bench.growth import Reading, own_memory_mb, roles_of
from app.bench.load import Accepted, Asked, Gate, Ledger, answer_of
from app.bench.soak import Plan, figures

DEADLINE = "2026-01-01T00:00:10Z"
DEADLINE_AT = 1767225610.0


def call(kind: str = "single", took_s: float = 0.1, status: int = 200, **more: Any) -> Call:
    return Call(kind, 0.0, took_s, 5.0, status, **more)


def summary(job_id: str, finished_at: str | None) -> dict[str, Any]:
    status = "completed" if finished_at else "running"
    return {
        "id": job_id,
        "status": status,
        "is_running": finished_at is None,
        "finished_at": finished_at,
    }


def ledger_of(*calls: Call, jobs: tuple[str, ...] = ()) -> Ledger:
    ledger = Ledger()
    for made in calls:
        ledger.calls.add(made)
    ledger.accepted = {job: Accepted(job, "followed", DEADLINE_AT) for job in jobs}
    return ledger


def test_fifteen_minutes_kill_a_worker_every_thirty_seconds_and_valkey_once_between() -> None:
    plan = Plan.of(900)

    assert plan.read_at_s == 75
    assert plan.kills_at_s[:2] == (90, 120)
    assert plan.kills_at_s[-1] == 870
    assert plan.valkey_at_s == 465


def test_a_minute_kills_a_worker_of_each_queue() -> None:
    plan = Plan.of(60)

    assert plan == Plan(read_at_s=10, kills_at_s=(15, 30, 45), valkey_at_s=37.5)


def test_an_answer_half_a_second_after_its_timeout_is_late_and_none_at_all_is_unanswered() -> None:
    ledger = ledger_of(
        call(took_s=5.4),
        call(took_s=5.6, request_id="r1"),
        call(took_s=15.0, status=0, error="ReadTimeout"),
    )

    found = figures(ledger, {})

    assert (found["late"], found["max_late_ms"], found["unanswered"]) == (1, 600.0, 1)
    assert any("r1" in said for said in found["examples"])
    assert any("ReadTimeout" in said for said in found["examples"])


def test_every_5xx_is_counted_by_what_it_was_and_whether_it_says_when_to_come_back() -> None:
    ledger = ledger_of(
        call(status=503, error="queue_unavailable", retry_after_s=1.0),
        call(status=500, error="internal_error"),
        call(status=404, error="job_not_found"),
    )

    found = figures(ledger, {})

    assert (found["errors_5xx"], found["errors_5xx_without_retry_after"]) == (2, 1)
    assert found["errors_5xx_by_code"] == {
        "single 503 queue_unavailable": 1,
        "single 500 internal_error": 1,
    }


def test_looking_whether_workers_are_there_is_no_request_of_a_client() -> None:
    found = figures(ledger_of(call("ready", status=503)), {})

    assert (found["http_requests"], found["errors_5xx"]) == (0, 0)


def test_a_job_that_runs_on_or_is_not_known_any_more_is_lost_and_one_long_after_is_late() -> None:
    ledger = ledger_of(jobs=("in-time", "late", "running", "unknown"))
    summaries = {
        "in-time": summary("in-time", "2026-01-01T00:00:12Z"),
        "late": summary("late", "2026-01-01T00:00:16Z"),
        "running": summary("running", None),
    }

    found = figures(ledger, summaries)

    assert (found["jobs_accepted"], found["jobs_lost"], found["late"]) == (4, 2, 1)
    assert found["max_job_late_ms"] == 6000.0
    assert found["jobs_by_end"] == {"followed completed": 2, "followed running": 1}


def answer(results: list[str], *, is_running: bool = False, degraded: bool = False) -> Any:
    federation = {"finalized_by": None if is_running else "callback"}
    said = {"results": results, "degraded": degraded, "federation": federation}
    return said | {"is_running": is_running}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, Asked("followed", False, False)),
        (answer(["hit"], is_running=True), Asked("followed", False, False)),
        (answer([]), Asked("followed", False, False, "callback")),
        (answer(["hit"]), Asked("followed", True, False, "callback")),
        (answer(["hit"], degraded=True), Asked("followed", True, True, "callback")),
    ],
)
def test_a_question_is_answered_by_hits_of_what_has_ended(
    said: Mapping[str, Any], expected: Asked
) -> None:
    assert answer_of("followed", dict(said)) == expected


def test_a_job_that_failed_is_told_by_its_code() -> None:
    failed = answer([]) | {"error": {"error": "deadline_exceeded"}}
    ledger = ledger_of()
    ledger.add(answer_of("left", failed))

    found = figures(ledger, {})

    assert found["jobs_failed_by_code"] == {"left deadline_exceeded": 1}
    assert (found["requests"], found["answered_with_hits"]) == (1, 0)


def test_a_closed_gate_holds_who_comes_and_is_quiet_once_the_others_are_through() -> None:
    gate, has_entered = Gate(), threading.Event()
    gate.enter()
    gate.close()

    def come() -> None:
        gate.enter()
        has_entered.set()

    comer = threading.Thread(target=come, daemon=True)
    comer.start()

    assert not gate.is_quiet()
    gate.leave()
    assert gate.is_quiet()
    assert not has_entered.wait(0.05)
    gate.open()
    assert has_entered.wait(5)
    comer.join(5)


@dataclass
class Memory:
    rss: int
    shared: int


@dataclass
class FakeProcess:
    pid: int
    memory: Memory
    has_ended: bool = False

    def children(self, recursive: bool) -> list["FakeProcess"]:
        return []

    def memory_info(self) -> Memory:
        if self.has_ended:
            raise psutil.NoSuchProcess(self.pid)
        return self.memory


def test_memory_that_is_shared_is_nobodys_growth_and_an_ended_process_has_none() -> None:
    living = FakeProcess(1, Memory(rss=9_000_000, shared=4_000_000))
    ended = FakeProcess(2, Memory(0, 0), has_ended=True)

    assert own_memory_mb(1, lambda pid: living) == 5.0
    assert own_memory_mb(2, lambda pid: ended) == 0.0


def test_growth_is_of_all_roles_and_servers_together() -> None:
    before = Reading({"web": 90.0, "merge": 70.0}, {"postgres": 40, "valkey": 100})
    after = Reading({"web": 95.0, "merge": 68.0}, {"postgres": 41, "valkey": 97})

    assert (after.growth_mb(before), after.more_connections(before)) == (3.0, -2)


def test_workers_go_by_the_names_that_readiness_has_for_them() -> None:
    assert roles_of([{"name": "query1@host", "pid": 7}]) == {"query1": 7}
