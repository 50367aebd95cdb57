"""A worker that dies costs no answer: not the others' hits, and of a job not even its own."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pytest

from tests.faults.memory import JOB_LATE_S, JOBS, LATE_S, PROJECTS, Memory, kill
from tests.integration.obstacles import stopped
from tests.integration.service import until


@contextmanager
def held(memory: Memory, stage: str) -> Iterator[Callable[[], None]]:
    """Hold one stage of project delta, or the embedding for all; yields what lets it go."""
    if stage in ("recall", "walk"):
        with memory.gate(stage, "delta") as gate:
            yield gate.open
        return
    word = "why" if stage == "embed" else "delta"
    with memory.models.held(word):
        yield lambda: memory.models.let_go(word)


def held_workers(memory: Memory, stage: str, kind: str) -> list[int]:
    pids = memory.at_gate() if stage in ("recall", "walk") else memory.calling()
    return [pid for pid in pids if pid in memory.pids_of(kind)]


@pytest.mark.parametrize("stage", ["embed", "recall", "rerank", "walk"])
def test_a_worker_killed_in_any_stage_costs_a_question_its_projects_and_a_job_nothing(
    memory: Memory, stage: str
) -> None:
    with held(memory, stage) as let_go, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(memory.ask, memory.question(), timeout_seconds=3)
        job = memory.submit(memory.question(), timeout_seconds=40)
        rest = set() if stage == "embed" else {*PROJECTS} - {"delta"}
        until(lambda: memory.done(memory.asked() or "") == rest)
        until(lambda: memory.done(job) == rest and memory.begun(job).keys() == {*PROJECTS})
        of_question = until(lambda: held_workers(memory, stage, "query"))
        of_job = until(lambda: held_workers(memory, stage, "jobs"))

        kill(of_question[0], of_job[0])
        if stage == "embed":
            let_go()
        response = asked.result()
        let_go()
        document = memory.ended(job)

    assert response.elapsed.total_seconds() < 3 + LATE_S
    assert response.status_code == 200, response.text
    answer = response.json()
    lost = {*PROJECTS} - {*answer["projects_searched"]}
    assert lost == {"delta"} or (stage == "embed" and lost < {*PROJECTS})
    assert [w["code"] for w in answer["warning_details"]] == ["no_answer_by_deadline"] * len(lost)
    assert answer["warnings"] == [f"project '{project}' timed out" for project in sorted(lost)]
    memory.check(answer)
    assert (document["status"], document["attempts"]) == ("completed", 2)
    assert document["warnings"] == []


def test_with_every_worker_killed_a_job_is_completed_by_those_that_come_after(
    memory: Memory,
) -> None:
    with memory.gate("recall", "delta"), ThreadPoolExecutor(1) as pool:
        job = memory.submit(memory.question(), timeout_seconds=40)
        waiting = memory.submit(memory.question(), project="delta", timeout_seconds=40)
        asked = pool.submit(memory.ask, memory.question(), timeout_seconds=2)
        rest = {*PROJECTS} - {"delta"}
        until(lambda: memory.done(job) == rest and memory.begun(waiting))
        until(lambda: memory.done(memory.asked() or "") == rest)
        until(lambda: len(memory.at_gate()) == 3)
        kill(*(pid for name, pid in memory.pids().items() if name != "web"))
        response = asked.result()
    documents = [memory.ended(job), memory.ended(waiting)]

    assert response.status_code == 200
    assert response.elapsed.total_seconds() < 2 + LATE_S
    assert [w["code"] for w in response.json()["warning_details"]] == ["no_answer_by_deadline"]
    assert [(d["status"], d["attempts"]) for d in documents] == [("completed", 2)] * 2


def test_a_worker_asked_to_end_ends_its_part_of_a_job_first(memory: Memory) -> None:
    with memory.gate("recall", "delta") as gate:
        job = memory.submit(memory.question(), timeout_seconds=40)
        (worker,) = until(memory.at_gate)
        os.kill(worker, signal.SIGTERM)
        later = memory.submit(memory.question(), projects=["alpha", "bravo"], timeout_seconds=20)
        of_others = memory.ended(later)
        assert psutil.pid_exists(worker), "it waits for what it has begun"
        gate.open()
        document = memory.ended(job)
        until(lambda: worker not in memory.pids().values())

    assert (document["status"], document["attempts"]) == ("completed", 1)
    assert document["federation"]["projects"][-1]["pid"] == worker
    assert of_others["status"] == "completed"
    assert worker not in {project["pid"] for project in of_others["federation"]["projects"]}


def at_work(memory: Memory, project: str, *jobs: str) -> set[int] | None:
    """The live processes that have begun this project of each of these jobs, once all are."""
    pids = {memory.begun(job).get(project, 0) for job in jobs}
    return pids if pids <= {*memory.pids().values()} & {*memory.at_gate()} else None


def test_a_job_that_kills_its_worker_each_time_is_given_up_with_what_others_found(
    memory: Memory,
) -> None:
    with memory.gate("recall", "delta"):
        job = memory.submit(memory.question(), timeout_seconds=60)
        alone = memory.submit(memory.question(), project="delta", timeout_seconds=60)
        until(lambda: memory.done(job) == {*PROJECTS} - {"delta"})
        for _ in "12":
            victims = until(lambda: at_work(memory, "delta", job, alone))
            kill(*victims)
            until(lambda gone=victims: not gone & {*memory.pids().values()})
        document, failed = memory.ended(job), memory.ended(alone)

    assert (document["status"], document["attempts"]) == ("partial", 2)
    assert [w["code"] for w in document["warning_details"]] == ["attempts_exhausted"]
    assert document["federation"]["failed"] == 1
    assert document["federation"]["finalized_by"] == "sweep"
    assert (failed["status"], failed["error"]["error"]) == ("failed", "attempts_exhausted")


def test_with_every_worker_stopped_a_job_is_accepted_and_ends_once_they_go_on(
    memory: Memory,
) -> None:
    workers = [pid for name, pid in memory.pids().items() if name != "web"]
    with stopped(workers):
        accepted = memory.service.post(JOBS, {"query": memory.question(), "limit": 50})
        in_vain = memory.submit(memory.question(), timeout_seconds=1)
        failed = memory.ended(in_vain)
    document = memory.ended(accepted.json()["id"])

    assert accepted.status_code == 202
    assert failed["error"]["error"] == "deadline_exceeded"
    assert failed["federation"]["finalized_by"] == "poll"
    assert document["status"] == "completed"


def test_a_job_that_nobody_polls_ends_and_is_stored(memory: Memory) -> None:
    with memory.gate("recall", "delta"):
        job = memory.submit(memory.question(), timeout_seconds=2)
        until(lambda: memory.row(job)[0] != "open", within_s=2 + JOB_LATE_S)
        document = memory.ended(job)

    assert (document["status"], document["federation"]["timed_out"]) == ("partial", 1)
    assert document["projects_searched"] == ["alpha", "bravo", "charlie"]
    assert [w["code"] for w in document["warning_details"]] == ["recall_timeout"]
