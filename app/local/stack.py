"""The embedded stack: everything the service needs, as children of this process."""

import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from app.local import commands, state
from app.local.errors import StackError, StopRequested
from app.local.folders import make_own_folder
from app.local.postgres import Postgres
from app.local.processes import Child, Kept, ProcessSpec, rotate_log, stop_children
from app.local.signals import StopRequest, wait_until
from app.local.valkey import Valkey
from config.settings import Settings

QUEUES = ("query", "jobs", "merge", "ingest")
# Recovery after a crash may replay a lot; a server that lives is waited for.
SERVER_START_S = 600.0
SERVICE_START_S = 180.0
CONNECTIONS_END_S = 20.0
CANARY_S = 2.0
POLL_S = 0.1
WATCH_S = 0.25
# With the seconds that forcing takes, these stay below the 20 s within which `mem up` ends.
WEB_STOP_S = commands.GRACEFUL_S + 0.5
WORKERS_STOP_S = 4.0
VALKEY_STOP_S = 2.0
POSTGRES_STOP_S = 4.0


@dataclass(frozen=True)
class Preparation:
    """What the stack needs done between its parts; `app.wiring` does it."""

    check_database: Callable[[str], object]
    check_redis: Callable[[str], object]
    migrate: Callable[[str], None]
    ensure_local_key: Callable[[str, Path], None]
    tell_content: Callable[[str], str]
    live_workers: Callable[[str], list[dict[str, Any]]]
    canary: Callable[[str, str, float], bool]


@dataclass(frozen=True)
class Pids:
    """The stack's processes; 0 where a server is not the stack's own."""

    web: list[int]
    workers: list[int]
    postgres: int
    valkey: int


@dataclass(frozen=True)
class StackInfo:
    """Where a running stack is reached."""

    url: str
    key_file: Path
    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    pids: Pids

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "key_file": str(self.key_file)})


class Stack:
    """Starts the parts in order, keeps them running and stops them in the opposite order.

    A database or a Redis named by the settings is used as it is and not started. Start from the
    main thread: on Linux the kernel ends the children when the thread that started them ends.
    """

    def __init__(
        self,
        settings: Settings,
        announce: Callable[[str], None],
        stop_request: StopRequest,
        preparation: Preparation | None = None,
        web_command: Callable[[Settings, int], list[str]] = commands.web_command,
        worker_commands: Callable[[Settings], dict[str, list[str]]] = commands.worker_commands,
    ) -> None:
        # Children run elsewhere, so a relative folder must be made absolute here.
        self._data_dir = settings.data_dir.resolve()
        self._settings = settings.model_copy(update={"data_dir": self._data_dir})
        self._announce = announce
        self._stop_request = stop_request
        self._preparation = preparation or _wiring()
        self._web_command = web_command
        self._worker_commands = worker_commands
        self._held = ExitStack()
        self._postgres: Child | None = None
        self._valkey: Child | None = None
        self._workers: list[Kept] = []
        self._web: list[Kept] = []
        self._info: StackInfo | None = None
        self._is_published = False
        self._hindrances: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> StackInfo:
        """Start everything; returns once a canary went through every queue.

        Raises:
            StackError: a part cannot start; the end of its log is in the message.
            PoimenError: a database or a Redis that cannot be used.
            StopRequested: a signal came meanwhile.
        """
        try:
            return self._start()
        except OSError as error:
            place, reason = error.filename or self._data_dir, error.strerror or error
            raise StackError(
                f"{place} cannot be used ({reason}): mend that, or set POIMEN_DATA_DIR to another"
                f" folder."
            ) from error

    def _start(self) -> StackInfo:
        settings, prepare = self._settings, self._preparation
        postgres = (
            None if settings.database_url else Postgres(self._data_dir, self._log("postgres"))
        )
        valkey = None if settings.redis_url else Valkey(self._data_dir, self._log("valkey"))
        check = self._stop_request.check
        self._held.enter_context(state.exclusive(self._data_dir, self._announce, check))
        listening = self._held.enter_context(_listen(settings.host, settings.port))
        make_own_folder(self._data_dir / "logs")
        for log in (self._data_dir / "logs").glob("*.log"):
            rotate_log(log)
        database_url = self._start_postgres(postgres)
        redis_url = self._start_valkey(valkey)
        prepare.check_database(database_url)
        prepare.check_redis(redis_url)
        prepare.migrate(database_url)
        key_file = state.key_file(self._data_dir)
        prepare.ensure_local_key(database_url, key_file)
        self._announce(f"Database schema ready: {prepare.tell_content(database_url)}")
        check()
        self._start_service(listening.fileno(), database_url, redis_url)
        self._wait_for_workers(redis_url)
        url = self._wait_for_web(listening)
        self._info = StackInfo(url, key_file, database_url, redis_url, self._pids())
        self._publish(self._info)
        return self._info

    def watch(self) -> None:
        """Start dead workers and a dead web server again; to be called every WATCH_S.

        Raises:
            StackError: PostgreSQL or Valkey has died.
        """
        for server in (self._postgres, self._valkey):
            if server and not server.is_alive():
                raise StackError(_obituary(server))
        for kept in (*self._web, *self._workers):
            with self._going_on():
                if kept.tend():
                    name, pid = kept.child.spec.name, kept.child.pid
                    self._is_published = False
                    self._announce(f"{name} had died; started again (process {pid})")
        if self._info and not self._is_published:
            self._info = replace(self._info, pids=self._pids())
            with self._going_on():
                self._publish(self._info)

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """A full disk or no memory for a fork ends nothing that runs; it is said once."""
        try:
            yield
        except OSError as error:
            hindrance = str(error)
            if hindrance not in self._hindrances:
                self._hindrances.add(hindrance)
                self._announce(f"Going on, but hindered: {hindrance}")

    def stop(self) -> None:
        """Stop web server, workers, Valkey and PostgreSQL, in this order; nothing stays behind."""
        if self._info:  # otherwise the state is another stack's
            with suppress(OSError):  # what runs must end all the same
                state.remove_state(self._data_dir)
        steps = (
            ([kept.child for kept in self._web], WEB_STOP_S),
            ([kept.child for kept in self._workers], WORKERS_STOP_S),
            ([self._valkey] if self._valkey else [], VALKEY_STOP_S),
            ([self._postgres] if self._postgres else [], POSTGRES_STOP_S),
        )
        for children, grace_s in steps:
            stop_children(children, grace_s, self._stop_request.is_hurried)
        self._held.close()

    def _start_postgres(self, postgres: Postgres | None) -> str:
        if postgres is None:
            return _secret(self._settings.database_url)
        self._held.callback(self._remove_if_short, postgres.run_folder)
        spec = postgres.prepare(self._stop_request.check)
        deadline = time.monotonic() + CONNECTIONS_END_S
        while True:
            self._postgres = Child(spec)
            is_ready = partial(postgres.is_ready, self._postgres.pid)
            try:
                self._wait_for([self._postgres], is_ready, SERVER_START_S)
                break
            except StackError as error:
                # The connections of a server that was killed a moment ago are still ending.
                if "still in use" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)
        url = postgres.create_database()
        self._announce(f"PostgreSQL {postgres.version} ready")
        return url

    def _start_valkey(self, valkey: Valkey | None) -> str:
        if valkey is None:
            return _secret(self._settings.redis_url)
        self._held.callback(self._remove_if_short, valkey.run_folder)
        self._valkey = Child(valkey.prepare())
        self._wait_for([self._valkey], valkey.is_ready, SERVER_START_S)
        self._announce("Valkey ready")
        return valkey.url

    def _remove_if_short(self, run_folder: Path) -> None:
        """Remove a socket folder that had to be outside of the state folder."""
        if not run_folder.is_relative_to(self._data_dir):
            with suppress(OSError):  # a server that was killed leaves files in it, for the next one
                run_folder.rmdir()

    def _start_service(self, listening_fd: int, database_url: str, redis_url: str) -> None:
        env = _service_environment(self._settings, database_url, redis_url)
        for name, argv in self._worker_commands(self._settings).items():
            self._workers.append(Kept(self._spec(name, argv, env)))
        argv = self._web_command(self._settings, listening_fd)
        self._web.append(Kept(replace(self._spec("web", argv, env), pass_fds=(listening_fd,))))

    def _wait_for_workers(self, redis_url: str) -> None:
        children = [kept.child for kept in self._workers]
        started = {child.pid for child in children}

        def all_registered() -> bool:
            workers = self._preparation.live_workers(redis_url)
            # A pool's process may be the one that registers; its session tells whose it is.
            return started <= {_session_of(int(worker["pid"])) for worker in workers}

        self._wait_for(children, all_registered, SERVICE_START_S)
        for queue in QUEUES:
            has_answered = partial(self._preparation.canary, redis_url, queue, CANARY_S)
            self._wait_for(children, has_answered, SERVICE_START_S)
        self._announce(f"{len(children)} workers ready")

    def _wait_for_web(self, listening: socket.socket) -> str:
        host, port = _reachable_address(listening)
        children = [kept.child for kept in self._web]
        self._wait_for(children, lambda: _is_answering(host, port), SERVICE_START_S)
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._announce(f"Web server ready at {url}")
        return url

    def _wait_for(
        self, children: Sequence[Child], is_done: Callable[[], bool], timeout_s: float
    ) -> None:
        def check() -> None:
            self._stop_request.check()
            for child in children:
                if not child.is_alive():
                    raise StackError(_obituary(child))

        if not wait_until(is_done, timeout_s, check, POLL_S):
            names = ", ".join(child.spec.name for child in children)
            tails = "\n".join(child.log_tail() for child in children)
            raise StackError(f"Not ready within {timeout_s:.0f} s: {names}\n{tails}")

    def _publish(self, info: StackInfo) -> None:
        known = state.State(
            url=info.url,
            key_file=str(info.key_file),
            database_url=info.database_url,
            redis_url=info.redis_url,
            pid=os.getpid(),
            pids=asdict(info.pids),
        )
        state.write_state(self._data_dir, known)
        self._is_published = True

    def _pids(self) -> Pids:
        return Pids(
            web=[kept.child.pid for kept in self._web],
            workers=[kept.child.pid for kept in self._workers],
            postgres=self._postgres.pid if self._postgres else 0,
            valkey=self._valkey.pid if self._valkey else 0,
        )

    def _log(self, name: str) -> Path:
        return self._data_dir / "logs" / f"{name}.log"

    def _spec(self, name: str, argv: list[str], env: dict[str, str]) -> ProcessSpec:
        return ProcessSpec(name, tuple(argv), self._log(name), cwd=self._data_dir, env=env)


@contextmanager
def running_stack(settings: Settings, announce: Callable[[str], None]) -> Iterator[StackInfo]:
    """A whole stack for the time of a block; a signal ends the block as a KeyboardInterrupt.

    Nothing is started again within the block: whatever dies there stays dead.
    """
    stop_request = StopRequest()
    with stop_request.listening(), Stack(settings, announce, stop_request) as stack:
        try:
            info = stack.start()
            with stop_request.interrupting():
                yield info
        except StopRequested:
            raise KeyboardInterrupt from None


def _wiring() -> Preparation:
    # Imported late: it brings in the database and queue clients of the whole front door.
    from app import wiring

    return Preparation(
        check_database=wiring.check_database,
        check_redis=wiring.check_redis,
        migrate=wiring.migrate,
        ensure_local_key=wiring.ensure_local_key,
        tell_content=wiring.tell_content,
        live_workers=wiring.live_workers,
        canary=wiring.canary,
    )


def _service_environment(settings: Settings, database_url: str, redis_url: str) -> dict[str, str]:
    """The environment of workers and web server: the settings of this process, and the servers."""
    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    given |= {"database_url": database_url, "redis_url": redis_url, "data_dir": settings.data_dir}
    # They run in the state folder, from where an installation by path must be named.
    source = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        **{f"POIMEN_{name.upper()}": _as_text(value) for name, value in given.items()},
        "PYTHONPATH": os.pathsep.join(source),
        "PYTHONUNBUFFERED": "1",
        # More threads per matrix product only take cores from other questions.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return _secret(value) if isinstance(value, SecretStr) else str(value)


def _secret(value: SecretStr | None) -> str:
    return value.get_secret_value() if value else ""


@contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        is_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        advice = "`mem up --port 0` takes a free one" if is_port else "correct POIMEN_HOST"
        reason = (error.strerror or "").partition(" (while ")[0]
        raise StackError(
            f"Nothing can listen on {host} port {port} ({reason}): {advice}."
        ) from error
    with listening:
        yield listening


def _reachable_address(listening: socket.socket) -> tuple[str, int]:
    host, port = listening.getsockname()[:2]
    every, itself = ("::", "::1") if ":" in host else ("0.0.0.0", "127.0.0.1")  # noqa: S104
    return (itself if host == every else host), port


def _is_answering(host: str, port: int) -> bool:
    connection = HTTPConnection(host, port, timeout=CANARY_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _obituary(child: Child) -> str:
    status = child.exit_status()
    end = f"{child.spec.name} ended (status {status}); the end of {child.spec.log}:"
    return f"{end}\n{child.log_tail()}"
