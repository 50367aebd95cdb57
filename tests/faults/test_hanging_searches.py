"""A search that hangs ends with its query, and leaves nothing running anywhere."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.faults.memory import JOBS, LATE_S, PROJECTS, Memory
from tests.integration.service import until

SOON_S = 2.0  # after the end of its query nothing of it runs any more
REST = {*PROJECTS} - {"delta"}
# What it hangs in, and what becomes of it at the deadline.
HANGS = {
    "recall": ("timed_out", "recall_timeout"),
    "walk": ("timed_out", "walk_timeout"),
    "rerank": ("partial", "rerank_truncated"),
}


@contextmanager
def hanging(memory: Memory, stage: str) -> Iterator[None]:
    holder = memory.models.held("delta") if stage == "rerank" else memory.gate(stage, "delta")
    with holder:
        yield


def hung(memory: Memory) -> list[int]:
    """The processes with a statement or a call that hangs."""
    return memory.at_gate() + memory.calling()


@pytest.mark.parametrize("stage", HANGS)
def test_a_search_that_hangs_costs_its_project_only_and_leaves_nothing_running(
    memory: Memory, stage: str
) -> None:
    status, reason = HANGS[stage]
    with hanging(memory, stage), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(memory.ask, memory.question(), timeout_seconds=2)
        job = memory.submit(memory.question(), timeout_seconds=2)
        response, document = asked.result(), memory.ended(job, timeout_s=2)
        until(lambda: not hung(memory), within_s=SOON_S)

    assert response.status_code == 200
    assert response.elapsed.total_seconds() < 2 + LATE_S
    for said in (response.json(), document):
        assert said["federation"][status] == 1
        assert [(w["project"], w["code"]) for w in said["warning_details"]] == [("delta", reason)]
    assert document["status"] == "partial"


def test_a_question_that_cannot_be_embedded_is_an_error_of_all_its_projects(
    memory: Memory,
) -> None:
    question = memory.question()
    with memory.models.held(question.split()[-1]):
        job = memory.submit(question, timeout_seconds=2)
        document = memory.ended(job)
        until(lambda: not memory.calling(), within_s=SOON_S)

    assert (document["status"], document["results"]) == ("failed", [])
    assert document["error"]["error"] == "embedding_service_unavailable"
    codes = {warning["code"] for warning in document["warning_details"]}
    assert codes == {"embedding_service_unavailable"}


@pytest.mark.parametrize("stage", HANGS)
@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_what_hangs_in_a_job_that_is_ended_early_is_closed_at_once(
    memory: Memory, stage: str, how: str
) -> None:
    with hanging(memory, stage):
        left = memory.models.left
        job = memory.submit(memory.question(), timeout_seconds=60)
        until(lambda: memory.done(job) == REST and hung(memory))
        if how == "cancel":
            ended = memory.delete(job)
        else:
            ended = memory.service.post(f"{JOBS}/{job}/stop", None)
        until(lambda: not hung(memory), within_s=SOON_S)
        assert memory.models.left - left == (stage == "rerank"), "the server saw the call end"

    assert ended.status_code == 200
    document = memory.ended(job)
    assert document["status"] == ("cancelled" if how == "cancel" else "partial")
    assert document == ended.json()
    if how == "stop":
        assert {*document["projects_searched"]} == REST
        assert [w["code"] for w in document["warning_details"]] == ["stopped_by_user"]


def test_the_embedding_of_a_job_that_is_cancelled_is_left_at_once(memory: Memory) -> None:
    question = memory.question()
    with memory.models.held(question.split()[-1]):
        left = memory.models.left
        job = memory.submit(question, timeout_seconds=60)
        until(memory.calling)
        assert memory.delete(job).status_code == 200
        until(lambda: not memory.calling(), within_s=SOON_S)
        # Another worker may have been about to take it over, and was ended as well.
        assert memory.models.left > left

    assert memory.ended(job)["results"] == []


def test_an_answer_with_less_in_it_is_marked_and_never_given_again(memory: Memory) -> None:
    question = memory.question()
    with memory.gate("recall", "delta"):
        job = memory.submit(question, timeout_seconds=3)
        until(lambda: memory.done(job) == REST)
        seen = [memory.read(job)]
        while seen[-1]["is_running"]:
            seen.append(memory.read(job, wait_seconds=1, since=seen[-1]["revision"]))
        document = memory.ended(job)
    healed = memory.ask(question).json()

    for one in seen:
        ids = [(result["project"], result["id"]) for result in one["results"]]
        assert len(ids) == len({*ids}) == 9
        assert one["is_partial"]
        assert {*one["projects_searched"]} == REST
    assert document["status"] == "partial"
    assert healed["projects_searched"] == [*PROJECTS]
    assert healed["warnings"] == []


def test_a_search_that_breaks_ends_the_job_in_time_and_says_what_broke(memory: Memory) -> None:
    """One project raises, one hangs, one loses its message: none of them keeps it from ending."""
    with memory.service.connect() as connection:
        connection.execute("INSERT INTO gate VALUES ('charlie', 'broken')")
        try:
            with memory.gate("recall", "delta"):
                job = memory.submit(memory.question(), timeout_seconds=2)
                document = memory.ended(job)
        finally:
            connection.execute("DELETE FROM gate")

    assert (document["status"], document["projects_searched"]) == ("partial", ["alpha", "bravo"])
    assert [(w["project"], w["code"]) for w in document["warning_details"]] == [
        ("charlie", "internal_error"),
        ("delta", "recall_timeout"),
    ]
