"""A pack whose query was cut: no project of it is begun, and none is waited for."""

import threading

from workers.deadline import Cut, Deadline
from workers.tasks.lanes import Lanes

PROJECTS = ["a", "b", "c", "d"]


def test_after_a_cut_every_project_finds_that_its_time_is_over() -> None:
    cut = Cut()
    left: list[float] = []

    def work(_project: str, until: Deadline) -> bool:
        left.append(until.remaining())
        cut.make()
        left.append(until.remaining())
        return True

    Lanes(1).run(PROJECTS, work, Deadline.after(60, cut=cut))

    assert 0 < left[0] < 60
    assert left[1:] == [0.0] * 7


def test_a_pack_that_was_cut_does_not_wait_for_lanes_that_others_hold() -> None:
    lanes = Lanes(1)
    other_has_the_lane, let_go, is_set_aside = (threading.Event() for _ in range(3))
    others, cut = Deadline.after(60), Cut()
    deadline = Deadline.after(60, cut=cut)
    begun: list[str] = []

    def work_of_others(_project: str, until: Deadline) -> bool:
        if until is others:
            other_has_the_lane.set()
            assert let_go.wait(10)
        return until is others

    def work(project: str, until: Deadline) -> bool:
        if until is deadline:
            begun.append(project)
        if project == PROJECTS[-1]:
            is_set_aside.set()
        return until is deadline

    other = threading.Thread(target=lanes.run, args=(["x", "y"], work_of_others, others))
    other.start()
    assert other_has_the_lane.wait(10)
    pack = threading.Thread(target=lanes.run, args=(PROJECTS, work, deadline))
    pack.start()
    assert is_set_aside.wait(10)

    cut.make()
    pack.join(10)

    assert not pack.is_alive()
    let_go.set()
    other.join(10)
    assert begun == []


def test_a_pack_that_was_cut_waits_for_what_it_has_begun() -> None:
    cut = Cut()
    deadline = Deadline.after(60, cut=cut)
    begun: list[str] = []
    ended: list[str] = []

    def work(project: str, until: Deadline) -> bool:
        if until is deadline:
            begun.append(project)
            cut.make()
            ended.append(project)
        return until is deadline

    Lanes(2).run(PROJECTS, work, deadline)

    assert begun
    assert sorted(ended) == sorted(begun)
