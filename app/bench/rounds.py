"""Measuring: both sides in alternation, and one side under several clients."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from app.bench.figures import percentiles
from app.bench.processes import Meter
from app.bench.sides import Stages

CLIENTS = 8

Question = tuple[str, Sequence[str]]
"""A text, and the projects it is put to."""


class Side(Protocol):
    """Whoever answers."""

    def ask(self, question: str, projects: Sequence[str]) -> Stages: ...


@dataclass
class Samples:
    """Milliseconds of every question, and what the processors did meanwhile."""

    ms: list[float] = field(default_factory=list)
    own_cpu_s: float = 0.0  # of this process
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def time(self, side: Side, question: Question) -> None:
        began, own = time.perf_counter(), time.process_time()
        stages = side.ask(*question)
        self.ms.append((time.perf_counter() - began) * 1000)
        self.own_cpu_s += time.process_time() - own
        for name, value in stages.items():
            self.stages[name].append(value)


@dataclass(frozen=True)
class Block:
    """One round of one comparison."""

    name: str
    product: Samples
    direct: Samples
    product_cpu_ms: float
    direct_cpu_ms: float

    def figures(self) -> dict[str, float]:
        return {
            **percentiles(self.name, self.product.ms),
            **percentiles(f"{self.name}_floor", self.direct.ms),
            f"{self.name}_cpu_ms": self.product_cpu_ms,
            f"{self.name}_floor_cpu_ms": self.direct_cpu_ms,
        }

    def stages(self) -> dict[str, float]:
        return {name: median(values) for name, values in self.product.stages.items()}


def compare(
    name: str, questions: Sequence[Question], product: Side, direct: Side, meter: Meter
) -> Block:
    """Every question to both sides, in turns also of who goes first."""
    sides = [(product, Samples()), (direct, Samples())]
    before = meter.read()
    for number, question in enumerate(questions):
        for side, samples in sides if number % 2 else reversed(sides):
            samples.time(side, question)
    used = meter.read().since(before)
    asked, called = sides[0][1], sides[1][1]
    return Block(
        name,
        asked,
        called,
        product_cpu_ms=(used.service_s + asked.own_cpu_s) * 1000 / len(questions),
        direct_cpu_ms=(used.direct_s + called.own_cpu_s) * 1000 / len(questions),
    )


@dataclass(frozen=True)
class Load:
    """What several clients got when they asked as fast as they were answered."""

    ms: list[float]
    elapsed_s: float

    @property
    def per_second(self) -> float:
        return len(self.ms) / self.elapsed_s


START_S = 30.0  # for the threads of all clients


def under_load(sides: Sequence[Side], questions: Iterable[Question], seconds: float) -> Load:
    """Each side is one client with a thread of its own; all draw from the same questions."""
    supply, lock, stop = iter(questions), threading.Lock(), threading.Event()
    all_there = threading.Barrier(len(sides), timeout=START_S)

    def work(side: Side) -> list[float]:
        samples = Samples()
        all_there.wait()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until and not stop.is_set():
            with lock:
                question = next(supply)
            samples.time(side, question)
        return samples.ms

    began = time.perf_counter()
    with ThreadPoolExecutor(len(sides)) as threads:
        try:
            ms = [value for found in threads.map(work, sides) for value in found]
        finally:
            stop.set()
    return Load(ms, time.perf_counter() - began)
