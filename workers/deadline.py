"""One absolute instant that a whole query must respect."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant on this process's monotonic clock. Durations are seconds."""

    instant: float
    clock: Clock = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def after(cls, seconds: float, clock: Clock = time.monotonic) -> "Deadline":
        return cls(clock() + seconds, clock)

    @classmethod
    def at(cls, epoch: float, wall: Clock = time.time, clock: Clock = time.monotonic) -> "Deadline":
        """The deadline a message names in wall-clock seconds since the epoch.

        Monotonic clocks do not agree between hosts, so messages carry wall-clock time; it is
        converted once, here, and everything after measures on this process's own clock.
        """
        return cls.after(epoch - wall(), clock)

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.instant - self.clock())

    def passed(self) -> bool:
        return self.remaining() <= 0.0


def merge_reserve(timeout_s: float) -> float:
    """Seconds of a timeout kept back for merging and answering: 5 %, within 0.15 .. 1 s."""
    return min(1.0, max(0.15, 0.05 * timeout_s))
