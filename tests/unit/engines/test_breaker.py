"""The circuit of a model server: three failures open it, one call at a time closes it."""

from collections.abc import Iterator

import fakeredis
import pytest
from redis import Redis

from tests.unit.engines.engine_fakes import FakeClock
from workers.engines.breaker import CircuitBreaker, Open, Permit

LEASE_S = 30.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of Redis, moved by hand."""
    clock = FakeClock()
    clock.now = 1_800_000_000.0
    monkeypatch.setattr("time.time", lambda: clock.now)
    return clock


@pytest.fixture
def redis(clock: FakeClock) -> Iterator[Redis]:
    with fakeredis.FakeRedis() as client:
        yield client


@pytest.fixture
def breaker(redis: Redis) -> CircuitBreaker:
    return CircuitBreaker(redis, "server")


def allowed(breaker: CircuitBreaker) -> Permit:
    permit = breaker.enter(LEASE_S)
    assert isinstance(permit, Permit)
    return permit


def fail(breaker: CircuitBreaker, times: int = 1, reason: str = "it broke") -> None:
    for _ in range(times):
        breaker.settle(allowed(breaker), True, reason)


def refused_for(breaker: CircuitBreaker) -> float:
    said = breaker.enter(LEASE_S)
    assert isinstance(said, Open)
    return said.retry_after_s


def test_three_failures_in_a_row_open_it_for_five_seconds(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    assert breaker.state().state == "closed"

    fail(breaker)

    assert refused_for(breaker) == 5.0
    assert breaker.state().state == "open"


def test_failures_that_are_not_in_a_row_do_not_open_it(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    breaker.settle(allowed(breaker), False)
    fail(breaker, 2)

    assert breaker.state().state == "closed"


def test_a_call_that_says_nothing_of_the_server_changes_nothing(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    breaker.settle(allowed(breaker), None)
    fail(breaker)

    assert breaker.state().state == "open"


def test_what_one_worker_learns_all_others_know(redis: Redis, breaker: CircuitBreaker) -> None:
    fail(breaker, 3)

    assert refused_for(CircuitBreaker(redis, "server")) == 5.0
    assert isinstance(CircuitBreaker(redis, "another").enter(LEASE_S), Permit)


def test_when_its_time_is_over_exactly_one_call_tries(
    clock: FakeClock, breaker: CircuitBreaker
) -> None:
    fail(breaker, 3)
    clock.advance(5.0)

    assert breaker.state().state == "half_open"
    assert allowed(breaker).is_probe
    refused_for(breaker)
    assert breaker.state().state == "half_open"


def test_a_try_that_succeeds_closes_it(clock: FakeClock, breaker: CircuitBreaker) -> None:
    fail(breaker, 3)
    clock.advance(5.0)

    breaker.settle(allowed(breaker), False)

    assert breaker.state().state == "closed"
    assert not allowed(breaker).is_probe


def test_every_try_that_fails_doubles_the_time_up_to_two_minutes(
    clock: FakeClock, breaker: CircuitBreaker
) -> None:
    fail(breaker, 3)
    waits = [refused_for(breaker)]
    for _ in range(6):
        clock.advance(waits[-1])
        fail(breaker)
        waits.append(refused_for(breaker))

    assert waits == [5, 10, 20, 40, 80, 120, 120]


def test_once_closed_it_opens_for_the_first_time_again(
    clock: FakeClock, breaker: CircuitBreaker
) -> None:
    fail(breaker, 3)
    clock.advance(5.0)
    fail(breaker)
    clock.advance(10.0)
    breaker.settle(allowed(breaker), False)

    fail(breaker, 3)

    assert refused_for(breaker) == 5.0


def test_a_try_whose_process_dies_leaves_the_right_to_another(
    clock: FakeClock, breaker: CircuitBreaker
) -> None:
    fail(breaker, 3)
    clock.advance(5.0)
    allowed(breaker)

    clock.advance(LEASE_S)

    assert allowed(breaker).is_probe


def test_a_try_that_found_nothing_out_leaves_the_right_at_once(
    clock: FakeClock, breaker: CircuitBreaker
) -> None:
    fail(breaker, 3)
    clock.advance(5.0)

    breaker.settle(allowed(breaker), None)

    assert allowed(breaker).is_probe


def test_calls_that_began_before_it_opened_neither_close_nor_prolong_it(
    clock: FakeClock, breaker: CircuitBreaker
) -> None:
    fail(breaker, 2)
    good, bad = allowed(breaker), allowed(breaker)
    fail(breaker)

    clock.advance(1.0)
    breaker.settle(good, False)
    breaker.settle(bad, True)

    assert refused_for(breaker) == 4.0


def test_a_try_that_outlived_its_right_decides_nothing(
    clock: FakeClock, breaker: CircuitBreaker
) -> None:
    fail(breaker, 3)
    clock.advance(5.0)
    slow = allowed(breaker)
    clock.advance(LEASE_S)
    allowed(breaker)

    breaker.settle(slow, True)
    breaker.settle(slow, False)

    assert breaker.state().state == "half_open"


def test_the_operator_sees_since_when_and_why(clock: FakeClock, breaker: CircuitBreaker) -> None:
    fail(breaker, 3, "The server answered HTTP 500.")
    opened = clock.now
    clock.advance(5.0)
    fail(breaker, 1, "The server cannot be reached.")
    clock.advance(1.0)

    circuit = breaker.state()

    assert circuit.since is not None
    assert circuit.since.timestamp() == opened
    assert (circuit.retry_after_s, circuit.reason) == (9.0, "The server cannot be reached.")


def test_every_key_has_a_lifetime(redis: Redis, clock: FakeClock, breaker: CircuitBreaker) -> None:
    for _ in range(4):
        fail(breaker)
        assert [redis.ttl(key) > 120 for key in redis.scan_iter()] == [True]
        clock.advance(5.0 if breaker.state().state == "open" else 0.0)
    clock.advance(10.0)
    allowed(breaker)

    assert [redis.ttl(key) > 120 for key in redis.scan_iter()] == [True]


def test_a_healthy_server_leaves_no_key(redis: Redis, breaker: CircuitBreaker) -> None:
    breaker.settle(allowed(breaker), False)

    assert redis.keys() == []


def test_without_redis_it_is_closed() -> None:
    server = fakeredis.FakeServer()
    server.connected = False
    for client in (None, fakeredis.FakeRedis(server=server)):
        breaker = CircuitBreaker(client, "server")
        fail(breaker, 5)
        assert not allowed(breaker).is_probe
