import threading
from collections.abc import Callable
from dataclasses import replace

import fakeredis
import pytest
import redis
from structlog.testing import capture_logs

from tests.unit.engines.engine_fakes import FakeClock, FakeEncoder
from workers.deadline import Cut, Deadline
from workers.engines.query_cache import CachedEncoder
from workers.errors import EmbeddingServiceUnavailable
from workers.model import Encoding

TEXT = "why does the pod restart"


class BrokenRedis(fakeredis.FakeRedis):
    """A server that cannot be reached."""

    def execute_command(self, *args: object, **options: object) -> object:
        raise redis.ConnectionError("connection refused")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server() -> fakeredis.FakeServer:
    return fakeredis.FakeServer()


def client(server: fakeredis.FakeServer) -> fakeredis.FakeRedis:
    return fakeredis.FakeRedis(server=server)


def cached(
    encoder: FakeEncoder,
    redis_client: "redis.Redis | None" = None,
    entries: int = 10,
    sleep: Callable[[float], None] = lambda _: None,
) -> CachedEncoder:
    return CachedEncoder(encoder, redis_client, entries=entries, lifetime_s=60, sleep=sleep)


def same(one: Encoding, other: Encoding) -> bool:
    return one.vector.tobytes() == other.vector.tobytes() and one.tokens == other.tokens


def lock_of(server: fakeredis.FakeServer) -> bytes:
    """The key a process locks for TEXT, seen while it encodes."""
    seen: list[bytes] = []
    other = fakeredis.FakeServer()
    encoder = FakeEncoder(on_call=lambda: seen.extend(client(other).keys()))
    cached(encoder, client(other)).encode_query(TEXT, Deadline.after(5))
    return seen[0]


def test_a_question_asked_twice_is_encoded_once(clock: FakeClock) -> None:
    encoder = FakeEncoder()
    cache = cached(encoder)

    first, first_origin = cache.encode_query_with_origin(TEXT, clock.deadline_in(1))
    second, second_origin = cache.encode_query_with_origin(f"  {TEXT}\n", clock.deadline_in(1))

    assert encoder.asked == [TEXT]
    assert (first_origin, second_origin) == ("miss", "memory")
    assert same(first, second)


def test_memory_forgets_the_question_that_was_asked_longest_ago(clock: FakeClock) -> None:
    encoder = FakeEncoder()
    cache = cached(encoder, entries=2)

    for text in ("a", "b", "a", "c", "a", "b"):
        cache.encode_query(text, clock.deadline_in(1))

    assert encoder.asked == ["a", "b", "c", "b"]


def test_another_process_finds_the_encoding_in_redis(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    made = cached(FakeEncoder(), client(server)).encode_query(TEXT, clock.deadline_in(1))
    elsewhere = FakeEncoder()

    found, origin = cached(elsewhere, client(server)).encode_query_with_origin(
        TEXT, clock.deadline_in(1)
    )

    assert origin == "redis"
    assert elsewhere.asked == []
    assert same(found, made)


def test_an_encoding_without_tokens_comes_back_without_tokens(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    class WithoutTokens(FakeEncoder):
        token_model = None

        def encode_query(self, text: str, deadline: Deadline) -> Encoding:
            return Encoding(super().encode_query(text, deadline).vector, None)

    cached(WithoutTokens(), client(server)).encode_query(TEXT, clock.deadline_in(1))
    found = cached(WithoutTokens(), client(server)).encode_query(TEXT, clock.deadline_in(1))

    assert found.tokens is None


def test_a_question_that_was_not_understood_comes_back_as_such(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    class WithoutItsWords(FakeEncoder):
        def encode_query(self, text: str, deadline: Deadline) -> Encoding:
            return replace(super().encode_query(text, deadline), is_understood=text != TEXT)

    for text in (TEXT, "another"):
        cached(WithoutItsWords(), client(server)).encode_query(text, clock.deadline_in(1))
        found, origin = cached(FakeEncoder(), client(server)).encode_query_with_origin(
            text, clock.deadline_in(1)
        )
        assert (origin, found.is_understood) == ("redis", text != TEXT)


def test_models_do_not_read_each_others_encodings(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    cached(FakeEncoder(dimension=8), client(server)).encode_query(TEXT, clock.deadline_in(1))
    other = FakeEncoder(dimension=4)

    found = cached(other, client(server)).encode_query(TEXT, clock.deadline_in(1))

    assert other.asked == [TEXT]
    assert found.vector.shape == (4,)


def test_every_key_has_a_lifetime_and_none_shows_the_question(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    lifetimes: dict[bytes, int] = {}

    def look() -> None:
        keys = client(server).keys()
        lifetimes.update({key: client(server).pttl(key) for key in keys})

    cached(FakeEncoder(on_call=look), client(server)).encode_query(TEXT, clock.deadline_in(1))
    assert len(lifetimes) == 1, "the lock, while the engine works"
    look()

    assert len(lifetimes) == 2
    assert all(0 < lifetime <= 60_000 for lifetime in lifetimes.values())
    assert all(key.startswith(b"poimen:enc:") for key in lifetimes)
    assert not any(word in key for key in lifetimes for word in TEXT.encode().split())


def test_the_lock_lasts_half_of_what_is_left_and_two_seconds_at_most(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    leases: list[int] = []

    def look() -> None:
        leases.extend(client(server).pttl(key) for key in client(server).keys("*:lock"))

    cache = cached(FakeEncoder(on_call=look), client(server))
    cache.encode_query("short", clock.deadline_in(1))
    cache.encode_query("long", clock.deadline_in(30))

    assert 0 < leases[0] <= 500
    assert 500 < leases[1] <= 2000


def test_a_process_waits_for_the_one_that_encodes_already(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    lock = lock_of(server)
    client(server).set(lock, "another", px=60_000)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        pauses.append(seconds)
        if len(pauses) == 6:  # the other process is done
            client(server).delete(lock)
            cached(FakeEncoder(), client(server)).encode_query(TEXT, clock.deadline_in(9))

    encoder = FakeEncoder()
    _, origin = cached(encoder, client(server), sleep=sleep).encode_query_with_origin(
        TEXT, clock.deadline_in(5)
    )

    assert origin == "flight"
    assert encoder.asked == []
    assert pauses == [0.002, 0.004, 0.008, 0.016, 0.02, 0.02]


def test_a_process_takes_over_when_the_lock_of_a_dead_one_ends(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    lock = lock_of(server)
    client(server).set(lock, "dead", px=60_000)

    encoder = FakeEncoder()
    _, origin = cached(
        encoder, client(server), sleep=lambda _: client(server).delete(lock)
    ).encode_query_with_origin(TEXT, clock.deadline_in(5))

    assert origin == "miss"
    assert encoder.asked == [TEXT]


def test_a_process_that_waits_gives_up_at_its_own_deadline(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    client(server).set(lock_of(server), "another", px=60_000)
    encoder = FakeEncoder()
    deadline = clock.deadline_in(0.045)

    with pytest.raises(EmbeddingServiceUnavailable, match="in time"):
        cached(encoder, client(server), sleep=clock.advance).encode_query(TEXT, deadline)

    assert encoder.asked == []
    assert clock.now == pytest.approx(100.045), "no pause reaches past the deadline"


def test_a_lock_that_has_become_anothers_is_not_released(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    lock = lock_of(server)
    encoder = FakeEncoder(on_call=lambda: client(server).set(lock, "another", px=60_000))

    cached(encoder, client(server)).encode_query(TEXT, clock.deadline_in(1))

    assert client(server).get(lock) == b"another"


def test_a_failed_engine_leaves_neither_value_nor_lock(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    def fail() -> None:
        raise EmbeddingServiceUnavailable("The embedding server is down.")

    cache = cached(FakeEncoder(on_call=fail), client(server))
    for _ in range(2):  # the error is not remembered either
        with pytest.raises(EmbeddingServiceUnavailable, match="is down"):
            cache.encode_query(TEXT, clock.deadline_in(1))

    assert client(server).keys() == []


def test_a_damaged_value_is_made_again_and_replaced(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    key = lock_of(server).removesuffix(b":lock")
    for damaged in (b"", b"\x01", b"\x09" * 200, b"\x01\x01\xff\xff\xff\xff" + b"x" * 99):
        client(server).set(key, damaged, ex=60)
        encoder = FakeEncoder()

        made, origin = cached(encoder, client(server)).encode_query_with_origin(
            TEXT, clock.deadline_in(1)
        )

        assert origin == "miss"
        assert same(made, cached(FakeEncoder()).encode_query(TEXT, clock.deadline_in(1)))
        assert client(server).get(key) not in (None, damaged)


def test_without_redis_the_question_is_encoded_and_the_log_does_not_show_it(
    clock: FakeClock,
) -> None:
    encoder = FakeEncoder()
    cache = cached(encoder, BrokenRedis())

    with capture_logs() as logs:
        _, origin = cache.encode_query_with_origin(TEXT, clock.deadline_in(1))

    assert origin == "miss"
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert TEXT not in str(logs)
    assert cache.encode_query_with_origin(TEXT, clock.deadline_in(1))[1] == "memory"


def test_redis_lost_while_the_engine_works_does_not_lose_the_answer(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    def cut() -> None:
        server.connected = False

    _, origin = cached(FakeEncoder(on_call=cut), client(server)).encode_query_with_origin(
        TEXT, clock.deadline_in(1)
    )

    assert origin == "miss"


class Flight:
    """A leader held up inside the engine, so that others can be made to wait for it."""

    def __init__(self, leader_deadline: Deadline, fails: bool = False) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.fails = fails
        self.encoder = FakeEncoder(on_call=self._hold)
        self.cache = cached(self.encoder)
        self.results: list[str] = []
        self._start(leader_deadline)
        assert self.inside.wait(10)

    def _hold(self) -> None:
        if len(self.encoder.asked) == 1:
            self.inside.set()
            assert self.go_on.wait(10)
            if self.fails:
                raise EmbeddingServiceUnavailable("The embedding server is down.")

    def _start(self, deadline: Deadline) -> threading.Thread:
        def ask() -> None:
            try:
                self.results.append(self.cache.encode_query_with_origin(TEXT, deadline)[1])
            except EmbeddingServiceUnavailable as error:
                self.results.append(str(error))

        thread = threading.Thread(target=ask)
        thread.start()
        self.threads = [*getattr(self, "threads", []), thread]
        return thread

    def join_in(self, deadline: Deadline) -> threading.Thread:
        """Start a follower; returns once it waits for the leader (or has given up)."""
        waits = threading.Event()

        def clock() -> float:
            waits.set()  # a follower looks at its time when it has found the flight
            return deadline.clock()

        thread = self._start(replace(deadline, clock=clock))
        assert waits.wait(10)
        return thread

    def land(self) -> list[str]:
        self.go_on.set()
        for thread in self.threads:
            thread.join(10)
        return self.results


def test_threads_that_ask_the_same_wait_for_the_first() -> None:
    flight = Flight(Deadline.after(60))
    for _ in range(5):
        flight.join_in(Deadline.after(60))

    assert sorted(flight.land()) == ["flight"] * 5 + ["miss"]
    assert flight.encoder.asked == [TEXT]


def test_a_thread_that_waits_gives_up_at_its_own_deadline(clock: FakeClock) -> None:
    flight = Flight(Deadline.after(60))
    flight.join_in(clock.deadline_in(0)).join(10)

    assert "in time" in flight.results[0]
    assert flight.land()[1] == "miss"


def test_those_who_waited_for_a_leader_that_failed_get_its_error() -> None:
    flight = Flight(Deadline.after(60), fails=True)
    for _ in range(2):
        flight.join_in(Deadline.after(60))

    assert flight.land() == ["The embedding server is down."] * 3
    assert flight.encoder.asked == [TEXT]
    assert flight.cache.encode_query_with_origin(TEXT, Deadline.after(60))[1] == "miss"


def test_a_leader_that_ran_out_of_its_own_time_is_replaced_by_one_with_more(
    clock: FakeClock,
) -> None:
    flight = Flight(clock.deadline_in(1), fails=True)
    flight.join_in(Deadline.after(60))
    clock.advance(2)

    assert sorted(flight.land()) == ["The embedding server is down.", "miss"]
    assert flight.encoder.asked == [TEXT, TEXT]


def test_a_leader_whose_query_was_cut_is_replaced_by_one_that_waited() -> None:
    cut = Cut()
    flight = Flight(Deadline.after(60, cut=cut), fails=True)
    flight.join_in(Deadline.after(60))
    cut.make()

    assert sorted(flight.land()) == ["The embedding server is down.", "miss"]
    assert flight.encoder.asked == [TEXT, TEXT]


def test_one_that_was_cut_stops_waiting_and_the_leader_goes_on() -> None:
    cut = Cut()
    flight = Flight(Deadline.after(60))
    waiting = flight.join_in(Deadline.after(60, cut=cut))

    cut.make()
    waiting.join(10)

    assert "in time" in flight.results[0]
    assert flight.land()[1] == "miss"


def test_one_that_may_be_cut_waits_for_its_leader_as_long_as_any_other() -> None:
    flight = Flight(Deadline.after(60))
    looks = threading.Semaphore(0)

    def clock() -> float:
        looks.release()
        return 0.0

    flight.join_in(Deadline(60.0, clock, Cut()))
    for _ in range(6):  # it looked up more than once, and waits again
        assert looks.acquire(timeout=10)

    assert sorted(flight.land()) == ["flight", "miss"]
    assert flight.encoder.asked == [TEXT]


def test_a_process_whose_query_was_cut_leaves_the_lock_to_the_next(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    cut = Cut()

    def fail() -> None:
        cut.make()
        raise EmbeddingServiceUnavailable("The query was ended.")

    with pytest.raises(EmbeddingServiceUnavailable):
        cached(FakeEncoder(on_call=fail), client(server)).encode_query(
            TEXT, Deadline.after(60, cut=cut)
        )
    pauses: list[float] = []
    _, origin = cached(FakeEncoder(), client(server), sleep=pauses.append).encode_query_with_origin(
        TEXT, clock.deadline_in(60)
    )

    assert (origin, pauses) == ("miss", [])


def test_a_process_that_was_cut_stops_waiting_for_another(
    clock: FakeClock, server: fakeredis.FakeServer
) -> None:
    client(server).set(lock_of(server), "another", px=60_000)
    cut, pauses = Cut(), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        cut.make()

    with pytest.raises(EmbeddingServiceUnavailable, match="in time"):
        cached(FakeEncoder(), client(server), sleep=sleep).encode_query(
            TEXT, Deadline.after(60, cut=cut)
        )

    assert len(pauses) == 1


def test_a_shared_vector_cannot_be_written_to(clock: FakeClock) -> None:
    found = cached(FakeEncoder()).encode_query(TEXT, clock.deadline_in(1))

    with pytest.raises(ValueError, match="read-only"):
        found.vector[0] = 0


def test_passages_go_straight_to_the_engine() -> None:
    cache = cached(FakeEncoder())

    first, second = cache.encode_passages(["a", "b"])

    assert same(first, FakeEncoder().encode_passages(["a"])[0])
    assert not same(first, second)
