"""PostgreSQL and Valkey that a test can kill and start again: `mem up` ends with its own ones."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from app.local.errors import StackError
from app.local.postgres import Postgres
from app.local.processes import Child, ProcessSpec, stop_children
from app.local.valkey import Valkey
from tests.integration.service import until


class OwnServer:
    """One server process; it keeps its files over kills."""

    def __init__(self, prepare: Callable[[], ProcessSpec], is_ready: Callable[[int], bool]) -> None:
        self._prepare = prepare
        self._is_ready = is_ready
        self.start()

    def start(self) -> None:
        end = time.monotonic() + 20
        while True:
            self._child = Child(self._prepare())
            try:
                until(self._has_started, within_s=20)
            except StackError:
                # The processes of the one that was killed are still ending.
                if time.monotonic() > end:
                    raise
            else:
                return

    def _has_started(self) -> bool:
        if not self._child.is_alive():
            raise StackError(self._child.log_tail())
        return self._is_ready(self._child.pid)

    @property
    def pid(self) -> int:
        return self._child.pid

    def kill(self) -> None:
        """End it and its children at once, as a machine that loses its power does."""
        leader = psutil.Process(self._child.pid)
        for process in [leader, *leader.children(recursive=True)]:
            process.send_signal(signal.SIGKILL)
        until(lambda: not self._child.is_alive())

    def stop(self) -> None:
        stop_children([self._child], grace_s=5)


def _nothing() -> None:
    pass


@contextmanager
def own_postgres(folder: Path) -> Iterator[tuple[OwnServer, str]]:
    """A PostgreSQL, and the URL of its database."""
    postgres = Postgres(folder, folder / "postgres.log")
    server = OwnServer(lambda: postgres.prepare(_nothing), postgres.is_ready)
    try:
        yield server, postgres.create_database()
    finally:
        server.stop()


@contextmanager
def own_valkey(folder: Path) -> Iterator[tuple[OwnServer, str]]:
    """A Valkey, and its URL."""
    valkey = Valkey(folder, folder / "valkey.log")
    server = OwnServer(valkey.prepare, lambda _pid: valkey.is_ready())
    try:
        yield server, valkey.url
    finally:
        server.stop()
