"""Running the projects of one pack: in turn, but a slow one never holds up the others."""

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 0.1


class Lanes:
    """Threads shared by all packs of a process.

    A pack's items are worked one after the other, which keeps a small machine from thrashing. An
    item that takes longer than the patience goes on in its lane while the next one begins, so each
    has its own time up to the deadline, and nothing is cancelled and begun again.
    """

    def __init__(self, lanes: int, patience_s: float = PATIENCE_S) -> None:
        self._executor = ThreadPoolExecutor(lanes, thread_name_prefix="lane")
        self._patience_s = patience_s

    def run(self, items: Sequence[T], work: Callable[[T], None]) -> None:
        """Work on every item; returns when all are done. `work` must not raise."""
        if len(items) == 1:
            work(items[0])
            return
        futures = []
        for item in items:
            context = contextvars.copy_context()  # the log context of the task goes along
            futures.append(self._executor.submit(context.run, work, item))
            wait(futures[-1:], timeout=self._patience_s)
        for future in futures:
            future.result()
