"""One instant for a whole query, on whatever clock a process has, and its early end."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.deadline import LOOK_S, Cut, Deadline, merge_reserve


class Hands:
    """A clock that stands where it is put."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_what_remains_shrinks_to_nothing_and_never_below() -> None:
    clock = Hands(100.0)
    deadline = Deadline.after(2.0, clock)
    left = []
    for now in (100.0, 101.5, 102.0, 103.0):
        clock.now = now
        left.append((deadline.remaining(), deadline.passed()))

    assert left == [(2.0, False), (0.5, False), (0.0, True), (0.0, True)]


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_deadline_that_is_not_ahead_has_passed(seconds: float) -> None:
    assert Deadline.after(seconds, Hands(5.0)).passed()


def test_a_message_s_wall_clock_instant_is_kept_on_this_process_s_own_clock() -> None:
    wall, monotonic = Hands(1_753_000_000.0), Hands(17.0)

    deadline = Deadline.at(1_753_000_004.0, wall, monotonic)

    assert deadline.remaining() == pytest.approx(4.0)
    wall.now += 3600  # somebody sets the clock
    assert deadline.remaining() == pytest.approx(4.0)
    monotonic.now += 1.5
    assert deadline.remaining() == pytest.approx(2.5)


def test_a_message_whose_instant_lies_in_the_past_has_no_time_left() -> None:
    assert Deadline.at(1000.0, Hands(1000.5), Hands(3.0)).passed()


@pytest.mark.parametrize(
    ("timeout_s", "reserve_s"),
    [(1, 0.15), (3, 0.15), (5, 0.25), (10, 0.5), (20, 1.0), (30, 1.0), (600, 1.0)],
)
def test_a_twentieth_is_kept_for_merging_within_bounds(timeout_s: float, reserve_s: float) -> None:
    assert merge_reserve(timeout_s) == pytest.approx(reserve_s)


@given(st.floats(1, 600), st.floats(1, 600))
def test_a_longer_timeout_never_leaves_less_time_to_search(one: float, other: float) -> None:
    shorter, longer = sorted((one, other))

    assert 0 < shorter - merge_reserve(shorter) <= longer - merge_reserve(longer)


def test_a_cut_leaves_no_time_to_its_deadline_nor_to_any_derived_from_it() -> None:
    cut, clock = Cut(), Hands(100.0)
    deadline = Deadline.after(4.0, clock, cut)
    derived = [
        deadline,
        deadline.within(1.0),
        deadline.earlier_by(1.0),
        deadline.within(2.0).earlier_by(0.5).within(1.0),
        Deadline.at(1004.0, Hands(1000.0), clock, cut),
    ]
    before = [one.remaining() for one in derived]

    cut.make()

    assert before == [4.0, 1.0, 3.0, 1.0, 4.0]
    assert [one.remaining() for one in derived] == [0.0] * 5
    assert all(one.passed() and one.is_cut for one in derived)


@given(st.floats(-10, 100), st.floats(0, 100))
def test_a_share_of_the_time_is_never_later_than_the_whole(whole_s: float, share_s: float) -> None:
    deadline = Deadline.after(whole_s, Hands(0.0))

    assert deadline.within(share_s).instant == min(whole_s, share_s)


def test_a_deadline_is_the_same_whether_or_not_it_can_be_cut() -> None:
    clock = Hands(0.0)

    assert Deadline.after(1.0, clock, Cut()) == Deadline.after(1.0, clock)


def test_only_a_wait_that_may_be_cut_looks_up_now_and_then() -> None:
    clock, cut = Hands(0.0), Cut()
    may_be_cut = Deadline.after(4.0, clock, cut)

    assert Deadline.after(4.0, clock).nap() == 4.0
    assert may_be_cut.nap() == LOOK_S
    clock.now = 4.0 - LOOK_S / 2
    assert may_be_cut.nap() == pytest.approx(LOOK_S / 2)
    cut.make()
    assert may_be_cut.nap() == 0.0


def test_a_cut_calls_back_once_all_who_are_in_their_block() -> None:
    cut, called = Cut(), list[str]()
    deadline = Deadline.after(60.0, cut=cut)
    with deadline.on_cut(lambda: called.append("left")):
        pass
    with cut.on_made(lambda: called.append("one")), deadline.on_cut(lambda: called.append("two")):
        cut.make()
        cut.make()

    assert called == ["one", "two"]


def test_whoever_comes_after_the_cut_is_called_back_at_once() -> None:
    cut, called = Cut(), list[str]()
    cut.make()

    with cut.on_made(lambda: called.append("late")):
        assert called == ["late"]

    assert called == ["late"]


def test_nothing_calls_back_where_nothing_can_be_cut() -> None:
    with Deadline.after(0.0).on_cut(lambda: pytest.fail("called back")):
        pass


def test_a_cut_ends_a_wait_in_another_thread() -> None:
    cut = Cut()
    waiting = threading.Thread(target=cut.wait, args=(600.0,))
    waiting.start()

    cut.make()
    waiting.join(10)

    assert not waiting.is_alive()


def test_each_callback_is_called_exactly_once_however_threads_interleave() -> None:
    for _ in range(20):
        cut, called = Cut(), list[int]()
        together = threading.Barrier(3)

        def wait_in_block(
            number: int,
            cut: Cut = cut,
            called: list[int] = called,
            start: threading.Barrier = together,
        ) -> None:
            start.wait()
            with cut.on_made(lambda: called.append(number)):
                cut.wait(10)

        threads = [threading.Thread(target=wait_in_block, args=(number,)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        together.wait()
        cut.make()
        for thread in threads:
            thread.join(10)
        assert sorted(called) == [1, 2]
