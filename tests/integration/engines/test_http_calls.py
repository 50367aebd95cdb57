"""Calls to a model server: bounded in time, repeated where that helps, and given up where not."""

import threading
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import fakeredis
import pytest
from structlog.testing import capture_logs

from tests.integration.model_stub import (
    Answer,
    ModelStub,
    Reply,
    one_after_another,
    reply,
)
from tests.unit.engines.engine_fakes import FakeClock
from workers.deadline import Deadline
from workers.engines import http_calls
from workers.engines.http_calls import (
    BadAnswer,
    CallFailed,
    CircuitOpen,
    Limited,
    ModelServer,
    NoSlot,
    OutOfTime,
    Refused,
    ServerFault,
    TimedOut,
    TooLarge,
)

KEY, TEXT = "sk-not-to-be-shown", "a text not to be shown"
NOW = 1_800_000_000.0


def good(body: dict[str, Any]) -> Reply:
    return reply({"said": "good"})


def status(number: int, **headers: str) -> Answer:
    return lambda body: reply({}, number, **headers)


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    stub = ModelStub(good)
    yield stub
    stub.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def redis() -> fakeredis.FakeRedis:
    return fakeredis.FakeRedis()


@pytest.fixture
def server(stub: ModelStub, clock: FakeClock, redis: fakeredis.FakeRedis) -> ModelServer:
    """Pauses move the clock; answers come in real time, which the clock does not see."""
    return server_of(stub, clock, redis)


def server_of(
    stub: ModelStub, clock: FakeClock, redis: fakeredis.FakeRedis | None, concurrency: int = 8
) -> ModelServer:
    return ModelServer(
        stub.url + "/v1/embeddings",
        KEY,
        kind="embedding",
        concurrency=concurrency,
        client=redis,
        sleep=clock.advance,
        wall=lambda: NOW,
    )


def call(server: ModelServer, deadline: Deadline) -> object:
    return server.call({"input": [TEXT]}, deadline, lambda answer: answer["said"])


def failed(server: ModelServer, deadline: Deadline, kind: type[CallFailed]) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        call(server, deadline)
    assert type(caught.value) is kind
    said = str(caught.value)
    assert said.endswith(".")
    assert "; " in said, "says what to do next"
    assert KEY not in said
    assert TEXT not in said
    return caught.value


def test_an_answer_is_read_and_the_connection_kept(
    stub: ModelStub, server: ModelServer, clock: FakeClock
) -> None:
    said = [call(server, clock.deadline_in(5)) for _ in range(3)]

    assert said == ["good"] * 3
    assert len(stub.connections) == 1


@pytest.mark.parametrize("fault", [500, 502, 503])
def test_a_passing_fault_of_the_server_is_tried_again(
    stub: ModelStub, server: ModelServer, clock: FakeClock, fault: int
) -> None:
    stub.answer = one_after_another(status(fault), status(fault), good)

    assert call(server, clock.deadline_in(5)) == "good"


def test_a_server_that_goes_on_failing_is_asked_three_times(
    stub: ModelStub, server: ModelServer, clock: FakeClock
) -> None:
    stub.answer = status(500)

    assert "HTTP 500" in str(failed(server, clock.deadline_in(5), ServerFault))
    assert len(stub.requests) == 3
    assert clock.now < 105, "what remains is for others"


def test_a_connection_that_breaks_is_tried_again(
    stub: ModelStub, server: ModelServer, clock: FakeClock
) -> None:
    def hang_up(body: dict[str, Any]) -> Reply:
        raise ConnectionResetError

    stub.answer = one_after_another(hang_up, good)

    assert call(server, clock.deadline_in(5)) == "good"


@pytest.mark.parametrize("refusal", [302, 401, 403, 404, 409])
def test_a_refusal_is_final(
    stub: ModelStub, server: ModelServer, clock: FakeClock, refusal: int
) -> None:
    stub.answer = status(refusal)

    failed(server, clock.deadline_in(5), Refused)

    assert len(stub.requests) == 1


@pytest.mark.parametrize("refusal", [400, 413, 422])
def test_what_may_be_too_large_is_not_sent_again_as_it_is(
    stub: ModelStub, server: ModelServer, clock: FakeClock, refusal: int
) -> None:
    stub.answer = status(refusal)

    error = failed(server, clock.deadline_in(5), TooLarge)

    assert isinstance(error, TooLarge)
    assert error.status == refusal
    assert len(stub.requests) == 1


@pytest.mark.parametrize("asked", ["2", formatdate(NOW + 2, usegmt=True)])
def test_a_limited_call_waits_at_least_as_asked_as_often_as_it_fits(
    stub: ModelStub, server: ModelServer, clock: FakeClock, asked: str
) -> None:
    stub.answer = one_after_another(*[status(429, Retry_After=asked)] * 5, good)
    start = clock.now

    assert call(server, clock.deadline_in(45)) == "good"

    assert len(stub.requests) == 6
    assert 10 <= clock.now - start <= 11.5


def test_those_who_wait_do_not_come_back_in_step(
    stub: ModelStub, redis: fakeredis.FakeRedis
) -> None:
    came_back = []
    for _ in range(5):
        clock = FakeClock()
        stub.answer = one_after_another(status(429, Retry_After="2"), good)
        call(server_of(stub, clock, redis), clock.deadline_in(10))
        came_back.append(clock.now)

    assert len(set(came_back)) == 5


@pytest.mark.parametrize("asked", ["3600", formatdate(NOW + 3600, usegmt=True)])
def test_a_pause_that_does_not_fit_is_not_begun(
    stub: ModelStub, server: ModelServer, clock: FakeClock, asked: str
) -> None:
    stub.answer = status(429, Retry_After=asked)
    start = clock.now

    error = failed(server, clock.deadline_in(45), Limited)

    assert error.retry_after_s == pytest.approx(3600, abs=1)
    assert (clock.now, len(stub.requests)) == (start, 1)


@pytest.mark.parametrize("asked", ["soon", "-5", "", "2.5.1", "Mon, 99 Foo 2026 99:99:99 GMT"])
def test_a_retry_after_that_says_nothing_is_as_none(
    stub: ModelStub, server: ModelServer, clock: FakeClock, asked: str
) -> None:
    stub.answer = status(429, Retry_After=asked)

    error = failed(server, clock.deadline_in(60), Limited)

    assert error.retry_after_s is None
    assert len(stub.requests) == http_calls.ATTEMPTS


def test_a_date_that_has_passed_is_now(
    stub: ModelStub, server: ModelServer, clock: FakeClock
) -> None:
    past = formatdate(NOW - 60, usegmt=True)
    stub.answer = one_after_another(status(503, Retry_After=past), good)

    assert call(server, clock.deadline_in(1)) == "good"


def test_a_silent_server_is_given_up_at_the_deadline(stub: ModelStub, server: ModelServer) -> None:
    with stub.held():
        failed(server, Deadline.after(0.1), OutOfTime)


@pytest.mark.parametrize("content", [b"<html>", b"", b"\xff\xfe", b"[" * 100_000])
def test_an_answer_that_is_not_json_names_the_address(
    stub: ModelStub, server: ModelServer, clock: FakeClock, content: bytes
) -> None:
    stub.answer = lambda body: Reply(content)

    assert "POIMEN_EMBEDDING_URL" in str(failed(server, clock.deadline_in(5), BadAnswer))
    assert len(stub.requests) == 1


def test_a_deadline_that_has_passed_asks_nothing(
    stub: ModelStub, server: ModelServer, clock: FakeClock
) -> None:
    failed(server, clock.deadline_in(0), OutOfTime)

    assert stub.requests == []


def test_three_failed_calls_open_the_circuit_and_the_next_fails_at_once(
    stub: ModelStub, server: ModelServer, clock: FakeClock, redis: fakeredis.FakeRedis
) -> None:
    stub.answer = status(500)
    for _ in range(3):
        failed(server, clock.deadline_in(5), ServerFault)
    asked = len(stub.requests)

    error = failed(server_of(stub, clock, redis), clock.deadline_in(5), CircuitOpen)

    assert len(stub.requests) == asked
    assert error.retry_after_s is not None
    assert 0 < error.retry_after_s <= 5
    circuit = http_calls.circuit_of(redis, "embedding", stub.url + "/v1/embeddings")
    assert circuit.state == "open"
    assert "HTTP 500" in circuit.reason


@pytest.mark.parametrize("answer", [status(429), status(401), status(413)])
def test_a_server_that_refuses_is_alive(
    stub: ModelStub, server: ModelServer, clock: FakeClock, answer: Answer
) -> None:
    stub.answer = answer
    for _ in range(4):
        with pytest.raises(CallFailed):
            call(server, clock.deadline_in(5))

    assert not redis_says_open(server, clock)


@pytest.mark.parametrize(("fair_s", "opens"), [(10.0, False), (0.05, True)])
def test_a_time_out_counts_only_where_the_server_had_a_fair_time(
    stub: ModelStub,
    server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    clock: FakeClock,
    fair_s: float,
    opens: bool,
) -> None:
    monkeypatch.setattr(http_calls, "FAIR_S", fair_s)
    with stub.held():
        for _ in range(3):
            failed(server, Deadline.after(0.06), TimedOut if opens else OutOfTime)

    assert redis_says_open(server, clock) is opens


def redis_says_open(server: ModelServer, clock: FakeClock) -> bool:
    try:
        call(server, clock.deadline_in(5))
    except CircuitOpen:
        return True
    except CallFailed:
        pass
    return False


def test_a_try_of_an_open_circuit_is_one_request(
    stub: ModelStub,
    server: ModelServer,
    clock: FakeClock,
    redis: fakeredis.FakeRedis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall = FakeClock()
    wall.now = NOW
    monkeypatch.setattr("time.time", lambda: wall.now)
    stub.answer = status(500)
    for _ in range(3):
        failed(server, clock.deadline_in(5), ServerFault)
    asked = len(stub.requests)

    wall.advance(5)
    failed(server, clock.deadline_in(5), ServerFault)

    assert len(stub.requests) == asked + 1


def test_calls_of_two_workers_at_once_stay_within_the_limit(stub: ModelStub) -> None:
    redis = fakeredis.FakeRedis()
    first, second = (
        ModelServer(stub.url, KEY, kind="rerank", concurrency=2, client=redis) for _ in range(2)
    )
    said: list[object] = []
    threads = [
        threading.Thread(target=lambda s=one: said.append(call(s, Deadline.after(30))))
        for one in (first, second) * 6
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert said == ["good"] * 12
    assert stub.most_at_once <= 2


def test_without_a_slot_in_time_the_server_is_not_asked(
    stub: ModelStub, clock: FakeClock, redis: fakeredis.FakeRedis
) -> None:
    server = server_of(stub, clock, redis, concurrency=1)
    with stub.held():
        threading.Thread(target=lambda: call(server, Deadline.after(30)), daemon=True).start()
        stub.arrived.wait(30)

        error = failed(server, Deadline.after(0.1), NoSlot)

    assert "POIMEN_EMBEDDING_CONCURRENCY" in str(error)
    assert len(stub.requests) == 1


def test_a_call_that_was_given_up_keeps_its_slot_until_the_server_is_done(
    stub: ModelStub, clock: FakeClock, redis: fakeredis.FakeRedis
) -> None:
    server = server_of(stub, clock, redis, concurrency=1)
    failed_late = threading.Event()

    def late(body: dict[str, Any]) -> Reply:
        failed_late.wait(30)
        return good(body)

    stub.answer = late
    failed(server, Deadline.after(0.1), OutOfTime)
    failed_late.set()

    assert call(server, Deadline.after(30)) == "good"


def test_without_redis_calls_are_made_and_the_log_says_so(
    stub: ModelStub, clock: FakeClock
) -> None:
    gone = fakeredis.FakeServer()
    gone.connected = False

    with capture_logs() as logs:
        server = server_of(stub, clock, fakeredis.FakeRedis(server=gone), concurrency=1)
        assert call(server, clock.deadline_in(5)) == "good"

    assert {entry["log_level"] for entry in logs} == {"warning"}
    assert {entry["event"] for entry in logs} >= {"circuit_unknown", "slots_unlimited"}


def test_the_log_of_a_repeated_call_holds_neither_text_nor_key(
    stub: ModelStub, clock: FakeClock, redis: fakeredis.FakeRedis
) -> None:
    stub.answer = one_after_another(status(500), good)

    with capture_logs() as logs:
        call(server_of(stub, clock, redis), clock.deadline_in(5))

    assert [entry["event"] for entry in logs] == ["model_server_retry"]
    assert KEY not in repr(logs)
    assert TEXT not in repr(logs)
