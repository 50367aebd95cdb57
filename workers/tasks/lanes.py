"""Working through the projects of one pack so that slow ones cost the others nothing."""

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from workers.deadline import Deadline

T = TypeVar("T")

FIRST_ROUND = 0.5  # share of the time in which every project gets its first try


class Lanes:
    """Two rounds, and threads for the second that all packs of a process share.

    First every item is tried in turn with a share of half the time, which is far more than a quick
    one needs; what a quick one leaves over is shared by the rest. Then those that were not done in
    it are tried again, side by side, with all the time that remains. However many are slow, each
    quick item has been worked on; only slow ones wait for each other's lanes.
    """

    def __init__(self, lanes: int) -> None:
        self._executor = ThreadPoolExecutor(lanes, thread_name_prefix="lane")

    def run(
        self, items: Sequence[T], work: Callable[[T, Deadline], bool], deadline: Deadline
    ) -> None:
        """Work on every item; returns when all have had their time, or soon after a cut.

        Args:
            work: says whether it is done with an item or should get it again; must not raise. With
                the deadline itself it is always done.
        """
        if len(items) == 1:
            work(items[0], deadline)
            return
        slow: list[T] = []
        first_round = deadline.within(FIRST_ROUND * deadline.remaining())
        for index, item in enumerate(items):
            share = first_round.remaining() / (len(items) - index)
            if not work(item, deadline.within(share)):
                slow.append(item)
        futures: list[Future[bool]] = []
        for item in slow:
            context = contextvars.copy_context()  # the log context of the task goes along
            futures.append(self._executor.submit(context.run, work, item, deadline))
        with deadline.on_cut(lambda: _leave(futures)):
            for future in futures:
                with suppress(CancelledError):
                    future.result()


def _leave(futures: Sequence[Future[bool]]) -> None:
    # Those under way end by themselves. The others would wait for lanes that others' work holds.
    for future in futures:
        future.cancel()
