"""One instant for a whole query, on whatever clock a process has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.deadline import Deadline, merge_reserve


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
