"""The machine a run was made on, and whether it was left alone."""

import os
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import psutil

from app.bench.processes import cpu_seconds

QUIET_LOAD = 1.0
QUIET_OTHERS = 0.1  # of all cores, used by processes that are not the run's
QUIET_STEAL = 0.02  # of all cores, taken by the host of a virtual machine


@dataclass(frozen=True)
class Watch:
    """Looks at the machine from the beginning of a run to its end."""

    began: float = field(default_factory=time.monotonic)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    used: tuple[float, float] = field(default_factory=lambda: _machine_seconds())
    own: float = field(default_factory=lambda: cpu_seconds([os.getpid()]))

    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def describe(self) -> dict[str, Any]:
        """Version, machine, load and whether the figures are worth little because of others."""
        used, stolen = (now - then for now, then in zip(_machine_seconds(), self.used, strict=True))
        cores = os.cpu_count() or 1
        possible = self.elapsed_s() * cores
        own = cpu_seconds([os.getpid()]) - self.own
        others = max(0.0, used - own) / possible
        steal = stolen / possible
        return {
            "version": version("poimen-memory"),
            "cpu_count": cores,
            "load_start": round(self.load, 2),
            "load_end": round(os.getloadavg()[0], 2),
            "others_share": round(others, 3),
            "steal_share": round(steal, 3),
            "busy": is_busy(self.load, others, steal),
            "took_s": round(self.elapsed_s(), 1),
        }


def is_busy(load: float, others: float, steal: float) -> bool:
    """Whether something else took so much of the machine that figures should not be believed."""
    return load > QUIET_LOAD or others > QUIET_OTHERS or steal > QUIET_STEAL


def _machine_seconds() -> tuple[float, float]:
    """Seconds that all cores were used since the machine began, and those that were stolen."""
    times = psutil.cpu_times()
    stolen = float(getattr(times, "steal", 0.0))
    names = ("user", "nice", "system", "irq", "softirq")
    return sum(float(getattr(times, name, 0.0)) for name in names), stolen
