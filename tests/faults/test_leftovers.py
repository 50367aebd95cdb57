"""Undisturbed queries, by the hundred: each ends by its callback, and nothing is left of it."""

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.integration.service import Service, clean_environment

# Keys that Celery keeps for good: which queue belongs to which exchange, and unacknowledged work.
CELERY_KEYS = (b"_kombu.binding", b"unacked")


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
import os, time
from workers.dispatch import Dispatcher
from workers.celery_app import make_celery
from workers.model import Query, Sending
dispatcher = Dispatcher(make_celery(os.environ["POIMEN_REDIS_URL"]))
for number in range(100):
    sending = Sending(f"nobody-{number}", time.time(), 1.0)
    dispatcher.search_all(Query("unheard"), ["poimen", "agent-rust"], sending)
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
