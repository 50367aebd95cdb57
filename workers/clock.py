"""The one clock that messages are told in: Redis's, since the clocks of hosts differ."""

import math
import time

from workers.deadline import Clock


class Average:
    """A running average in which the latest fifty or so count. Thread-safe enough to estimate."""

    def __init__(self) -> None:
        self.average_s: float | None = None

    def add(self, seconds: float) -> None:
        before = seconds if self.average_s is None else self.average_s
        self.average_s = before + 0.02 * (seconds - before)


class SharedClock:
    """Redis's clock, as far as this process knows it. Thread-safe."""

    def __init__(self, wall: Clock = time.time) -> None:
        self._wall = wall
        self._ahead_s = 0.0

    def learn(self, before: float, said: float) -> float:
        """Compare the clocks; returns how far this host's is certainly ahead, in seconds.

        Redis read its clock at some moment of the round trip, so half of that is doubt, not skew: a
        busy host must not look like one whose clock is wrong.

        Args:
            before: this host's clock when Redis was asked; now it has just answered.
            said: Redis's clock.
        """
        doubt = (self._wall() - before) / 2
        ahead = before + doubt - said
        self._ahead_s = math.copysign(max(0.0, abs(ahead) - doubt), ahead)
        return self._ahead_s

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._wall() - self._ahead_s
