"""`mem up` with the real workers and the real web server."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.local.processes import is_pid_alive
from app.local.signals import wait_until
from app.local.state import read_state

ROOT = Path(__file__).parents[3]
MEM = [sys.executable, "-c", "from app.cli import main; main()"]
WAIT_S = 30.0
STOP_S = 20.0


@contextmanager
def mem_up(data_dir: Path, *options: str) -> "Iterator[subprocess.Popen[str]]":
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("POIMEN_")}
    process = subprocess.Popen(
        [*MEM, "up", *options],
        cwd=ROOT,
        env=inherited | {"POIMEN_DATA_DIR": str(data_dir)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=STOP_S)


def test_one_line_tells_when_it_is_ready_and_a_signal_to_it_alone_ends_everything(
    open_dir: Path,
) -> None:
    data_dir = open_dir / "state"
    with mem_up(data_dir, "--format", "json") as process:
        assert process.stdout
        ready = json.loads(process.stdout.readline())
        assert list(ready) == ["url", "key_file", "database_url", "redis_url", "pids"]
        key = Path(ready["key_file"])
        assert key.stat().st_mode & 0o777 == 0o600
        assert urllib.request.urlopen(f"{ready['url']}/health/ready").status == 200
        request = urllib.request.Request(
            f"{ready['url']}/memory/projects",
            headers={"Authorization": f"Bearer {key.read_text().strip()}"},
        )
        assert urllib.request.urlopen(request).status == 200

        workers = ready["pids"]["workers"]
        os.kill(workers[0], signal.SIGKILL)

        def is_replaced() -> bool:
            state = read_state(data_dir)
            return state is not None and state.pids["workers"] != workers

        assert wait_until(is_replaced, WAIT_S)
        process.terminate()
        rest, errors = process.communicate(timeout=STOP_S)

    assert (process.returncode, rest, errors) == (0, "", "")
    pids = ready["pids"]
    started = [*pids["web"], *pids["workers"], pids["postgres"], pids["valkey"]]
    assert not [pid for pid in started if is_pid_alive(pid)]


def test_a_start_that_fails_says_why_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")

    with mem_up(tmp_path / "file" / "state") as process:
        _, errors = process.communicate(timeout=WAIT_S)

    assert process.returncode == 1
    assert "POIMEN_DATA_DIR" in errors
