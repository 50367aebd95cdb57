"""A database that dies costs the searches that are in it, and no accepted job."""

from concurrent.futures import ThreadPoolExecutor

from tests.faults.memory import JOBS, Memory
from tests.integration.service import until


def test_a_database_killed_and_started_again_costs_nobody_anything(memory: Memory) -> None:
    """Neither a search that is in it at that moment, nor one that needs it later."""
    with (
        memory.gate("recall", "delta"),
        memory.models.held("charlie"),
        ThreadPoolExecutor(1) as pool,
    ):
        job = memory.submit(memory.question(), projects=["alpha", "delta"], timeout_seconds=40)
        other = memory.submit(memory.question(), projects=["bravo", "charlie"], timeout_seconds=40)
        until(lambda: memory.done(job) == {"alpha"} and memory.done(other) == {"bravo"})
        projects = {"projects": "bravo,charlie"}
        asked = pool.submit(memory.ask, memory.question(), timeout_seconds=20, **projects)
        until(lambda: memory.done(memory.asked() or "") == {"bravo"} and memory.at_gate())
        memory.postgres.kill()  # and with it the lock of the gate
        memory.postgres.start()
        with memory.service.connect() as connection:
            connection.execute("DELETE FROM gate")
        memory.models.let_go("charlie")
        response = asked.result()
        documents = [memory.ended(job), memory.ended(other)]

    assert response.status_code == 200
    assert response.json()["warnings"] == []
    for document in documents:
        assert (document["status"], document["attempts"]) == ("completed", 1)
        assert document["warnings"] == []


def test_a_database_that_is_away_for_long_costs_jobs_nothing_they_have_time_for(
    memory: Memory,
) -> None:
    """The deadline of one passes meanwhile; the other is searched again."""
    with memory.gate("recall", "delta"), memory.models.held("charlie"):
        job = memory.submit(memory.question(), projects=["alpha", "delta"], timeout_seconds=40)
        short = memory.submit(memory.question(), projects=["bravo", "charlie"], timeout_seconds=6)
        until(lambda: memory.done(job) == {"alpha"} and memory.done(short) == {"bravo"})
        until(memory.at_gate)
        memory.postgres.kill()
        refused = memory.service.post(JOBS, {"query": memory.question()})
        until(lambda: memory.done(short) == {"bravo", "charlie"})  # at its deadline
        memory.postgres.start()
        with memory.service.connect() as connection:
            connection.execute("DELETE FROM gate")
        ended = memory.ended(short, timeout_s=2)
    document = memory.ended(job)

    assert (refused.status_code, refused.json()["error"]) == (503, "store_unavailable")
    assert refused.headers["Retry-After"]
    assert (ended["status"], ended["projects_searched"]) == ("partial", ["bravo"])
    assert [w["code"] for w in ended["warning_details"]] == ["store_unavailable"]
    assert (document["status"], document["attempts"]) == ("completed", 1)
    assert document["warnings"] == []
