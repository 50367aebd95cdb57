"""Ending a wait for a server that does not answer any more, or whose answer nobody wants any more.

A statement timeout is kept by the server itself. A server that hangs, or whose network is gone,
keeps nothing, and libpq then waits for ever. So a thread shuts the socket under an overdue wait.
The same thread asks the server to cancel a statement whose query was cut.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection

from workers.deadline import Cut

_LOOK_S = 0.1
GRACE_S = 0.25  # the server's own timeout comes first
_CANCEL_S = 1.0


@dataclass(eq=False, slots=True)
class _Wait:
    connection: Connection[Any]
    descriptor: int
    overdue_at: float
    cut: Cut | None


class Watchdog:
    """One thread for all connections of a process; it sleeps while nobody waits."""

    def __init__(self) -> None:
        self._waits: set[_Wait] = set()
        self._lock = threading.Lock()
        self._somebody_waits = threading.Event()
        threading.Thread(target=self._watch, name="database-watchdog", daemon=True).start()

    @contextmanager
    def over(
        self, connection: Connection[Any], seconds: float, cut: Cut | None = None
    ) -> Iterator[None]:
        """Whatever waits for this connection inside the block ends, `seconds` from now at most.

        It ends as OperationalError, and the connection is lost. A cut ends it as well: as
        QueryCanceled, or like the above if the server does not react. The connection is lost too.
        """
        overdue_at = time.monotonic() + seconds + GRACE_S
        wait = _Wait(connection, connection.fileno(), overdue_at, cut)
        with self._lock:
            self._waits.add(wait)
            self._somebody_waits.set()
        try:
            yield
        finally:
            with self._lock:
                self._waits.discard(wait)
            if cut is not None and cut.is_made:
                # A cancel may still be on its way, and must not meet this session's next statement.
                connection.close()

    def _watch(self) -> None:
        while self._somebody_waits.wait():
            time.sleep(_LOOK_S)
            with self._lock:
                if not self._waits:
                    self._somebody_waits.clear()
                now = time.monotonic()
                for wait in list(self._waits):
                    if wait.cut is not None and wait.cut.is_made:
                        # At every look: one that comes before its statement cancels nothing.
                        _cancel(wait.connection)
                        wait.overdue_at = min(wait.overdue_at, now + GRACE_S)
                    if now > wait.overdue_at:
                        self._waits.discard(wait)
                        _shut(wait.descriptor)


def _cancel(connection: Connection[Any]) -> None:
    # In a thread of its own, since it talks to the server, which may hang, and others wait.
    def ask() -> None:
        with contextlib.suppress(psycopg.Error):
            connection.cancel_safe(timeout=_CANCEL_S)

    threading.Thread(target=ask, name="database-cancel", daemon=True).start()


def _shut(descriptor: int) -> None:
    # Under the lock the wait is registered, so the descriptor is still that connection's. Shut, not
    # closed: closing would free the number for another file while libpq still uses it.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as shared:
        shared.shutdown(socket.SHUT_RDWR)
