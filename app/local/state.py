"""The state folder: who runs here, and where to reach it."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from app.local.errors import StackError
from app.local.folders import make_data_dir, write_private
from app.local.processes import is_pid_alive
from app.local.signals import wait_until

# As long as an orderly stop may take: a start right after a stop should just work.
LOCK_WAIT_S = 20.0


@dataclass(frozen=True)
class State:
    """What a running stack says of itself; only its own account can read it."""

    url: str
    key_file: str
    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    pid: int
    pids: Mapping[str, int | list[int]] = field(default_factory=dict)


def state_file(data_dir: Path) -> Path:
    return data_dir / "state.json"


def key_file(data_dir: Path) -> Path:
    return data_dir / "key"


def read_state(data_dir: Path) -> State | None:
    """The state of the stack running here, or None when none is (or not ours to know)."""
    try:
        state = State(**json.loads(state_file(data_dir).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return state if is_pid_alive(state.pid) else None


def is_out_of_reach(data_dir: Path) -> bool:
    """Whether the state here is another account's, so that nobody but it can tell what runs."""
    try:
        state_file(data_dir).open().close()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def write_state(data_dir: Path, state: State) -> None:
    write_private(state_file(data_dir), json.dumps(asdict(state)))


def remove_state(data_dir: Path) -> None:
    state_file(data_dir).unlink(missing_ok=True)


@contextmanager
def exclusive(
    data_dir: Path,
    announce: Callable[[str], None],
    check: Callable[[], None],
    wait_s: float = LOCK_WAIT_S,
) -> Iterator[None]:
    """Be the only stack in a data folder, creating it if need be.

    Waits while the other one is still starting or already stopping; a running one is an error at
    once. The operating system lets go of the lock however this process ends.

    Raises:
        StackError: another one runs here, or the folder cannot be written.
    """
    try:
        make_data_dir(data_dir)
        lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StackError(
            f"{data_dir} cannot be used ({error.strerror}): set POIMEN_DATA_DIR to another folder."
        ) from error
    try:
        _take(lock, data_dir, announce, check, wait_s)
        # Where the last one was killed its state is still there, and its number may be reused.
        remove_state(data_dir)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)


def _take(
    lock: int,
    data_dir: Path,
    announce: Callable[[str], None],
    check: Callable[[], None],
    wait_s: float,
) -> None:
    if _try_lock(lock):
        return
    if read_state(data_dir) is None:
        announce(f"Another mem up is starting or stopping in {data_dir}; waiting for it")
    owned = False

    def is_settled() -> bool:
        nonlocal owned
        owned = _try_lock(lock)
        return owned or read_state(data_dir) is not None

    wait_until(is_settled, wait_s, check)
    if owned:
        return
    state = read_state(data_dir)
    pid = os.pread(lock, 20, 0).decode() or "unknown"
    doing = f"running at {state.url}" if state else "starting"
    raise StackError(
        f"A memory is already {doing} (process {pid}, {data_dir}): use that one, stop it, or set "
        f"POIMEN_DATA_DIR to another folder."
    )


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
