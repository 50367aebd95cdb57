"""A database that dies costs the searches that are in it, and no accepted job."""

from concurrent.futures import ThreadPoolExecutor

from tests.faults.memory import JOBS, PROJECTS, Memory
from tests.integration.service import until

REST = {*PROJECTS} - {"delta"}


def test_a_database_killed_and_started_again_costs_a_job_nothing(memory: Memory) -> None:
    with memory.models.held("delta"), ThreadPoolExecutor(1) as pool:
        job = memory.submit(memory.question(), timeout_seconds=40)
        until(lambda: memory.done(job) == REST and memory.calling())
        asked = pool.submit(memory.ask, memory.question(), timeout_seconds=20)
        until(lambda: len(memory.done(memory.asked() or "")) == len(REST))
        memory.postgres.kill()
        refused = memory.service.post(JOBS, {"query": memory.question()})
        memory.postgres.start()
        memory.models.let_go("delta")
        response = asked.result()
        document = memory.ended(job)

    assert (refused.status_code, refused.json()["error"]) == (503, "store_unavailable")
    assert refused.headers["Retry-After"]
    assert response.status_code == 200
    assert response.json()["warnings"] == []
    assert (document["status"], document["warnings"], document["attempts"]) == ("completed", [], 1)


def test_a_search_that_was_in_a_database_that_died_is_tried_again_while_there_is_time(
    memory: Memory,
) -> None:
    with memory.gate("recall", "delta"):
        job = memory.submit(memory.question(), timeout_seconds=40)
        until(lambda: memory.done(job) == REST and memory.at_gate())
        memory.postgres.kill()  # and with it the lock of the gate
        memory.postgres.start()
        with memory.service.connect() as connection:
            connection.execute("DELETE FROM gate")
        document = memory.ended(job)

    assert (document["status"], document["warnings"]) == ("completed", [])


def test_a_job_whose_answer_cannot_be_stored_is_ended_once_it_can(memory: Memory) -> None:
    with memory.models.held("delta"):
        job = memory.submit(memory.question(), timeout_seconds=3)
        until(lambda: memory.done(job) == REST)
        memory.postgres.kill()
        until(lambda: memory.done(job) == {*PROJECTS})  # at its deadline
        memory.postgres.start()
        document = memory.ended(job)

    assert document["status"] == "partial"
    assert {*document["projects_searched"]} >= REST
