"""Signals as a wish to stop, looked at where stopping is safe."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from app.local.errors import StopRequested

POLL_S = 0.02


class StopRequest:
    """Counts the signals that ask for the end: one means stop, two mean stop faster.

    The handler only counts: an exception raised from it could fall between starting a child and
    remembering it, and leave that child behind.
    """

    def __init__(self) -> None:
        self.count = 0
        self._interrupts = False

    def check(self) -> None:
        """Raise StopRequested once a signal has come."""
        if self.count:
            raise StopRequested

    def is_hurried(self) -> bool:
        return self.count > 1

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Count SIGINT, SIGTERM and SIGHUP; only the main thread of a process can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within it a signal is a KeyboardInterrupt: for code that does not call check."""
        self.check()
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._interrupts:
            self._interrupts = False
            raise KeyboardInterrupt


def wait_until(
    is_done: Callable[[], bool],
    timeout_s: float,
    check: Callable[[], None] = lambda: None,
    poll_s: float = POLL_S,
) -> bool:
    """Wait for a condition, at most `timeout_s`; `check` may end the wait by raising."""
    deadline = time.monotonic() + timeout_s
    while not is_done():
        check()
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True
