"""`mem bench soak`: every question ends in time while workers and Valkey are killed."""

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service import MEM, clean_environment

SET_UP_S = 180


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where temporary files go; the account of PostgreSQL must be able to enter it."""
    folder = Path(tempfile.mkdtemp(prefix="poimen-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def start(scratch: Path, seconds: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [MEM, "bench", "soak", "--seconds", str(seconds), "--format", "json"],
        env=clean_environment() | {"TMPDIR": str(scratch), "POIMEN_DATA_DIR": str(scratch / "d")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_in(scratch: Path) -> set[str]:
    # onnxruntime leaves a session id of 51 bytes wherever it is imported.
    return {path.name for path in scratch.iterdir()} - {".ses"}


@pytest.mark.parametrize(
    ("seconds", "killed", "growth_mb", "connections"),
    [
        pytest.param(60, 3, 100, 25, id="a minute"),
        pytest.param(900, 27, 100, 25, id="fifteen minutes", marks=pytest.mark.long),
    ],
)
def test_whatever_is_killed_every_question_ends_in_time_and_no_job_is_lost(
    seconds: int, killed: int, growth_mb: int, connections: int, scratch: Path
) -> None:
    run = start(scratch, seconds)
    said, told = run.communicate(timeout=seconds + SET_UP_S)

    assert run.returncode == 0, told
    report: dict[str, Any] = json.loads(said)
    assert (report["unanswered"], report["late"], report["jobs_lost"]) == (0, 0, 0), told
    assert report["broken_promises"] == 0, told
    # Which revision a job has is not known while Redis is away.
    assert report["revisions_back"] <= 3 * report["valkey_restarts"], told
    assert report["answered_with_hits"] >= 0.8 * report["requests"] > 0, told
    assert report["errors_5xx"] <= 0.05 * report["requests"], report["errors_5xx_by_code"]
    assert report["errors_5xx_without_retry_after"] == 0, report["errors_5xx_by_code"]
    assert report["jobs_accepted"] > 0
    assert (report["workers_killed"], report["valkey_restarts"]) == (killed, 1)
    assert report["rss_growth_mb"] < growth_mb, report["memory_mb"]
    assert report["connections_growth"] < connections, report["connections"]
    assert left_in(scratch) == set()


@pytest.mark.long
def test_an_interrupted_soak_stops_its_servers_and_leaves_nothing_behind(scratch: Path) -> None:
    run = start(scratch, 60)
    assert run.stderr is not None
    for line in run.stderr:
        if "had died" in line:
            break

    run.send_signal(signal.SIGINT)
    said, told = run.communicate(timeout=60)

    assert run.returncode == 130, told
    assert said == ""
    assert left_in(scratch) == set()
    still = subprocess.run(["pgrep", "-f", str(scratch)], capture_output=True, text=True)
    assert still.stdout == ""
