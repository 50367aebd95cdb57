"""What a group of processes costs: processor time and memory, with all their descendants."""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import psutil

OpenProcess = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds since the processes began; only differences say something."""

    service_s: float
    direct_s: float

    def since(self, before: "Usage") -> "Usage":
        return Usage(self.service_s - before.service_s, self.direct_s - before.direct_s)


@dataclass(frozen=True)
class Meter:
    """Reads what the service's processes used, apart from the direct calls' database sessions.

    service: the roots of the service's process trees. direct: the database processes, below one
    of these roots, that work for the direct calls alone.
    """

    service: tuple[int, ...]
    direct: frozenset[int] = frozenset()
    open_process: OpenProcess = psutil.Process

    def read(self) -> Usage:
        return Usage(
            service_s=cpu_seconds(self.service, self.open_process, without=self.direct),
            direct_s=cpu_seconds(self.direct, self.open_process),
        )

    def memory_mb(self) -> float:
        """Resident memory now, in MB; on Linux what processes share is counted once."""
        return (
            sum(_ask(process, _resident) for process in tree(self.service, self.open_process)) / 1e6
        )


def cpu_seconds(
    roots: Iterable[int],
    open_process: OpenProcess = psutil.Process,
    without: AbstractSet[int] = frozenset(),
) -> float:
    """Processor seconds of processes and all their descendants, ended ones included.

    An ended process's time is then its parent's `children_` time, so none is lost or counted
    twice between two readings.
    """
    return sum(_ask(p, _spent) for p in tree(roots, open_process) if p.pid not in without)


def tree(roots: Iterable[int], open_process: OpenProcess = psutil.Process) -> Iterator[Any]:
    """These processes and their descendants, each once."""
    seen: set[int] = set()
    for root in roots:
        try:
            process = open_process(root)
            family = [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
        for member in family:
            if member.pid not in seen:
                seen.add(member.pid)
                yield member


def _spent(process: Any) -> float:
    times = process.cpu_times()
    # Only Linux tells the children's.
    ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + ended)


def _resident(process: Any) -> float:
    # Dozens of database sessions map the same shared memory: their plain sizes add up to several
    # times what there is.
    full = process.memory_full_info()
    return float(getattr(full, "pss", full.rss))


def _ask(process: Any, question: Callable[[Any], float]) -> float:
    try:
        return question(process)
    except psutil.Error:  # ended between listing and asking; its parent has its time now
        return 0.0
