"""Processor time of process trees, on trees that exist only here."""

from dataclasses import dataclass, field

import psutil

from app.bench.processes import Meter, cpu_seconds, tree


@dataclass
class Times:
    user: float = 0.0
    system: float = 0.0
    children_user: float = 0.0
    children_system: float = 0.0


@dataclass
class Memory:
    rss: int
    pss: int


@dataclass
class FakeProcess:
    pid: int
    times: Times
    descendants: list["FakeProcess"] = field(default_factory=list)
    has_ended: bool = False

    def children(self, recursive: bool) -> list["FakeProcess"]:
        assert recursive
        return self.descendants

    def cpu_times(self) -> Times:
        if self.has_ended:
            raise psutil.NoSuchProcess(self.pid)
        return self.times

    def memory_full_info(self) -> Memory:
        return Memory(rss=9_000_000, pss=2_000_000)


class Machine:
    def __init__(self, *processes: FakeProcess) -> None:
        self.processes = {process.pid: process for process in processes}

    def open(self, pid: int) -> FakeProcess:
        try:
            return self.processes[pid]
        except KeyError:
            raise psutil.NoSuchProcess(pid) from None


def test_a_tree_costs_what_its_processes_and_their_ended_children_cost() -> None:
    child = FakeProcess(2, Times(user=1.0, system=0.5))
    root = FakeProcess(1, Times(user=3.0, system=1.0, children_user=2.0), [child])

    assert cpu_seconds([1], Machine(root).open) == 7.5


def test_a_child_that_ends_between_two_readings_is_counted_once() -> None:
    child = FakeProcess(2, Times(user=1.0))
    root = FakeProcess(1, Times(user=3.0), [child])
    machine = Machine(root)
    before = cpu_seconds([1], machine.open)

    root.descendants = []
    root.times = Times(user=3.0, children_user=1.25)

    assert cpu_seconds([1], machine.open) - before == 0.25


def test_overlapping_trees_are_counted_once() -> None:
    child = FakeProcess(2, Times(user=1.0))
    machine = Machine(FakeProcess(1, Times(user=3.0), [child]), child)

    assert [process.pid for process in tree([1, 2], machine.open)] == [1, 2]
    assert cpu_seconds([1, 2], machine.open) == 4.0


def test_a_process_that_is_gone_costs_nothing() -> None:
    gone = FakeProcess(2, Times(user=9.0), has_ended=True)
    machine = Machine(FakeProcess(1, Times(user=3.0), [gone]))

    assert cpu_seconds([1, 77], machine.open) == 3.0


def test_the_direct_calls_sessions_are_theirs_and_not_the_services() -> None:
    session = FakeProcess(3, Times(user=5.0))
    database = FakeProcess(2, Times(user=1.0), [session, FakeProcess(4, Times(user=2.0))])
    machine = Machine(FakeProcess(1, Times(user=10.0)), database, session)
    meter = Meter((1, 2), frozenset({3}), machine.open)
    before = meter.read()

    session.times = Times(user=6.0)
    database.times = Times(user=1.5)
    used = meter.read().since(before)

    assert (used.service_s, used.direct_s) == (0.5, 1.0)


def test_memory_that_processes_share_is_counted_once_where_the_system_tells() -> None:
    machine = Machine(FakeProcess(1, Times(), [FakeProcess(2, Times())]))

    assert Meter((1,), open_process=machine.open).memory_mb() == 4.0
