"""Ending a wait for a server that does not answer any more.

A statement timeout is kept by the server itself. A server that hangs, or whose network is gone,
keeps nothing, and libpq then waits for ever. So a thread shuts the socket under an overdue wait.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection

_LOOK_S = 0.1
GRACE_S = 0.25  # the server's own timeout comes first


class Watchdog:
    """One thread for all connections of a process; it sleeps while nobody waits."""

    def __init__(self) -> None:
        self._waits: dict[int, tuple[float, int]] = {}  # by wait: when it is overdue, its socket
        self._lock = threading.Lock()
        self._somebody_waits = threading.Event()
        threading.Thread(target=self._watch, name="database-watchdog", daemon=True).start()

    @contextmanager
    def over(self, connection: Connection[Any], seconds: float) -> Iterator[None]:
        """Whatever waits for this connection inside the block ends, `seconds` from now at most.

        It ends as OperationalError, and the connection is lost.
        """
        wait = object()
        with self._lock:
            overdue_at = time.monotonic() + seconds + GRACE_S
            self._waits[id(wait)] = (overdue_at, connection.fileno())
            self._somebody_waits.set()
        try:
            yield
        finally:
            with self._lock:
                self._waits.pop(id(wait), None)

    def _watch(self) -> None:
        while self._somebody_waits.wait():
            time.sleep(_LOOK_S)
            with self._lock:
                if not self._waits:
                    self._somebody_waits.clear()
                now = time.monotonic()
                for wait, (overdue_at, descriptor) in list(self._waits.items()):
                    if now > overdue_at:
                        del self._waits[wait]
                        _shut(descriptor)


def _shut(descriptor: int) -> None:
    # Under the lock the wait is registered, so the descriptor is still that connection's. Shut, not
    # closed: closing would free the number for another file while libpq still uses it.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as shared:
        shared.shutdown(socket.SHUT_RDWR)
