"""Children: watched, started again, stopped; with tiny programs in place of servers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.local import processes
from app.local.errors import StackError
from app.local.processes import Child, Kept, ProcessSpec, stop_children
from app.local.signals import wait_until

WAIT_S = 10.0
SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); time.sleep(600)"
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def spec_of(folder: Path, code: str, name: str = "child") -> ProcessSpec:
    argv = (sys.executable, "-c", code)
    return ProcessSpec(name, argv, folder / f"{name}.log", cwd=folder, env=dict(os.environ))


def started(spec: ProcessSpec) -> Child:
    child = Child(spec)
    assert wait_until(lambda: "up" in child.log_tail(), WAIT_S)
    return child


def kill(child: Child) -> None:
    child.signal(signal.SIGKILL)
    assert wait_until(lambda: not child.is_alive(), WAIT_S)


def is_gone(pid: int) -> bool:
    """Dead, or a zombie that nobody here can reap."""
    stat = Path(f"/proc/{pid}/stat")
    return not processes.is_pid_alive(pid) or (stat.exists() and ") Z" in stat.read_text())


def test_a_dead_child_is_started_again_at_once(tmp_path: Path) -> None:
    kept = Kept(spec_of(tmp_path, SLEEPER))
    first = kept.child
    kill(first)

    assert kept.tend()

    assert kept.child.pid != first.pid
    assert kept.child.is_alive()
    stop_children([kept.child], WAIT_S)


def test_a_living_child_is_left_alone_even_when_it_is_stopped(tmp_path: Path) -> None:
    kept = Kept(spec_of(tmp_path, SLEEPER))
    kept.child.signal(signal.SIGSTOP)

    assert not kept.tend()

    stop_children([kept.child], WAIT_S)
    assert kept.child.exit_status() == -signal.SIGTERM


def test_a_child_that_keeps_dying_young_is_started_later_each_time(tmp_path: Path) -> None:
    clock = Clock()
    kept = Kept(spec_of(tmp_path, SLEEPER), clock)
    restarts = []
    for _ in range(4):
        kill(kept.child)
        died_at = clock.now
        while not kept.tend():
            clock.now += 0.5
        restarts.append(clock.now - died_at)
    stop_children([kept.child], WAIT_S)

    assert restarts == [0.0, 1.0, 2.0, 4.0]


def test_a_child_that_had_settled_is_started_again_without_delay(tmp_path: Path) -> None:
    clock = Clock()
    kept = Kept(spec_of(tmp_path, SLEEPER), clock)
    for _ in range(3):
        kill(kept.child)
        clock.now += processes.SETTLED_S + 1
        assert kept.tend()
    stop_children([kept.child], WAIT_S)


def test_a_stubborn_child_is_killed_after_its_grace(tmp_path: Path) -> None:
    stubborn = started(spec_of(tmp_path, STUBBORN))

    stop_children([stubborn], grace_s=0.1)

    assert stubborn.exit_status() == -signal.SIGKILL


def test_a_hurried_stop_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    stubborn = started(spec_of(tmp_path, STUBBORN))

    stop_children([stubborn], grace_s=600, is_hurried=lambda: True)

    assert stubborn.exit_status() == -signal.SIGKILL


def test_what_a_dead_child_started_does_not_outlive_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys;"
        f"p = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]);"
        "print(p.pid, 'up', flush=True); p.wait()"
    )
    child = started(spec_of(tmp_path, code))
    grandchild = int(next(word for word in child.log_tail().split() if word.isdigit()))

    kill(child)

    assert wait_until(lambda: is_gone(grandchild), WAIT_S)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a death")
def test_children_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from tests.unit.local.test_processes import SLEEPER, spec_of, started
print(started(spec_of(Path({str(tmp_path)!r}), SLEEPER)).pid, flush=True)
time.sleep(600)
"""
    root = Path(__file__).parents[3]
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert supervisor.stdout
    pid = int(supervisor.stdout.readline())

    supervisor.kill()
    supervisor.communicate()

    assert wait_until(lambda: is_gone(pid), WAIT_S)


def test_a_failed_program_shows_the_end_of_its_own_log(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "raise SystemExit('no room on the disk')")
    spec.log.write_text("an older run\n")

    with pytest.raises(StackError, match="no room on the disk") as raised:
        processes.run_to_end(spec, lambda: None)

    assert "an older run" not in str(raised.value)


def test_a_pid_file_of_a_stranger_names_no_orphan(tmp_path: Path) -> None:
    pid_file = tmp_path / "server.pid"
    pid_file.write_text(f"{os.getpid()}\nmore\n")

    assert processes.find_orphan(pid_file, "/no/such/cluster") is None
    assert processes.find_orphan(pid_file, "python") == os.getpid()


def test_a_pid_file_that_was_cut_short_names_no_orphan(tmp_path: Path) -> None:
    (tmp_path / "empty.pid").write_text("")

    assert processes.find_orphan(tmp_path / "empty.pid", "python") is None
    assert processes.find_orphan(tmp_path / "missing.pid", "python") is None


def test_a_large_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOG_LIMIT_BYTES", 3)
    (tmp_path / "small.log").write_text("abc")
    (tmp_path / "large.log").write_text("abcd")

    processes.rotate_log(tmp_path / "small.log")
    processes.rotate_log(tmp_path / "large.log")
    processes.rotate_log(tmp_path / "missing.log")

    assert {path.name for path in tmp_path.iterdir()} == {"small.log", "large.log.1"}
