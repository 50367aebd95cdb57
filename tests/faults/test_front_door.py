"""Whoever waits may leave, and whoever answers may die: the query ends all the same, and once."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from urllib.parse import quote, urlsplit

import psutil
import pytest
import requests

from tests.faults.memory import JOBS, PROJECTS, Memory, kill
from tests.integration.service import until

REST = {*PROJECTS} - {"delta"}


def kill_front_door(memory: Memory) -> None:
    leader = psutil.Process(memory.pids()["web"])
    kill(leader.pid, *(child.pid for child in leader.children(recursive=True)))


@contextmanager
def waiting(memory: Memory, method: str, path: str, body: object = None) -> Iterator[None]:
    """A client of its own connection, which it closes at the end of the block without a word."""
    address = urlsplit(memory.service.url)
    data = json.dumps(body).encode() if body else b""
    head = [
        f"{method} {path} HTTP/1.1",
        f"Host: {address.netloc}",
        f"Authorization: Bearer {memory.service.key}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    ]
    with socket.create_connection((str(address.hostname), int(address.port or 0))) as client:
        client.sendall("\r\n".join([*head, "", ""]).encode() + data)
        yield


def test_clients_that_leave_while_they_wait_change_nothing_for_others(memory: Memory) -> None:
    with memory.gate("recall", "delta") as gate:
        job = memory.submit(memory.question(), timeout_seconds=40)
        until(lambda: memory.done(job) == REST)
        ask = f"/memory/query?timeout_seconds=3&query={quote(memory.question())}"
        with (
            waiting(memory, "GET", ask),
            waiting(memory, "GET", f"{JOBS}/{job}?wait_seconds=2"),
            waiting(memory, "GET", f"{JOBS}/{job}/events"),
            waiting(memory, "POST", JOBS, {"query": memory.question(), "wait_seconds": 2}),
        ):
            until(lambda: memory.open_jobs() == 2 and len(memory.at_gate()) == 3)
        other = memory.ask(memory.question(), project="alpha", timeout_seconds=2)
        gate.open()
        document = memory.ended(job)
        until(lambda: memory.open_jobs() == 0)

    assert other.status_code == 200
    assert (document["status"], document["warnings"]) == ("completed", [])


def test_a_front_door_killed_while_it_waits_costs_its_clients_a_reconnection_only(
    memory: Memory,
) -> None:
    with memory.gate("recall", "delta") as gate, ThreadPoolExecutor(2) as pool:
        job = memory.submit(memory.question(), timeout_seconds=40)
        until(lambda: memory.done(job) == REST)
        polled = pool.submit(memory.read, job, wait_seconds=20)
        asked = pool.submit(memory.ask, memory.question(), timeout_seconds=20)
        until(lambda: len(memory.at_gate()) == 2)
        kill_front_door(memory)
        for broken in (polled, asked):
            with pytest.raises(requests.ConnectionError):
                broken.result()
        gate.open()
        document = memory.ended(job)

    assert (document["status"], document["attempts"]) == ("completed", 1)
    assert document["federation"]["finalized_by"] == "callback"


@pytest.mark.parametrize("count", [3, pytest.param(30, marks=pytest.mark.long)])
def test_a_front_door_killed_right_after_the_202_costs_no_job(memory: Memory, count: int) -> None:
    """Also of the submissions that were under way, each was accepted or leaves nothing."""
    with ThreadPoolExecutor(count) as pool:
        accepted = memory.submit(memory.question(), timeout_seconds=40)
        others = [
            pool.submit(memory.submit, memory.question(), timeout_seconds=40) for _ in range(count)
        ]
        kill_front_door(memory)
        jobs = [accepted]
        for other in others:
            with suppress(requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                jobs.append(other.result())

    for job in jobs:
        assert memory.ended(job)["status"] == "completed"


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.long)])
def test_whoever_ends_a_job_at_the_same_moment_as_others_ends_it_the_same(
    memory: Memory, rounds: int
) -> None:
    """Eight stops meet each other and the callback."""

    def stop(job: str) -> bytes:
        response = memory.service.post(f"{JOBS}/{job}/stop", None)
        assert response.status_code == 200, response.text
        return response.content

    with ThreadPoolExecutor(8) as pool:
        for _ in range(rounds):
            with memory.gate("recall", "delta") as gate:
                job = memory.submit(memory.question(), timeout_seconds=40)
                until(lambda job=job: memory.done(job) == REST)
                gate.open()
                stopped = {*pool.map(stop, [job] * 8)}
            assert len(stopped) == 1
            document = memory.ended(job)
            assert json.loads(stopped.pop()) == document
            assert document["status"] in ("completed", "partial")


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.long)])
def test_a_cancel_that_meets_the_end_leaves_one_end_that_never_changes(
    memory: Memory, count: int
) -> None:
    question = memory.question()
    memory.ask(question)

    def cancel(n: int) -> tuple[str, str]:
        job = memory.submit(question, timeout_seconds=40)
        until(lambda: len(memory.done(job)) >= n % 5 or memory.row(job)[0] != "open")
        responses = [
            requests.delete(
                f"{memory.service.url}{JOBS}/{job}?if_running=true",
                headers={"Authorization": f"Bearer {memory.service.key}"},
                timeout=40,
            )
            for _ in "12"
        ]
        assert [response.status_code for response in responses] == [200, 200]
        said = [response.json()["status"] for response in responses]
        assert len({*said}) == 1
        return job, said[0]

    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(cancel, range(count)))

    for job, said in ended:
        document = memory.read(job)
        assert document["status"] == said == memory.row(job)[0]
        assert len(document["results"]) == (12 if said == "completed" else 0)
    assert {said for _, said in ended} <= {"completed", "cancelled"}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_unknown_job_and_a_removed_one_are_told_from_one_that_waits(
    memory: Memory, method: str
) -> None:
    removed = memory.submit(memory.question(), timeout_seconds=40)
    memory.ended(removed)
    assert memory.delete(removed).status_code == 204

    said = {}
    for job in ("0123456789abcdef" * 2, removed, "not-an-id"):
        headers = {"Authorization": f"Bearer {memory.service.key}"}
        response = requests.request(
            method, f"{memory.service.url}{JOBS}/{job}", headers=headers, timeout=40
        )
        said[job] = (response.status_code, response.json()["error"])

    assert [*said.values()] == [
        (404, "job_not_found"),
        (410, "job_expired"),
        (404, "job_not_found"),
    ]
