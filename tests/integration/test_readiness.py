"""What readiness says when ingest or its upkeep is in trouble, and what becomes of the jobs."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.obstacles import pids_of, stopped
from tests.integration.service import Service, running, until

TURN = {"project": "p", "level": "L0", "kind": "turn", "source": "s", "text": "it broke"}
MANY = [TURN | {"text": f"turn number {number} of many"} for number in range(600)]


def dependency(service: Service, name: str) -> dict[str, str]:
    found: dict[str, str] = service.get("/health/ready").json()["dependencies"][name]
    return found


def test_upkeep_runs_and_no_submission_waits(empty_service: Service) -> None:
    said = until(lambda: _upkeep_ran(empty_service))

    assert said["state"] == "ok"
    assert dependency(empty_service, "ingest_backlog")["state"] == "ok"


def test_it_says_how_much_the_memory_holds(service: Service) -> None:
    said = dependency(service, "memory")

    with service.connect() as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()[0][0]
            for table in ("project", "memory_node")
        ]
    assert said == {"state": "ok", "detail": f"{counts[0]} projects, {counts[1]} nodes"}


def _upkeep_ran(service: Service) -> dict[str, str] | None:
    said = dependency(service, "upkeep")
    return said if "last ran" in said["detail"] else None


def test_a_submission_that_waits_for_long_is_told_and_questions_go_on(
    empty_service: Service,
) -> None:
    with stopped(pids_of(empty_service, "ingest")), empty_service.connect() as connection:
        empty_service.post("/memory/ingest", {"format": "nodes", "nodes": [TURN]})
        connection.execute("UPDATE ingest_job SET due_at = now() - interval '90 seconds'")
        response = empty_service.get("/health/ready")

    assert response.status_code == 200
    said = response.json()["dependencies"]["ingest_backlog"]
    assert said["state"] == "degraded"
    assert "1 wait" in said["detail"]


def test_nodes_that_no_word_finds_yet_are_told_until_upkeep_has_analysed_them(
    service: Service,
) -> None:
    assert dependency(service, "words") == {"state": "ok", "detail": "every node has its words"}

    with stopped(pids_of(service, "ingest")), service.connect() as connection:
        connection.execute("DELETE FROM node_terms WHERE project = 'poimen' AND level = 'L1'")
        (row,) = connection.execute(
            "SELECT count(*) FROM memory_node WHERE project = 'poimen' AND level = 'L1'"
        ).fetchall()
        said = dependency(service, "words")

    assert said == {"state": "degraded", "detail": f"{row[0]} nodes without words yet"}
    until(lambda: dependency(service, "words")["state"] == "ok", within_s=40)


@contextmanager
def full_valkey(service: Service) -> Iterator[None]:
    with service.redis() as redis:
        redis.config_set("maxmemory", 1)
        try:
            yield
        finally:
            redis.config_set("maxmemory", 0)


def test_a_valkey_that_is_full_is_not_ready(service: Service) -> None:
    with full_valkey(service):
        response = service.get("/health/ready")

    assert response.status_code == 503
    said = response.json()["dependencies"]["redis"]
    assert (said["state"], "OOM" in said["detail"]) == ("failed", True)
    until(lambda: service.get("/health/ready").status_code == 200)


def test_a_process_that_hangs_over_a_job_is_ended_and_the_job_goes_on() -> None:
    with running(POIMEN_INGEST_STALL_S="3") as service:
        submitted = service.post("/memory/ingest", {"format": "nodes", "nodes": MANY})
        pid = until(lambda: _claimer(service))
        os.kill(pid, signal.SIGSTOP)

        job: dict[str, Any] = service.ended(submitted.json()["id"], within_s=60)

        assert (job["status"], job["attempts"]) == ("completed", 2)
        assert job["files"][0]["received"] == len(MANY)


def _claimer(service: Service) -> int | None:
    with service.connect() as connection:
        row = connection.execute(
            "SELECT claimed_pid FROM ingest_job WHERE status = 'running' AND progress_done > 0"
        ).fetchone()
    return row[0] if row else None
