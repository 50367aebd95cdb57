"""The embedded stack with the real PostgreSQL and Valkey."""

import errno
import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
import redis

from app.local import binaries, state
from app.local.errors import StackError, StopRequested
from app.local.processes import is_pid_alive
from app.local.signals import StopRequest, wait_until
from app.local.state import read_state
from tests.integration.local.conftest import NOBODY, Served, accounts, open_folder
from tests.integration.local.serve import make_stack

WAIT_S = 20.0
Serve = Callable[..., Served]


def value(url: str, query: str) -> Any:
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    assert row
    return row[0]


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement)


def is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not is_pid_alive(pid) or (stat.exists() and ") Z" in stat.read_text())


def all_pids(info: dict[str, Any]) -> list[int]:
    pids = info["pids"]
    return [*pids["web"], *pids["workers"], pids["postgres"], pids["valkey"]]


def processes_of(data_dir: Path) -> list[str]:
    """Command lines of living processes that work on a state folder."""
    found = subprocess.run(
        ["ps", "axww", "-o", "args="], capture_output=True, text=True, check=True
    )
    lines = [line for line in found.stdout.splitlines() if str(data_dir) in line]
    return [line for line in lines if line.split()[0].endswith(("/postgres", "/valkey-server"))]


@pytest.fixture(params=accounts())
def as_nobody(request: pytest.FixtureRequest) -> Path | None:
    return request.getfixturevalue("open_python") if request.param == "nobody" else None


@pytest.fixture
def own_dir(open_dir: Path, as_nobody: Path | None) -> Path:
    if as_nobody:
        os.chown(open_dir, NOBODY.pw_uid, NOBODY.pw_gid)
    return open_dir


@pytest.fixture(scope="module")
def stack_url() -> Iterator[str]:
    with open_folder() as folder, make_stack(folder / "state", StopRequest()) as stack:
        yield stack.start().database_url


@pytest.fixture(scope="module")
def used_dir() -> Iterator[Path]:
    """The state folder of a stack that has run before; making one is the slow part of a start."""
    with open_folder() as folder:
        with make_stack(folder / "state", StopRequest()) as stack:
            stack.start()
        yield folder / "state"


def test_a_first_start_serves_and_a_second_one_finds_what_was_stored(
    own_dir: Path, as_nobody: Path | None, serve: Serve
) -> None:
    served = serve(own_dir / "state", as_nobody=as_nobody)
    first = served.info()
    run(first["database_url"], "CREATE TABLE note AS SELECT 'kept' AS text")
    redis.Redis.from_url(first["redis_url"]).set("key", "kept")
    assert urllib.request.urlopen(f"{first['url']}/health").status == 200
    if as_nobody is None:
        state = read_state(own_dir / "state")
        assert state
        assert (state.url, state.pid) == (first["url"], served.process.pid)

    assert served.end() == 0

    assert all(is_gone(pid) for pid in all_pids(first))
    assert not (own_dir / "state" / "state.json").exists()
    served = serve(own_dir / "state", as_nobody=as_nobody)
    second = served.info()
    assert value(second["database_url"], "SELECT text FROM note") == "kept"
    assert redis.Redis.from_url(second["redis_url"]).get("key") == b"kept"
    assert served.end(signal.SIGINT) == 0


def test_a_long_path_moves_only_the_sockets(
    own_dir: Path, as_nobody: Path | None, serve: Serve
) -> None:
    data_dir = own_dir / ("d" * 100) / "state"

    served = serve(data_dir, as_nobody=as_nobody)
    info = served.info()

    assert value(info["database_url"], "SELECT 1") == 1
    assert redis.Redis.from_url(info["redis_url"]).ping()
    socket = Path(redis.Redis.from_url(info["redis_url"]).get_connection_kwargs()["path"])
    assert not socket.is_relative_to(data_dir)
    assert served.end() == 0
    assert not socket.parent.exists()


def test_the_application_is_no_superuser_and_row_level_security_binds_it(stack_url: str) -> None:
    run(
        stack_url,
        "CREATE TABLE secret AS SELECT generate_series(1, 3) AS n",
        "ALTER TABLE secret ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE secret FORCE ROW LEVEL SECURITY",
        "CREATE POLICY few ON secret USING (n < 2)",
    )

    assert value(stack_url, "SELECT count(*) FROM secret") == 1
    assert value(stack_url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        value(stack_url, "SELECT pg_read_file('postmaster.pid')")


def test_a_wrong_password_is_refused(stack_url: str) -> None:
    wrong = psycopg.conninfo.make_conninfo(stack_url, password="wrong")

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("data_checksums", "on"),
        ("listen_addresses", ""),
        ("max_connections", "400"),
        ("dynamic_shared_memory_type", "mmap"),
        ("jit", "off"),
        ("TimeZone", "UTC"),
    ],
)
def test_the_server_is_configured(stack_url: str, name: str, expected: str) -> None:
    assert value(stack_url, f"SHOW {name}") == expected


def test_texts_have_the_same_order_on_every_system_and_vectors_can_be_indexed(
    stack_url: str,
) -> None:
    run(
        stack_url,
        "CREATE TABLE item (v vector(3))",
        "INSERT INTO item SELECT ARRAY[n, 1, 2]::vector FROM generate_series(1, 50) n",
        "CREATE INDEX ON item USING hnsw (v vector_cosine_ops)",
        "SET hnsw.iterative_scan = relaxed_order",
    )

    assert value(stack_url, "SELECT lower('Ä') = 'ä' AND 'B' < 'a'") is True


def test_rows_and_keys_survive_when_everything_is_killed(used_dir: Path, serve: Serve) -> None:
    served = serve(used_dir)
    info = served.info()
    run(info["database_url"], "CREATE TABLE killed AS SELECT 'kept' AS text")
    queue = redis.Redis.from_url(info["redis_url"])
    queue.set("key", "kept")
    queue.execute_command("WAITAOF", 1, 0, 5000)

    served.process.send_signal(signal.SIGSTOP)  # it must not notice before it is killed
    for pid in (info["pids"]["postgres"], info["pids"]["valkey"], served.process.pid):
        os.kill(pid, signal.SIGKILL)
    served.process.wait()

    again = serve(used_dir).info()
    assert value(again["database_url"], "SELECT text FROM killed") == "kept"
    assert redis.Redis.from_url(again["redis_url"]).get("key") == b"kept"


def test_a_killed_supervisor_leaves_nothing_in_the_way(used_dir: Path, serve: Serve) -> None:
    served = serve(used_dir)
    first = served.info()

    assert served.end(signal.SIGKILL) == -signal.SIGKILL

    second = serve(used_dir).info()
    assert all(is_gone(pid) for pid in all_pids(first))
    assert len(processes_of(used_dir)) == 2
    assert value(second["database_url"], "SELECT 1") == 1


def test_servers_that_outlived_their_supervisor_are_replaced(
    used_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a system whose kernel does not tell children that their parent is dead.
    monkeypatch.setattr("app.local.processes._PRCTL", None)
    child = os.fork()
    if child == 0:
        make_stack(used_dir, StopRequest()).start()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(processes_of(used_dir)) == 2

    with make_stack(used_dir, StopRequest()) as stack:
        info = stack.start()
        assert value(info.database_url, "SELECT 1") == 1
        assert redis.Redis.from_url(info.redis_url).ping()
        assert len(processes_of(used_dir)) == 2

    assert processes_of(used_dir) == []


@pytest.mark.parametrize("first_line", ["own", "dead", "cut short"])
def test_a_stale_pid_file_is_no_obstacle(used_dir: Path, first_line: str) -> None:
    with make_stack(used_dir, StopRequest()) as stack:
        stack.start()
        pid_file = used_dir / "postgres" / "18" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()[1:]
    # The test's parent lives, is a stranger, and is not the server's own parent.
    numbers = {"own": str(os.getppid()), "dead": "999999999", "cut short": ""}
    text = "" if first_line == "cut short" else "\n".join([numbers[first_line], *lines])
    pid_file.write_text(text)
    owner = pid_file.parent.stat()
    os.chown(pid_file, owner.st_uid, owner.st_gid)

    with make_stack(used_dir, StopRequest()) as stack:
        assert value(stack.start().database_url, "SELECT 1") == 1


def test_of_four_starters_at_once_one_runs_and_the_others_name_it(
    open_dir: Path, serve: Serve
) -> None:
    starters = [serve(open_dir / "state") for _ in range(4)]

    def ended() -> list[Served]:
        return [starter for starter in starters if starter.process.poll() is not None]

    assert wait_until(lambda: len(ended()) == 3, WAIT_S)

    (running,) = [starter for starter in starters if starter not in ended()]
    info = running.info()
    for starter in ended():
        assert starter.process.returncode == 1
        errors = starter.errors()
        assert f"already running at {info['url']} (process {running.process.pid}" in errors
    assert value(info["database_url"], "SELECT 1") == 1


def test_a_dead_worker_is_replaced_and_a_stopped_one_is_not(used_dir: Path, serve: Serve) -> None:
    data_dir = used_dir
    served = serve(data_dir)
    info = served.info()
    (worker,) = info["pids"]["workers"]
    (web,) = info["pids"]["web"]

    def pids(kind: str) -> Any:
        state = read_state(data_dir)
        assert state
        return state.pids[kind]

    os.kill(worker, signal.SIGKILL)
    assert wait_until(lambda: pids("workers") != [worker], WAIT_S)
    os.kill(web, signal.SIGKILL)
    assert wait_until(lambda: pids("web") != [web], WAIT_S)
    assert urllib.request.urlopen(f"{info['url']}/health", timeout=WAIT_S).status == 200

    (replaced,) = pids("workers")
    os.kill(replaced, signal.SIGSTOP)
    assert served.end() == 0  # also a stopped one ends
    assert is_gone(replaced)


@pytest.mark.parametrize("server", ["postgres", "valkey"])
def test_the_death_of_a_server_ends_the_stack_and_is_told(
    used_dir: Path, serve: Serve, server: str
) -> None:
    served = serve(used_dir)
    info = served.info()

    os.kill(info["pids"][server], signal.SIGKILL)

    assert served.process.wait(timeout=WAIT_S) == 1
    assert "ended (status -9)" in served.errors()
    assert processes_of(used_dir) == []


def test_a_full_disk_ends_nothing_that_runs_and_is_told_once(
    used_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(used_dir / "state.json.new"))
    said: list[str] = []
    with make_stack(used_dir, StopRequest()) as stack:
        stack._announce = said.append
        info = stack.start()
        write_state = state.write_state
        monkeypatch.setattr(state, "write_state", Mock(side_effect=full))
        os.kill(info.pids.workers[0], signal.SIGKILL)

        def is_started_again() -> bool:
            stack.watch()
            return stack._pids().workers != info.pids.workers

        assert wait_until(is_started_again, WAIT_S)
        for _ in range(3):
            stack.watch()
        assert [line for line in said if "hindered" in line] == [f"Going on, but hindered: {full}"]
        monkeypatch.setattr(state, "write_state", write_state)
        stack.watch()
        found = read_state(used_dir)
        assert found
        assert found.pids["workers"] == stack._pids().workers


def test_a_start_on_a_full_disk_names_the_folder_and_the_reason(
    used_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(state, "write_state", Mock(side_effect=full))

    said = f"{re.escape(str(used_dir))} cannot be used .No space left on device."
    with pytest.raises(StackError, match=said), make_stack(used_dir, StopRequest()) as stack:
        stack.start()

    assert processes_of(used_dir) == []


def test_a_worker_that_cannot_start_ends_the_start_with_the_end_of_its_log(
    used_dir: Path, serve: Serve
) -> None:
    served = serve(used_dir, "--worker", "raise SystemExit('no model here')")

    assert served.process.wait(timeout=WAIT_S) == 1
    assert "no model here" in served.errors()
    assert processes_of(used_dir) == []


def test_a_signal_while_starting_leaves_nothing_behind(used_dir: Path, serve: Serve) -> None:
    served = serve(used_dir)
    assert wait_until(lambda: bool(processes_of(used_dir)), WAIT_S)

    assert served.end() == 0
    assert processes_of(used_dir) == []


@pytest.mark.parametrize("after", ["PostgreSQL", "Database"])
def test_a_stop_between_two_parts_is_clean(used_dir: Path, after: str) -> None:
    stop_request = StopRequest()
    stack = make_stack(used_dir, stop_request)

    def stop_then(text: str) -> None:
        stop_request.count += text.startswith(after)

    stack._announce = stop_then
    with pytest.raises(StopRequested), stack:
        stack.start()

    assert processes_of(used_dir) == []


def test_servers_of_the_settings_are_used_and_none_is_started(
    used_dir: Path, stack_url: str
) -> None:
    urls = {"database_url": stack_url, "redis_url": "redis://127.0.0.1:1"}

    with make_stack(used_dir, StopRequest(), **urls) as stack:
        info = stack.start()

    assert (info.database_url, info.redis_url) == tuple(urls.values())
    assert (info.pids.postgres, info.pids.valkey) == (0, 0)


def test_a_taken_port_is_told(used_dir: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        stack = make_stack(used_dir, StopRequest(), port=port)
        with pytest.raises(StackError, match=rf"port {port} .*takes a free one"), stack:
            stack.start()


def test_without_any_server_program_the_choices_are_named(
    used_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "_package_folder", lambda name: None)
    monkeypatch.setattr(binaries, "_system_postgres", lambda: None)

    with (
        pytest.raises(StackError, match="POIMEN_DATABASE_URL"),
        make_stack(used_dir, StopRequest()) as stack,
    ):
        stack.start()


def test_data_of_another_major_version_is_not_overlooked(open_dir: Path) -> None:
    (open_dir / "state" / "postgres" / "17").mkdir(parents=True)

    with (
        pytest.raises(StackError, match="data of PostgreSQL 17"),
        make_stack(open_dir / "state", StopRequest()) as stack,
    ):
        stack.start()


def test_a_stack_can_be_started_from_a_thread(used_dir: Path) -> None:
    answers: list[Any] = []

    def use() -> None:
        with make_stack(used_dir, StopRequest()) as stack:
            answers.append(value(stack.start().database_url, "SELECT 1"))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()

    assert answers == [1]


if os.geteuid() == 0:

    def test_a_state_folder_which_the_account_cannot_enter_is_refused_unchanged(
        tmp_path: Path,
    ) -> None:
        tmp_path.chmod(0o700)

        with (
            pytest.raises(StackError, match=r"cannot enter .*POIMEN_DATA_DIR"),
            make_stack(tmp_path / "state", StopRequest()) as stack,
        ):
            stack.start()

        assert list(tmp_path.iterdir()) == []
        assert tmp_path.stat().st_mode & 0o777 == 0o700

    def test_files_which_the_account_cannot_reach_are_copied_once(
        open_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import shutil

        found = binaries.find_postgres()
        assert found
        for folder in found.folders:
            shutil.copytree(found.base / folder, tmp_path / folder, symlinks=True)
        closed = binaries.replace(
            found, bin=tmp_path / found.bin.relative_to(found.base), base=tmp_path
        )
        tmp_path.chmod(0o700)
        monkeypatch.setattr("app.local.postgres.find_postgres", lambda: closed)

        for _ in range(2):
            with make_stack(open_dir / "state", StopRequest()) as stack:
                assert value(stack.start().database_url, "SELECT 1") == 1

        copies = list((open_dir / "state" / "postgres").glob("files-*"))
        assert [copy.name for copy in copies] == [f"files-{found.version}-0.6.0"]
        assert tmp_path.stat().st_mode & 0o777 == 0o700
