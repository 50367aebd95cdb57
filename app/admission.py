"""How much of one kind of work a process takes on at once."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from workers.deadline import Clock

LEARN_S = 2.0


class Seats:
    """So many at once; nobody waits for one."""

    def __init__(self, seats: int) -> None:
        self._free = threading.BoundedSemaphore(seats)

    @contextmanager
    def take(self) -> Iterator[bool]:
        """Whether there was a seat; it is given back when the block ends."""
        has_seat = self._free.acquire(blocking=False)
        try:
            yield has_seat
        finally:
            if has_seat:
                self._free.release()


class Tempo:
    """How fast the workers of a queue take what waits in it, by what they say of themselves."""

    def __init__(
        self,
        queue: str,
        workers: Callable[[], Sequence[dict[str, Any]]],
        clock: Clock = time.monotonic,
    ) -> None:
        """workers: what each live one says: queues, slots, and task_s, the length of its tasks."""
        self._queue = queue
        self._workers = workers
        self._clock = clock
        self._learning = threading.Lock()
        self._learned_at = float("-inf")
        self._tasks_per_s: float | None = None

    def wait_s(self, waiting: int) -> float:
        """How long a task behind so many others waits; 0 as long as nobody knows."""
        if waiting == 0:
            return 0.0
        if self._clock() - self._learned_at > LEARN_S and self._learning.acquire(blocking=False):
            try:
                self._tasks_per_s = self._learn()
                self._learned_at = self._clock()
            finally:
                self._learning.release()
        return waiting / self._tasks_per_s if self._tasks_per_s else 0.0

    def _learn(self) -> float:
        return sum(
            float(worker["slots"] / worker["task_s"])
            for worker in self._workers()
            if self._queue in worker["queues"] and worker.get("task_s")
        )
