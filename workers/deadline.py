"""One absolute instant that a whole query must respect, and its end before that."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

Clock = Callable[[], float]

LOOK_S = 0.05


class Cut:
    """The early end of a query's work: made once, from any thread, and never taken back."""

    def __init__(self) -> None:
        self._made = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callable[[], None]] = {}

    @property
    def is_made(self) -> bool:
        return self._made.is_set()

    def make(self) -> None:
        with self._lock:
            self._made.set()
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            callback()

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is made."""
        self._made.wait(seconds)

    @contextmanager
    def on_made(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call back once if it is made inside the block, or at once if it was made before.

        Args:
            callback: called in the thread that makes the cut, so it must be quick and not raise. It
                may still be under way when the block has ended.
        """
        registration = object()
        with self._lock:
            was_made = self.is_made
            if not was_made:
                self._callbacks[registration] = callback
        if was_made:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.pop(registration, None)


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant on this process's monotonic clock, or a cut before it. Durations are seconds."""

    instant: float
    clock: Clock = field(default=time.monotonic, repr=False, compare=False)
    cut: Cut | None = field(default=None, repr=False, compare=False)

    @classmethod
    def after(
        cls, seconds: float, clock: Clock = time.monotonic, cut: Cut | None = None
    ) -> "Deadline":
        return cls(clock() + seconds, clock, cut)

    @classmethod
    def at(
        cls,
        epoch: float,
        wall: Clock = time.time,
        clock: Clock = time.monotonic,
        cut: Cut | None = None,
    ) -> "Deadline":
        """The deadline a message names in wall-clock seconds since the epoch.

        Monotonic clocks do not agree between hosts, so messages carry wall-clock time; it is
        converted once, here, and everything after measures on this process's own clock.
        """
        return cls.after(epoch - wall(), clock, cut)

    def within(self, seconds: float) -> "Deadline":
        """A deadline so long from now, and no later than this one."""
        return replace(self, instant=min(self.instant, self.clock() + seconds))

    def earlier_by(self, seconds: float) -> "Deadline":
        return replace(self, instant=self.instant - seconds)

    @property
    def is_cut(self) -> bool:
        return self.cut is not None and self.cut.is_made

    def remaining(self) -> float:
        """Seconds left, never below 0; none once it is cut."""
        return 0.0 if self.is_cut else max(0.0, self.instant - self.clock())

    def passed(self) -> bool:
        return self.remaining() <= 0.0

    def nap(self) -> float:
        """Seconds to wait before looking again, in a wait that nothing but its timeout ends.

        All that remain, unless a cut may come.
        """
        return self.remaining() if self.cut is None else min(self.remaining(), LOOK_S)

    def on_cut(self, callback: Callable[[], None]) -> AbstractContextManager[None]:
        """As `Cut.on_made`; without a cut, nothing ever calls back."""
        return nullcontext() if self.cut is None else self.cut.on_made(callback)


def merge_reserve(timeout_s: float) -> float:
    """Seconds of a timeout kept back for merging and answering: 5 %, within 0.15 .. 1 s."""
    return min(1.0, max(0.15, 0.05 * timeout_s))
