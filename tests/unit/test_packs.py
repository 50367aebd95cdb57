"""More projects than tasks: how they are packed, and how a pack is worked through."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.pipeline_fakes import FakeClock
from workers.deadline import Deadline
from workers.dispatch import pack
from workers.tasks.lanes import Lanes


def test_few_projects_are_one_task_each() -> None:
    assert pack(["a", "b", "c"], most=16) == [["a"], ["b"], ["c"]]


@given(st.lists(st.text(min_size=1), unique=True, min_size=1, max_size=400), st.integers(1, 32))
def test_every_project_is_in_exactly_one_of_at_most_so_many_packs(
    projects: list[str], most: int
) -> None:
    packs = pack(projects, most)

    assert sorted(name for one in packs for name in one) == sorted(projects)
    assert len(packs) <= most
    sizes = {len(one) for one in packs}
    assert max(sizes) - min(sizes) <= 1


class Pack:
    """Items that take so many seconds of a fake clock, cut off at their deadline."""

    def __init__(self, **seconds: float) -> None:
        self.clock = FakeClock()
        self.deadline = Deadline.after(4.0, self.clock)
        self.seconds = seconds
        self.tried: list[tuple[str, float]] = []
        self.done: list[str] = []

    def work(self, item: str, until: Deadline) -> bool:
        given_s = until.remaining()
        self.tried.append((item, given_s))
        self.clock.advance(min(given_s, self.seconds[item]))
        if self.seconds[item] <= given_s:
            self.done.append(item)
            return True
        return until is self.deadline

    def run(self, lanes: int = 1) -> None:
        Lanes(lanes).run(list(self.seconds), self.work, self.deadline)


def test_one_project_alone_has_all_the_time() -> None:
    packed = Pack(only=3.9)

    packed.run()

    assert packed.tried == [("only", 4.0)]
    assert packed.done == ["only"]


def test_a_slow_project_comes_again_after_the_others_with_the_rest_of_the_time() -> None:
    packed = Pack(slow=2.5, b=0.1, c=0.1)

    packed.run()

    assert packed.done == ["b", "c", "slow"]


def test_however_many_are_slow_every_quick_one_is_done() -> None:
    packed = Pack(**{f"slow{n}": 60.0 for n in range(9)}, quick=0.1)

    packed.run(lanes=1)

    assert packed.done == ["quick"]


def test_time_that_quick_ones_leave_over_is_shared_by_the_rest() -> None:
    packed = Pack(a=0.0, b=0.0, c=0.0, d=1.9)

    packed.run()

    assert packed.done == ["a", "b", "c", "d"]
    assert packed.tried[-1] == ("d", 2.0)


def test_slow_ones_are_tried_again_side_by_side() -> None:
    together = threading.Barrier(3, timeout=10)
    deadline = Deadline.after(60)

    def work(_item: str, until: Deadline) -> bool:
        if until is deadline:
            together.wait()  # passes only when all three are under way at once
        return until is deadline

    Lanes(3).run(["a", "b", "c"], work, deadline)

    assert together.broken is False
