"""What a short statement tells of all projects, remembered for a few seconds in this process."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from workers.deadline import Clock, Deadline

T = TypeVar("T")

_KNOWN_FOR_S = 5.0
_READ_S = 2.0


class Remembered(Generic[T]):
    """A value that is read again once it is too old."""

    def __init__(self, read: Callable[[Deadline], T], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._value: T | None = None

    def value(self, deadline: Deadline) -> T | None:
        """None: it was never read, and another thread is at it until the deadline.

        Raises:
            DeadlineExceeded, StoreUnavailable: as any read.
        """
        # One thread reads. The others go on with what is known, so that a slow database is waited
        # for once and not by each of them in turn; before anything is known, they wait for it.
        is_first = self._read_at == float("-inf")
        if self._is_stale() and self._lock.acquire(timeout=deadline.remaining() if is_first else 0):
            try:
                if self._is_stale():
                    self._value = self._read(deadline.within(_READ_S))
                    self._read_at = self._clock()
            finally:
                self._lock.release()
        return self._value

    def _is_stale(self) -> bool:
        return self._clock() - self._read_at > _KNOWN_FOR_S
