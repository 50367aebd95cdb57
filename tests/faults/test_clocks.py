"""Hosts whose clocks are wrong: their workers answer, in time, and readiness says so."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.local.commands import job_worker, query_worker
from config.settings import Settings
from tests.faults.memory import Memory
from tests.integration.service import until

ROOT = Path(__file__).parents[2]


@contextmanager
def worker_elsewhere(
    memory: Memory, folder: Path, command: list[str], shift_s: int
) -> Iterator[int]:
    """A worker on a host in Tokyo whose clock is ahead by so much."""
    environment = memory.environment() | {"SHIFT_S": str(shift_s), "TZ": "Asia/Tokyo"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    with (folder / f"{shift_s}.log").open("a") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=folder
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_workers_whose_clocks_are_wrong_answer_in_time_and_readiness_says_so(
    memory: Memory, tmp_path: Path
) -> None:
    """Minutes lie between the two hosts, and neither agrees with Redis."""
    shutil.copy(Path(__file__).with_name("shifted_clock.py"), tmp_path / "sitecustomize.py")
    settings = Settings(query_concurrency=8)
    commands = [
        (query_worker(settings, 8), 90),
        (query_worker(settings, 9), -90),
        (job_worker(settings, 8), 90),
    ]
    own = [*memory.pids_of("query"), *memory.pids_of("jobs")]
    with ExitStack() as held:
        pids = {
            held.enter_context(worker_elsewhere(memory, tmp_path, command, shift_s))
            for command, shift_s in commands
        }
        until(lambda: pids <= {w["pid"] for w in memory.service.workers()}, within_s=40)
        with memory.deaf(*own):
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
    assert document["latency_ms"] < 5000
    assert clocks["state"] == "degraded"
    assert all(f"{name}@" in clocks["detail"] for name in ("query8", "query9", "jobs8"))
