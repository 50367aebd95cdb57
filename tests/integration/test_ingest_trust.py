"""Accepted files end stored, once, whatever is killed, emptied or stopped meanwhile."""

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg
import pytest
import requests

from tests.faults.models import DIMENSION, Models
from tests.faults.servers import OwnServer, own_postgres, own_valkey
from tests.integration.callers import Caller
from tests.integration.obstacles import pids_of, stopped
from tests.integration.service import Service, running, state_dir, until
from tests.integration.uploads import (
    INGEST,
    begin,
    check_whole,
    claude,
    codex,
    nodes,
    pi,
    submit_files,
    take,
    take_one,
    texts,
)
from tests.unit.ingest.session_files import cc_result, cc_user, file_of

PAGE = "\n\n".join(f"## Part {n}\n\n{f'reef {n} ' * 50}" for n in range(80)).encode()
TURNS = [f"turn {n} of the ebb" for n in range(200)]
FILES = {
    "a.jsonl": claude(TURNS),
    "reef.md": PAGE,
    "b.jsonl": pi(TURNS[:150], "s-2"),
    "c.jsonl": codex([*TURNS[:20], "yes", "no", "yes"], "s-3"),
}


@dataclass(frozen=True)
class Stack:
    service: Service
    postgres: OwnServer
    valkey: OwnServer
    models: Models


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """A service on servers that a test may kill."""
    folder = state_dir()
    with ExitStack() as held:
        models = Models()
        held.callback(models.close)
        postgres, database_url = held.enter_context(own_postgres(folder))
        valkey, redis_url = held.enter_context(own_valkey(folder))
        settings = {
            "POIMEN_DATABASE_URL": database_url,
            "POIMEN_REDIS_URL": redis_url,
            "POIMEN_EMBEDDING_URL": models.url,
            "POIMEN_RERANK_URL": models.url,  # nothing is prepared for the embedded one
            "POIMEN_EMBEDDING_MODEL": "words",
            "POIMEN_EMBEDDING_DIMENSION": str(DIMENSION),
        }
        service = held.enter_context(running(**settings))
        yield Stack(service, postgres, valkey, models)


@pytest.fixture
def stack(own_stack: Stack) -> Stack:
    until(lambda: pids_of(own_stack.service, "ingest"), within_s=60)
    own_stack.service.empty()
    return own_stack


@pytest.fixture
def service(stack: Stack) -> Service:
    return stack.service


def web_workers(service: Service) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(service.process.pid).children():
        with suppress(psutil.Error):
            if any("gunicorn" in part for part in process.cmdline()):
                found += process.children()
    return found


def kill_web_and_empty_valkey(service: Service, rounds: int) -> None:
    """An accepted submission, whose web process dies at once, and whose message is lost."""
    ids = []
    with stopped(pids_of(service, "ingest")):
        for number in range(rounds):
            ids.append(begin(service, {"a.md": PAGE}, project=f"p-{number}"))
            killed = web_workers(service)
            assert killed
            for process in killed:
                process.kill()
            with service.redis() as redis:
                redis.flushall()
            until(lambda: _answers(service), within_s=30)

    jobs = [service.ended(job_id, within_s=120) for job_id in ids]

    assert [job["status"] for job in jobs] == ["completed"] * rounds
    for number in range(rounds):
        assert len(nodes(service, f"p-{number}")) == 81
    check_whole(service)


def _answers(service: Service) -> bool:
    with suppress(requests.RequestException):
        return service.get("/health").status_code == 200
    return False


def test_an_accepted_file_outlives_its_web_process_and_an_emptied_queue(service: Service) -> None:
    kill_web_and_empty_valkey(service, 4)


@pytest.mark.long
def test_fifty_accepted_files_outlive_their_web_process_and_queue(service: Service) -> None:
    kill_web_and_empty_valkey(service, 50)


def kill_at_random(service: Service, models: Models, kills: int, seed: int) -> None:
    """The process is killed at some point of each job; what is stored is what it should be."""
    chance = random.Random(seed)
    take(service, FILES, project="p")
    wanted = nodes(service)
    for _ in range(kills):
        service.empty()
        job_id = begin(service, FILES, project="p")
        share = chance.random()
        until(lambda j=job_id, s=share: _is_so_far(service, j, s), within_s=60)
        threading.Event().wait(chance.random() * 0.05)
        _kill_claimer(service, job_id)

        job = service.ended(job_id, within_s=90)

        assert job["status"] == "completed", job
        assert nodes(service) == wanted
        check_whole(service)


def _is_so_far(service: Service, job_id: str, share: float) -> bool:
    with service.connect() as connection:
        row = connection.execute("SELECT count(*) FROM memory_node").fetchone()
    assert row is not None
    ended = service.get(f"{INGEST}/{job_id}").json()["status"] == "completed"
    return bool(row[0] >= share * 450 or ended)


def _kill_claimer(service: Service, job_id: str) -> None:
    with service.connect() as connection:
        query = "SELECT claimed_pid FROM ingest_job WHERE id = %s AND status = 'running'"
        for (pid,) in connection.execute(query, [job_id]).fetchall():
            os.kill(pid, signal.SIGKILL)


def test_a_killed_process_costs_nothing_and_doubles_nothing(stack: Stack) -> None:
    kill_at_random(stack.service, stack.models, 5, seed=7)


@pytest.mark.long
def test_fifty_killed_processes_cost_nothing_and_double_nothing(stack: Stack) -> None:
    kill_at_random(stack.service, stack.models, 50, seed=8)


def test_twenty_submissions_outlive_a_database_that_is_away_for_a_while(stack: Stack) -> None:
    service = stack.service
    files = {f"page-{n}.md": PAGE.replace(b"reef", f"reef{n}".encode()) for n in range(20)}
    ids = [begin(service, {name: data}, project="p") for name, data in files.items()]
    until(lambda: texts(service))

    stack.postgres.kill()
    refused = submit_files(service, {"x.md": PAGE}, project="p")
    threading.Event().wait(4)
    stack.postgres.start()

    jobs = [_ended(service, job_id) for job_id in ids]
    assert (refused.status_code, refused.json()["error"]) == (503, "store_unavailable")
    assert [(job["status"], job["error"]) for job in jobs] == [("completed", None)] * 20
    assert max(job["attempts"] for job in jobs) <= 2
    assert len(nodes(service)) == 20 * 81
    check_whole(service)


def _ended(service: Service, job_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        with suppress(requests.RequestException, KeyError, psycopg.Error):
            response = service.get(f"{INGEST}/{job_id}")
            if response.status_code == 200 and response.json()["finished_at"]:
                return dict(response.json())
        return None

    return until(look, within_s=120)


def test_files_are_taken_by_the_same_workers_after_valkey_was_started_again(stack: Stack) -> None:
    service = stack.service
    before = pids_of(service, "ingest")
    take_one(service, PAGE, "a.md")

    stack.valkey.kill()
    job_id = begin(service, {"b.md": PAGE}, project="p")
    stack.valkey.start()

    assert service.ended(job_id, within_s=60)["status"] == "completed"
    assert pids_of(service, "ingest") == before


def ingest_processes(service: Service) -> list[psutil.Process]:
    return [
        child
        for pid in pids_of(service, "ingest")
        for child in psutil.Process(pid).children(recursive=True)
    ]


def test_a_line_of_forty_megabytes_costs_a_few_times_its_size(service: Service) -> None:
    """And the process that read it reads the next file."""
    (process,) = ingest_processes(service)
    take_one(service, claude(TURNS[:2]))
    before = process.memory_info().rss
    rows = "".join(f"row {n:07}: value {n * 7}\n" for n in range(1_700_000))
    lines = [
        cc_user(0, None, "Show me the rows. walrus", sessionId="s-9", uuid="w-0"),
        cc_result(1, 0, "c1", rows, sessionId="s-9", uuid="w-1", parentUuid="w-0"),
        cc_user(2, 1, "Too many. narwhal", sessionId="s-9", uuid="w-2", parentUuid="w-1"),
    ]
    data = file_of(lines)
    assert len(data) > 40_000_000
    peak = [before]
    ends = threading.Event()

    def watch() -> None:
        while not ends.wait(0.02):
            peak.append(process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    caller = Caller(service, service.key)
    accepted = caller.send(
        "POST", INGEST, data={"project": "p"}, files=[("files", ("rows.jsonl", data))]
    )
    job = service.ended(accepted.json()["id"])
    ends.set()
    watcher.join()

    assert job["status"] == "completed", json.dumps(job)
    found = texts(service)
    assert sum("walrus" in text or "narwhal" in text for text in found) == 2
    assert sum(len(text) for text in found) < 5_000
    assert max(peak) - before < 10 * len(data)
    assert take_one(service, PAGE, "next.md")["status"] == "completed"
    assert ingest_processes(service) == [process]
