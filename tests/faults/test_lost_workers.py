"""A worker that dies costs no answer: not the others' hits, and of a job not even its own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.faults.memory import LATE_S, PROJECTS, Memory, kill
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
