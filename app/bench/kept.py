"""A scratch stack that is kept up while its processes are killed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from pydantic import SecretStr

from app.bench.errors import BenchError
from app.bench.scratch import Announce, scratch_folder
from app.local.errors import StopRequested
from app.local.folders import make_own_folder
from app.local.processes import Kept, stop_children
from app.local.signals import StopRequest, wait_until
from app.local.stack import WATCH_S, Stack, StackInfo
from app.local.valkey import Valkey
from config.settings import Settings

VALKEY_START_S = 60.0
VALKEY_STOP_S = 2.0


@dataclass
class KeptStack:
    """A running stack of which whatever dies is started again, as long as it is watched."""

    info: StackInfo
    folder: Path
    valkey_restarts: int
    _stack: Stack
    _valkey: Kept
    _stop_request: StopRequest

    @property
    def valkey_pid(self) -> int:
        return self._valkey.child.pid

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def kill_valkey(self) -> None:
        self._valkey.child.signal(Signals.SIGKILL)

    def watch(self, seconds: float = WATCH_S) -> None:
        """Start again what has died, for so long; from the main thread only.

        Raises:
            KeyboardInterrupt: a signal asked for the end.
        """
        end = time.monotonic() + seconds
        while True:
            if self._stop_request.count:
                raise KeyboardInterrupt
            self._stack.watch()
            self.valkey_restarts += self._valkey.tend()
            left_s = end - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, WATCH_S))

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """For work that does not look at signals itself: one is a KeyboardInterrupt within."""
        with self._stop_request.interrupting():
            yield


@contextmanager
def kept_stack(settings: Settings, announce: Announce) -> Iterator[KeptStack]:
    """A whole stack with these settings, on servers and data of its own; nothing of it stays.

    Its Valkey is kept here, since a stack by itself ends when one of its servers dies.
    """
    stop_request = StopRequest()
    with scratch_folder() as folder, stop_request.listening():
        try:
            with (
                _kept_valkey(folder / "valkey", stop_request) as (valkey, url),
                Stack(_own(settings, folder / "data", url), announce, stop_request) as stack,
            ):
                info = stack.start()
                yield KeptStack(info, folder / "data", 0, stack, valkey, stop_request)
        except StopRequested:
            raise KeyboardInterrupt from None


def _own(settings: Settings, data_dir: Path, redis_url: str) -> Settings:
    return settings.model_copy(
        update={
            "data_dir": data_dir,
            "database_url": None,
            "redis_url": SecretStr(redis_url),
            "embedding_url": None,
            "host": "127.0.0.1",
            "port": 0,
            "log_level": "WARNING",
        }
    )


@contextmanager
def _kept_valkey(folder: Path, stop_request: StopRequest) -> Iterator[tuple[Kept, str]]:
    make_own_folder(folder)
    server = Valkey(folder, folder / "valkey.log")
    kept = Kept(server.prepare())
    try:
        if not wait_until(server.is_ready, VALKEY_START_S, stop_request.check):
            raise BenchError(f"Valkey did not start:\n{kept.child.log_tail()}")
        yield kept, server.url
    finally:
        stop_children([kept.child], VALKEY_STOP_S, stop_request.is_hurried)
        if not server.run_folder.is_relative_to(folder) and server.run_folder.is_dir():
            server.socket.unlink(missing_ok=True)
            server.run_folder.rmdir()
