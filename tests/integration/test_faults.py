"""Whatever dies, the caller gets an end in time with what the others found."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.integration.obstacles import pids_of, slow_projects, stopped
from tests.integration.service import Service, clean_environment, until

QUESTION = "why did requests over 10KB fail?"

# Keys that Celery keeps for good: which queue belongs to which exchange, and unacknowledged work.
CELERY_KEYS = (b"_kombu.binding", b"unacked")


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


def test_a_worker_killed_while_it_searches_costs_its_projects_only(service: Service) -> None:
    with slow_projects(service, {"agent-rust": 10}), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(service.ask, QUESTION, timeout_seconds=3)
        victim = until(lambda: _searching_for(service, "agent-rust"))
        os.kill(victim, signal.SIGKILL)
        answer = asked.result()

    assert answer["projects_searched"] == ["poimen"]
    assert answer["warnings"] == ["project 'agent-rust' timed out"]
    assert answer["warning_details"][0]["code"] == "no_answer_by_deadline"
    until(lambda: len(set(pids_of(service, "query", 2)) - {victim}) == 2, within_s=40)
    assert service.ask(QUESTION)["projects_searched"] == ["agent-rust", "poimen"]


def _searching_for(service: Service, project: str) -> int | None:
    """The worker whose database session sleeps inside the policy of `slow_projects`."""
    with service.connect() as connection:
        sleeping = connection.execute(
            "SELECT application_name FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        ).fetchone()
    if sleeping is None:
        return None
    return int(str(sleeping[0]).rpartition("-")[2])


def test_two_hundred_undisturbed_queries_are_all_finalized_by_their_callback(
    service: Service,
) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: service.ask(f"question {n % 20}"), range(200)))

    assert Counter(a["federation"]["finalized_by"] for a in answers) == {"callback": 200}


@pytest.mark.parametrize("count", [500, pytest.param(2000, marks=pytest.mark.long)])
def test_hundreds_of_queries_leave_nothing_behind(service: Service, count: int) -> None:
    def ask(n: int) -> None:
        service.ask(f"question number {n % 50}", **({"project": "poimen"} if n % 2 else {}))

    workers = [psutil.Process(worker["pid"]) for worker in service.workers()]
    with ThreadPoolExecutor(40) as pool:
        list(pool.map(ask, range(400)))  # more at once than there are threads: pools fill up
    with ThreadPoolExecutor(4) as pool:
        before = _held(service)
        memory = [worker.memory_info().rss for worker in workers]
        list(pool.map(ask, range(count)))
        after = _held(service)

    assert after["channels"] <= before["channels"]
    assert after["connections"] <= before["connections"]
    grown = [w.memory_info().rss - rss for w, rss in zip(workers, memory, strict=True)]
    assert max(grown) < 20_000_000, grown
    with service.redis() as redis:
        immortal = [
            key
            for key in redis.scan_iter(count=1000)
            if redis.ttl(key) == -1 and not key.startswith(CELERY_KEYS)
        ]
    assert immortal == []


def _held(service: Service) -> dict[str, int]:
    with service.redis() as redis:
        clients = redis.info("clients")["connected_clients"]
        return {"channels": len(redis.pubsub_channels()), "connections": clients}


def test_a_process_that_dispatched_a_hundred_chords_ends_without_a_word(service: Service) -> None:
    script = """
import os
from workers.dispatch import Dispatcher
from workers.celery_app import make_celery
from workers.model import Query
dispatcher = Dispatcher(make_celery(os.environ["POIMEN_REDIS_URL"]))
for number in range(100):
    dispatcher.search_all(f"nobody-{number}", Query("unheard"), ["poimen", "agent-rust"], 1.0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=clean_environment() | {"POIMEN_REDIS_URL": service.redis_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert (done.stdout, done.stderr) == ("", "")


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
