"""Servers and workers that hang, forget or hang up cost no caller more than its timeout."""

import time
from concurrent.futures import ThreadPoolExecutor

import psutil

from tests.integration.obstacles import pids_of, stopped
from tests.integration.service import Service, until

QUESTION = "why did requests over 10KB fail?"


def test_with_all_workers_stopped_a_question_ends_at_its_deadline(service: Service) -> None:
    workers = [*pids_of(service, "query", 2), *pids_of(service, "merge")]
    with stopped([*workers, *pids_of(service, "ingest")]):
        start = time.monotonic()
        response = service.get("/memory/query", query=QUESTION, timeout_seconds=1)
        took = time.monotonic() - start

        assert response.status_code == 504
        assert response.json()["error"] == "deadline_exceeded"
        assert took < 1.5
    went_on = time.monotonic()
    answer = service.ask(QUESTION, timeout_seconds=2)
    assert answer["results"]
    assert time.monotonic() - went_on < 1


def test_without_its_callback_a_query_is_finalized_by_who_waits(service: Service) -> None:
    with stopped(pids_of(service, "merge")):
        answer = service.ask(QUESTION, timeout_seconds=1)

    assert answer["federation"]["finalized_by"] == "waiter"
    assert answer["projects_searched"] == ["agent-rust", "poimen"]
    assert answer["results"][0]["standing_id"] == "infra-root-causes"
    assert answer["warnings"] == []


def test_valkey_forgetting_everything_costs_nothing_but_the_running_queries(
    service: Service,
) -> None:
    service.ask(QUESTION)
    with service.redis() as redis:
        redis.flushall()

    answer = service.ask(QUESTION)

    assert answer["projects_searched"] == ["agent-rust", "poimen"]
    assert answer["federation"]["finalized_by"] == "callback"


def test_a_database_that_dropped_its_connections_costs_no_answer(service: Service) -> None:
    service.ask(QUESTION)
    with service.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND usename = current_user"
        )

    answer = service.ask(QUESTION)

    assert answer["projects_searched"] == ["agent-rust", "poimen"]
    assert answer["warnings"] == []


def test_a_hanging_valkey_costs_no_caller_more_than_its_timeout(service: Service) -> None:
    with stopped([service.pids["valkey"]]):
        start = time.monotonic()
        response = service.get("/memory/query", query=QUESTION, timeout_seconds=1)
        took = time.monotonic() - start
        ready = service.get("/health/ready")

    assert (response.status_code, response.json()["error"]) == (503, "queue_unavailable")
    assert took < 4
    assert ready.status_code == 503
    assert ready.json()["dependencies"]["redis"]["state"] == "failed"
    until(lambda: service.get("/memory/query", query=QUESTION).status_code == 200)


def test_a_hanging_postgresql_costs_no_caller_more_than_its_timeout(service: Service) -> None:
    postmaster = psutil.Process(service.pids["postgres"])
    with stopped([postmaster.pid, *(child.pid for child in postmaster.children())]):
        start = time.monotonic()
        response = service.get("/memory/query", query=QUESTION, timeout_seconds=3)
        took = time.monotonic() - start

    assert (response.status_code, response.json()["error"]) == (503, "store_unavailable")
    assert took < 4
    until(lambda: service.get("/memory/query", query=QUESTION).status_code == 200)


def test_a_connection_dropped_while_waiting_does_not_begin_the_wait_again(
    service: Service,
) -> None:
    with stopped(pids_of(service, "query", 2)), ThreadPoolExecutor(1) as pool:
        start = time.monotonic()
        asked = pool.submit(service.get, "/memory/query", query=QUESTION, timeout_seconds=3)
        until(lambda: time.monotonic() - start > 1.5)
        with service.redis() as redis:
            redis.client_kill_filter(_type="normal", skipme=True)
        response = asked.result()
        took = time.monotonic() - start

    assert response.status_code in (503, 504)
    assert took < 4


def test_a_lock_held_in_the_database_holds_up_a_submission_for_seconds_only(
    service: Service,
) -> None:
    node = {"level": "L0", "kind": "turn", "source": "s", "text": "locked out"}
    with service.connect() as connection, connection.transaction():
        connection.execute("LOCK TABLE ingest_job IN ACCESS EXCLUSIVE MODE")
        response = service.post("/memory/ingest", {"format": "nodes", "nodes": [node]})

    assert (response.status_code, response.json()["error"]) == (503, "store_unavailable")
