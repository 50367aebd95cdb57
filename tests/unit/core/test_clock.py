"""The time that messages are told in, and how long things lately took."""

import pytest

from tests.unit.pipeline.pipeline_fakes import FakeClock
from workers.clock import Average, SharedClock


def asked(clock: SharedClock, wall: FakeClock, ahead_s: float, trip_s: float) -> float:
    """Ask a Redis whose clock is that far behind, and which reads it half-way."""
    before = wall()
    wall.advance(trip_s)
    return clock.learn(before, before + trip_s / 2 - ahead_s)


def test_before_anything_is_known_the_host_s_clock_is_the_clock() -> None:
    wall = FakeClock()

    assert SharedClock(wall).now() == wall()


@pytest.mark.parametrize("ahead_s", [10.0, -10.0])
def test_a_wrong_clock_is_put_right(ahead_s: float) -> None:
    wall = FakeClock()
    clock = SharedClock(wall)

    learned = asked(clock, wall, ahead_s, trip_s=0.0)

    assert learned == ahead_s
    assert clock.now() == wall() - ahead_s
    wall.advance(5.0)
    assert clock.now() == wall() - ahead_s


@pytest.mark.parametrize("ahead_s", [0.4, -0.4, 0.0])
def test_what_a_slow_answer_may_explain_is_no_skew(ahead_s: float) -> None:
    wall = FakeClock()
    clock = SharedClock(wall)

    assert asked(clock, wall, ahead_s, trip_s=1.0) == 0.0
    assert clock.now() == wall()


def test_only_what_is_certain_of_a_skew_counts() -> None:
    wall = FakeClock()
    clock = SharedClock(wall)

    assert asked(clock, wall, 3.0, trip_s=1.0) == pytest.approx(2.5)
    assert asked(clock, wall, -3.0, trip_s=1.0) == pytest.approx(-2.5)


def test_a_clock_that_was_mended_is_trusted_again() -> None:
    wall = FakeClock()
    clock = SharedClock(wall)
    asked(clock, wall, 10.0, trip_s=0.0)

    asked(clock, wall, 0.0, trip_s=0.0)

    assert clock.now() == wall()


def test_an_average_of_nothing_is_not_known() -> None:
    assert Average().average_s is None


def test_the_first_length_is_the_average_and_later_ones_move_it() -> None:
    average = Average()

    average.add(1.0)
    assert average.average_s == 1.0
    average.add(2.0)
    assert average.average_s == pytest.approx(1.02)
    for _ in range(200):
        average.add(2.0)
    assert average.average_s == pytest.approx(2.0, abs=0.05)
