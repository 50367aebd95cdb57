"""Redis may die, forget and refuse: accepted jobs end, and nothing is half accepted."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.faults.memory import JOB_LATE_S, JOBS, PROJECTS, Memory
from tests.integration.obstacles import stopped
from tests.integration.service import until

REST = {*PROJECTS} - {"delta"}


@contextmanager
def full(memory: Memory) -> Iterator[None]:
    """A Redis that refuses every write."""
    with memory.service.redis() as redis:
        redis.config_set("maxmemory", 1)
        try:
            yield
        finally:
            redis.config_set("maxmemory", 0)


def delta_held(memory: Memory, timeout_s: int = 40) -> str:
    """A job of which all but delta are done."""
    job = memory.submit(memory.question(), timeout_seconds=timeout_s)
    until(lambda: memory.done(job) == REST and memory.at_gate())
    return job


def test_a_redis_killed_and_started_again_costs_a_job_nothing_and_a_question_its_answer(
    memory: Memory,
) -> None:
    """What one job finds meanwhile can be told to nobody yet; the other finds it afterwards."""
    with (
        memory.gate("recall", "delta") as gate,
        memory.models.held("charlie"),
        ThreadPoolExecutor(1) as pool,
    ):
        job = memory.submit(memory.question(), projects=["alpha", "delta"], timeout_seconds=40)
        other = memory.submit(memory.question(), projects=["bravo", "charlie"], timeout_seconds=40)
        until(lambda: memory.done(job) == {"alpha"} and memory.done(other) == {"bravo"})
        asked = pool.submit(memory.ask, memory.question(), timeout_seconds=5)
        until(lambda: memory.asked() and len(memory.at_gate()) == 2 and memory.calling())
        memory.valkey.kill()
        response = asked.result()
        gate.open()
        until(lambda: not memory.at_gate())
        looked = memory.service.get(f"{JOBS}/{job}")
        memory.valkey.start()
        memory.models.let_go("charlie")
        documents = [memory.ended(job), memory.ended(other)]

    for refused in (response, looked):
        assert (refused.status_code, refused.json()["error"]) == (503, "queue_unavailable")
        assert refused.headers["Retry-After"]
    for document in documents:
        assert (document["status"], document["attempts"]) == ("completed", 1)
        assert document["warnings"] == []


def test_a_full_redis_costs_a_job_nothing_but_time(memory: Memory) -> None:
    with memory.gate("recall", "delta") as gate:
        job = delta_held(memory)
        with full(memory):
            refused_at = time.monotonic()
            later = memory.submit(memory.question(), timeout_seconds=40)
            response = memory.ask(memory.question(), timeout_seconds=5)
            gate.open()
            # Longer than all attempts would take if each were made at once.
            until(lambda: time.monotonic() - refused_at > 5)
            assert memory.row(job)[0] == "open"
            assert memory.row(later)[0] == "open"
    first, second = memory.ended(job), memory.ended(later)

    assert (response.status_code, response.json()["error"]) == (503, "queue_unavailable")
    assert (first["status"], first["warnings"]) == ("completed", [])
    assert (second["status"], second["warnings"]) == ("completed", [])


def test_a_redis_that_forgets_everything_costs_a_job_nothing(memory: Memory) -> None:
    with memory.gate("recall", "delta"):
        job = delta_held(memory)
        before = memory.read(job)
        with memory.service.redis() as redis:
            redis.flushall()
    document = memory.ended(job)

    assert before["revision"] < document["revision"]
    assert (document["status"], document["attempts"]) == ("completed", 2)
    assert document["warnings"] == []


@pytest.mark.parametrize("count", [50, pytest.param(500, marks=pytest.mark.long)])
def test_a_redis_that_forgets_everything_right_after_the_202_costs_no_job(
    memory: Memory, count: int
) -> None:
    question = memory.question()
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda _: memory.submit(question, timeout_seconds=60), range(count)))
    with memory.service.redis() as redis:
        redis.flushall()
    statuses = [
        until(lambda job=job: said if (said := memory.row(job)[0]) != "open" else None, 60)
        for job in jobs
    ]

    assert statuses == ["completed"] * count
    memory.ended(jobs[0])
    memory.ended(jobs[-1])


def test_what_redis_forgot_of_a_finished_project_is_searched_again(memory: Memory) -> None:
    """As after a restart of one that saves only now and then: what came last is gone."""
    with memory.gate("recall", "delta") as gate:
        job = delta_held(memory)
        with memory.service.redis() as redis:
            redis.hdel(f"poimen:q:{{{job}}}:outcomes", "alpha")
        gate.open()
        document = memory.ended(job)

    assert (document["status"], document["warnings"]) == ("completed", [])


def test_with_redis_down_a_submission_is_refused_at_once_and_leaves_nothing(
    memory: Memory,
) -> None:
    memory.valkey.kill()
    try:
        body = {"query": memory.question()}
        response = memory.service.post(JOBS, body)
    finally:
        memory.valkey.start()

    assert (response.status_code, response.json()["error"]) == (503, "queue_unavailable")
    assert response.elapsed.total_seconds() < 1
    assert response.headers["Retry-After"]
    assert memory.open_jobs() == 0


def test_a_hanging_redis_costs_overdue_jobs_no_more_than_the_others(memory: Memory) -> None:
    """Each look at it takes as long as its timeout, which must not add up over the jobs."""
    with memory.gate("recall", *PROJECTS):
        jobs = [memory.submit(memory.question(), timeout_seconds=2) for _ in range(12)]
        until(lambda: memory.at_gate())
        with stopped([memory.valkey.pid]):
            until(lambda: memory.open_jobs() == 0, within_s=2 + JOB_LATE_S + 1)
    for job in jobs:
        document = memory.ended(job)
        assert document["status"] == "failed"
        assert document["error"]["error"] == "deadline_exceeded"
