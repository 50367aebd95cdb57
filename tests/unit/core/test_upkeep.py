"""Which processes are gone, and which hang."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from workers import timetable
from workers.contracts import INGEST_NODES
from workers.pulse import Pulse
from workers.tasks.upkeep import _has_ended


def test_a_process_that_lives_has_not_ended() -> None:
    assert not _has_ended(os.getpid(), datetime.now(UTC))


def test_a_dead_one_has_even_before_its_parent_looks() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert _has_ended(process.pid, datetime.now(UTC))
    assert _has_ended(process.pid, datetime.now(UTC))


def test_a_number_that_was_given_to_another_process_since_is_no_sign_of_life() -> None:
    assert _has_ended(os.getpid(), datetime.now(UTC) - timedelta(days=1000))


@pytest.mark.parametrize(
    ("task", "heard_s", "worked_s", "is_ended"),
    [
        (INGEST_NODES, 9, 100, False),
        (INGEST_NODES, 11, 100, True),
        (INGEST_NODES, 3600, 1, False),  # the last sign is from the job before
        (INGEST_NODES, None, 11, True),
        (INGEST_NODES, None, 1, False),
        ("another", 3600, 3600, False),
    ],
)
def test_a_process_without_a_sign_of_life_in_a_job_is_ended(
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    heard_s: float | None,
    worked_s: float,
    is_ended: bool,
) -> None:
    request = SimpleNamespace(
        name=task, worker_pid=4321, time_start=time.time() - worked_s, id="one"
    )
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(timetable.state, "active_requests", {1: request}.values())
    monkeypatch.setattr(Pulse, "silent_s", lambda _self, _pid: heard_s)
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))

    timetable.end_hung_processes(10.0)

    assert killed == ([(4321, signal.SIGKILL)] if is_ended else [])
