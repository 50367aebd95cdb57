"""The state folder: one stack at a time, and its state for the command line."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.local import state
from app.local.errors import StackError, StopRequested
from app.local.state import State, exclusive, is_out_of_reach, read_state, write_state

ROOT = Path(__file__).parents[3]
NOBODY = 65534


def state_of(pid: int) -> State:
    return State("http://127.0.0.1:1", "/key", "postgresql://secret", "unix://secret", pid)


def quiet(_text: str) -> None:
    pass


def go_on() -> None:
    pass


@contextmanager
def another_holder(data_dir: Path) -> Iterator[int]:
    code = f"""
import sys
from pathlib import Path
from app.local.state import exclusive
with exclusive(Path({str(data_dir)!r}), print, lambda: None):
    print("held", flush=True)
    sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipes) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
        holder.kill()


def test_the_state_is_read_back_and_only_its_owner_can(tmp_path: Path) -> None:
    write_state(tmp_path, state_of(os.getpid()))

    assert read_state(tmp_path) == state_of(os.getpid())
    assert stat.S_IMODE(state.state_file(tmp_path).stat().st_mode) == 0o600
    assert "secret" not in repr(read_state(tmp_path))


def test_no_state_is_known_without_a_file_or_after_its_writer_died(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()

    assert read_state(tmp_path) is None
    write_state(tmp_path, state_of(ended.pid))
    assert read_state(tmp_path) is None


def test_a_state_file_that_cannot_be_understood_is_no_state(tmp_path: Path) -> None:
    state.state_file(tmp_path).write_text('{"url": 1}')

    assert read_state(tmp_path) is None


@contextmanager
def an_ordinary_account() -> Iterator[None]:
    """Nothing is out of root's reach, so root looks as somebody else."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_the_state_of_another_account_is_out_of_reach(tmp_path: Path) -> None:
    write_state(tmp_path, state_of(os.getpid()))
    assert not is_out_of_reach(tmp_path)
    state.state_file(tmp_path).chmod(0)

    with an_ordinary_account():
        assert read_state(tmp_path) is None
        assert is_out_of_reach(tmp_path)


def test_a_folder_without_a_state_is_not_out_of_reach(tmp_path: Path) -> None:
    assert not is_out_of_reach(tmp_path)
    assert not is_out_of_reach(tmp_path / "absent")


def test_a_second_starter_is_told_where_the_running_one_is(tmp_path: Path) -> None:
    with another_holder(tmp_path) as pid:
        write_state(tmp_path, state_of(pid))
        with (
            pytest.raises(StackError, match=rf"running at http://127.0.0.1:1 \(process {pid}"),
            exclusive(tmp_path, quiet, go_on),
        ):
            pass
        assert read_state(tmp_path) == state_of(pid)


def test_a_second_starter_gives_up_on_one_that_does_not_get_ready(tmp_path: Path) -> None:
    with (
        another_holder(tmp_path) as pid,
        pytest.raises(StackError, match=rf"already starting \(process {pid}"),
        exclusive(tmp_path, quiet, go_on, wait_s=0.1),
    ):
        pass


def test_waiting_for_the_other_starter_can_be_interrupted(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise StopRequested

    with (
        another_holder(tmp_path),
        pytest.raises(StopRequested),
        exclusive(tmp_path, quiet, interrupt),
    ):
        pass


def test_the_lock_of_a_killed_holder_is_free_and_its_state_is_gone(tmp_path: Path) -> None:
    with another_holder(tmp_path):
        pass
    write_state(tmp_path, state_of(1))

    with exclusive(tmp_path, quiet, go_on):
        assert read_state(tmp_path) is None


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with (
        pytest.raises(StackError, match="POIMEN_DATA_DIR"),
        exclusive(tmp_path / "file" / "state", quiet, go_on),
    ):
        pass
