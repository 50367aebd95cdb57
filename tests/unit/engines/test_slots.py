"""Slots of a model server: never more at once than allowed, by all workers together."""

from collections.abc import Iterator

import fakeredis
import pytest
from redis import Redis

from tests.unit.engines.engine_fakes import FakeClock
from workers.deadline import Cut, Deadline
from workers.engines.slots import LEASE_BEYOND_S, Slot, Slots


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of Redis and of the deadlines, moved by hand or by waiting."""
    clock = FakeClock()
    clock.now = 1_800_000_000.0
    monkeypatch.setattr("time.time", lambda: clock.now)
    return clock


@pytest.fixture
def redis(clock: FakeClock) -> Iterator[Redis]:
    with fakeredis.FakeRedis() as client:
        yield client


def slots(redis: Redis | None, clock: FakeClock, most: int = 2, server: str = "server") -> Slots:
    return Slots(redis, server, most, sleep=clock.advance)


def taken(slots: Slots, clock: FakeClock, seconds: float = 10.0) -> Slot:
    slot = slots.take(clock.deadline_in(seconds))
    assert slot is not None
    return slot


def test_so_many_at_once_and_no_more(redis: Redis, clock: FakeClock) -> None:
    one, other = slots(redis, clock), slots(redis, clock)
    with taken(one, clock), taken(other, clock):
        assert one.take(clock.deadline_in(0.5)) is None
        assert other.take(clock.deadline_in(0.5)) is None


def test_waiting_for_a_slot_ends_at_the_deadline(redis: Redis, clock: FakeClock) -> None:
    full = slots(redis, clock, most=1)
    taken(full, clock)
    start = clock.now

    assert full.take(clock.deadline_in(0.5)) is None

    assert clock.now - start == pytest.approx(0.5, abs=0.001)


def test_a_slot_given_back_is_the_next_ones(redis: Redis, clock: FakeClock) -> None:
    full = slots(redis, clock, most=1)
    slot = taken(full, clock)

    def come_back(seconds: float) -> None:
        clock.advance(seconds)
        slot.__exit__()

    waiting = Slots(redis, "server", 1, sleep=come_back)
    assert waiting.take(clock.deadline_in(1.0)) is not None


def test_each_server_has_slots_of_its_own(redis: Redis, clock: FakeClock) -> None:
    with taken(slots(redis, clock, 1, "a"), clock), taken(slots(redis, clock, 1, "b"), clock):
        assert slots(redis, clock, 1, "a").take(clock.deadline_in(0.1)) is None


def test_the_slot_of_a_worker_that_died_comes_back_by_itself(
    redis: Redis, clock: FakeClock
) -> None:
    taken(slots(redis, clock, most=1), clock, 3.0)

    clock.advance(3.0 + LEASE_BEYOND_S + 0.001)

    taken(slots(redis, clock, most=1), clock)


def test_a_late_give_back_takes_nobody_elses_slot(redis: Redis, clock: FakeClock) -> None:
    full = slots(redis, clock, most=1)
    late = taken(full, clock, 3.0)
    clock.advance(5.0)
    taken(full, clock)

    late.__exit__()

    assert full.take(clock.deadline_in(0.1)) is None


def test_the_key_lives_as_long_as_its_longest_lease(redis: Redis, clock: FakeClock) -> None:
    full = slots(redis, clock)
    taken(full, clock, 40.0)
    taken(full, clock, 2.0)

    (key,) = redis.keys()

    assert redis.pttl(key) == pytest.approx(41_000, abs=5)


def test_without_redis_there_is_no_limit(clock: FakeClock) -> None:
    server = fakeredis.FakeServer()
    server.connected = False
    for client in (None, fakeredis.FakeRedis(server=server)):
        unlimited = slots(client, clock, most=1)
        for _ in range(3):
            taken(unlimited, clock)


def test_redis_that_goes_away_later_does_not_fail_the_call(clock: FakeClock) -> None:
    server = fakeredis.FakeServer()
    slot = taken(slots(fakeredis.FakeRedis(server=server), clock), clock)
    server.connected = False

    with slot:
        pass


def test_a_deadline_that_has_passed_takes_nothing(redis: Redis, clock: FakeClock) -> None:
    assert slots(redis, clock).take(clock.deadline_in(0.0)) is None
    assert redis.keys() == []


def test_a_cut_ends_the_wait_for_a_slot_and_takes_none(redis: Redis, clock: FakeClock) -> None:
    cut = Cut()
    slot = taken(slots(redis, clock, most=1), clock)

    def cut_while_it_comes_back(_seconds: float) -> None:
        slot.__exit__()
        cut.make()

    waiting = Slots(redis, "server", 1, sleep=cut_while_it_comes_back)

    assert waiting.take(Deadline.after(60.0, lambda: clock.now, cut)) is None
    assert redis.keys() == []
