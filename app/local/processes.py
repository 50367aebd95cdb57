"""Direct children: started, watched, started again when dead, stopped, none left behind."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals

from app.local.errors import StackError
from app.local.signals import wait_until

LOG_LIMIT_BYTES = 10_000_000
SETTLED_S = 60.0
LONGEST_DELAY_S = 30.0
FORCE_S = 2.0
PR_SET_PDEATHSIG = 1
# Looked up before any fork: little is safe to do between fork and exec.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


@dataclass(frozen=True)
class Account:
    """The operating system's account a server runs as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class ProcessSpec:
    """How a child is started and how it is asked to end.

    `stop_signal` asks nicely, `force_signal` no longer does, and `orphan_signal` is what the
    kernel sends (Linux only) when the process that started the child dies without a word.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    cwd: Path
    env: Mapping[str, str] = field(repr=False)
    stop_signal: Signals = signal.SIGTERM
    force_signal: Signals = signal.SIGKILL
    orphan_signal: Signals = signal.SIGTERM
    account: Account | None = None
    pass_fds: tuple[int, ...] = ()


class Child:
    """One running process, leader of its own session."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.started_at = time.monotonic()
        self._is_swept = False
        account = spec.account
        with spec.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=spec.cwd,
                env=dict(spec.env),
                pass_fds=spec.pass_fds,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                umask=0o077,
                start_new_session=True,
                preexec_fn=_end_with_parent(spec.orphan_signal),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_status(self) -> int | None:
        """The exit status, or None while it lives (a stopped one lives).

        What a dead leader left in its process group cannot be reached later, so it ends here.
        """
        status = self._process.poll()
        if status is not None and not self._is_swept:
            self._is_swept = True
            self.signal_group(signal.SIGKILL)
        return status

    def is_alive(self) -> bool:
        return self.exit_status() is None

    def signal(self, number: Signals) -> None:
        self._process.send_signal(number)

    def signal_group(self, number: Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # the group is gone; macOS says so with EPERM while a zombie remains

    def log_tail(self, lines: int = 15) -> str:
        """The last lines this child wrote, for the message that says why it failed."""
        try:
            with self.spec.log.open("rb") as log:
                log.seek(self._log_start)
                return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


class Kept:
    """A child that is started again when it dies, later and later while it keeps dying young."""

    def __init__(self, spec: ProcessSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at = clock()
        self._young_deaths = 0
        self._restart_at: float | None = None
        self.child = Child(spec)

    def tend(self) -> bool:
        """Start the child again if it is dead and its turn has come; True if that was done."""
        if self.child.is_alive():
            return False
        now = self._clock()
        if self._restart_at is None:
            self._restart_at = now + self._delay_s(now - self._started_at)
        if now < self._restart_at:
            return False
        self.child = Child(self.child.spec)
        self._started_at, self._restart_at = now, None
        return True

    def _delay_s(self, lived_s: float) -> float:
        self._young_deaths = 0 if lived_s > SETTLED_S else self._young_deaths + 1
        if self._young_deaths < 2:
            return 0.0
        return min(LONGEST_DELAY_S, 2.0 ** (self._young_deaths - 2))


def stop_children(
    children: Sequence[Child], grace_s: float, is_hurried: Callable[[], bool] = lambda: False
) -> None:
    """Stop children side by side: ask, force after the grace, kill after that."""

    def all_ended() -> bool:
        return not [child for child in children if child.is_alive()]

    def tell(number: Callable[[ProcessSpec], Signals]) -> None:
        for child in children:
            if child.is_alive():
                child.signal(number(child.spec))

    for child in children:
        if child.is_alive():
            child.signal_group(signal.SIGCONT)  # a stopped process hears nothing else
    tell(lambda spec: spec.stop_signal)
    wait_until(lambda: all_ended() or is_hurried(), grace_s)
    tell(lambda spec: spec.force_signal)
    wait_until(all_ended, FORCE_S)
    tell(lambda _spec: signal.SIGKILL)
    wait_until(all_ended, FORCE_S)


def run_to_end(spec: ProcessSpec, check: Callable[[], None]) -> None:
    """Run a short program to its end; a failure shows the end of its log."""
    child = Child(spec)
    try:
        wait_until(lambda: not child.is_alive(), float("inf"), check)
    finally:
        stop_children([child], grace_s=0)
    if child.exit_status():
        raise StackError(f"{spec.name} failed; the end of {spec.log}:\n{child.log_tail()}")


def rotate_log(log: Path) -> None:
    """Put a log that has grown large aside; one older log is kept."""
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


def is_pid_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def find_orphan(pid_file: Path, mark: str) -> int | None:
    """The live process named in a pid file, if `mark` stands in its command line.

    The mark tells a server that outlived its supervisor from a stranger to whom the operating
    system has given the same number since.
    """
    try:
        pid = int(pid_file.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None
    return pid if pid > 0 and mark in _command_line(pid) else None


def end_orphan(pid_file: Path, mark: str, stop_signal: Signals, force_signal: Signals) -> None:
    """End a server that outlived its supervisor: two on the same files would destroy them."""
    steps = ((signal.SIGCONT, 0.0), (stop_signal, 20.0), (force_signal, 5.0), (signal.SIGKILL, 5.0))
    for number, grace_s in steps:
        pid = find_orphan(pid_file, mark)
        if pid is None:
            return
        os.kill(pid, number)
        wait_until(lambda: find_orphan(pid_file, mark) is None, grace_s)
    if find_orphan(pid_file, mark) is not None:
        raise StackError(f"Process {pid} of an earlier run does not end; end it and start again.")


def _command_line(pid: int) -> str:
    # A zombie's is empty, and world-readable is all that a container's root can count on.
    if sys.platform == "linux":
        try:
            text = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return ""
        return text.replace(b"\0", b" ").decode(errors="replace")
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _end_with_parent(number: Signals) -> Callable[[], None] | None:
    """What a child does before its program starts, so that it ends when this process is killed."""
    # The kernel watches the thread that forked, not the process: only the main one lives as long.
    is_main = threading.current_thread() is threading.main_thread()
    if _PRCTL is None or not is_main:
        return None
    parent, prctl = os.getpid(), _PRCTL

    def ask_the_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(1)

    return ask_the_kernel
