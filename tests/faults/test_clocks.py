"""Hosts whose clocks are wrong: their workers answer, in time, and readiness says so."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.local.commands import job_worker, merge_worker, query_worker
from config.settings import Settings
from tests.faults.memory import Memory
from tests.integration.service import until

ROOT = Path(__file__).parents[2]


@contextmanager
def workers_elsewhere(memory: Memory, folder: Path, shift_s: float) -> Iterator[list[int]]:
    """A query, a job and a merge worker of a host in Tokyo, whose clock is ahead by so much."""
    shutil.copy(Path(__file__).with_name("shifted_clock.py"), folder / "sitecustomize.py")
    settings = Settings(query_concurrency=8)
    shift = {"SHIFT_S": str(shift_s), "TZ": "Asia/Tokyo"}
    path = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    commands = [query_worker(settings, 9), job_worker(settings, 9), merge_worker(settings)]
    commands[2][commands[2].index("merge@%h")] = "merge9@%h"
    log = (folder / "workers.log").open("w")
    processes = [
        subprocess.Popen(
            command,
            env=memory.environment() | shift | path,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
        for command in commands
    ]
    pids = [process.pid for process in processes]
    try:
        until(lambda: {*pids} <= {w["pid"] for w in memory.service.workers()}, within_s=40)
        yield pids
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=20)


@pytest.mark.parametrize("shift_s", [90, -90])
def test_workers_whose_clock_is_wrong_answer_in_time_and_readiness_says_so(
    memory: Memory, tmp_path: Path, shift_s: float
) -> None:
    own = [pid for name, pid in memory.pids().items() if name not in ("web", "background")]
    with workers_elsewhere(memory, tmp_path, shift_s) as pids, memory.deaf(*own):
        response = memory.ask(memory.question(), timeout_seconds=5)
        job = memory.submit(memory.question(), timeout_seconds=20)
        document = memory.ended(job)
        clocks = memory.service.get("/health/ready").json()["dependencies"]["clocks"]

    assert response.status_code == 200, response.text
    for said in (response.json(), document):
        assert said["warnings"] == []
        assert said["federation"]["finalized_by"] == "callback"
        for project in said["federation"]["projects"]:
            assert project["pid"] in pids
            assert 0 <= project["took_ms"] < 5000
            assert 0 <= project["queue_ms"] < 5000
    assert response.elapsed.total_seconds() < 3
    assert document["latency_ms"] < 3000
    assert clocks["state"] == "degraded"
    assert all(f"{name}9@" in clocks["detail"] for name in ("query", "jobs", "merge"))
