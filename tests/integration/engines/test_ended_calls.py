"""Calls whose query was cut: the caller goes on at once, and the server sees nobody waiting."""

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
import requests
from structlog.testing import capture_logs

from tests.integration.model_stub import ModelStub, Reply, reply
from tests.integration.service import until
from workers.deadline import Cut, Deadline
from workers.engines import http_calls
from workers.engines.endable_calls import EndableAdapter, EndableCall
from workers.engines.http_calls import CallFailed, Ended, ModelServer, OutOfTime

AT_ONCE_S = 0.5  # far less than any time-out here; undisturbed it is a few milliseconds


class Unfinished(socketserver.ThreadingTCPServer):
    """Reads what it is sent, says the beginning of an answer, and sees when its caller leaves."""

    daemon_threads = True

    def __init__(self, beginning: bytes = b"") -> None:
        super().__init__(("127.0.0.1", 0), _Unfinished)
        self.beginning = beginning
        self.asked, self.left = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Unfinished(socketserver.BaseRequestHandler):
    server: Unfinished

    def handle(self) -> None:
        if self.request.recv(65536):
            self.request.sendall(self.server.beginning)
            self.server.asked.release()
        while self.request.recv(65536):
            pass
        self.server.left.release()


@pytest.fixture
def redis() -> fakeredis.FakeRedis:
    return fakeredis.FakeRedis()


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    stub = ModelStub(lambda body: reply({"said": "good"}))
    yield stub
    stub.close()


class Asking:
    """A call in a thread of its own."""

    def __init__(self, server: ModelServer, deadline: Deadline) -> None:
        self.said: Any = None
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._run, args=(server, deadline))
        self._thread.start()

    def _run(self, server: ModelServer, deadline: Deadline) -> None:
        try:
            self.said = server.call({"input": ["a"]}, deadline, dict)
        except CallFailed as error:
            self.said = error
        self.ended_at = time.monotonic()

    def end(self) -> Any:
        self._thread.join(20)
        return self.said


def server_of(url: str, redis: fakeredis.FakeRedis | None, concurrency: int = 8) -> ModelServer:
    return ModelServer(url, None, kind="rerank", concurrency=concurrency, client=redis)


def slots_taken(redis: fakeredis.FakeRedis) -> int:
    return sum(redis.zcard(key) for key in redis.keys("*:slots:*"))


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"],
    ids=["silent", "in the headers", "in the body"],
)
def test_a_cut_ends_a_call_closes_its_connection_and_gives_its_slot_back(
    redis: fakeredis.FakeRedis, beginning: bytes
) -> None:
    with Unfinished(beginning) as busy:
        cut = Cut()
        asking = Asking(server_of(busy.url, redis), Deadline.after(60, cut=cut))
        assert busy.asked.acquire(timeout=10)
        assert slots_taken(redis) == 1

        cut_at = time.monotonic()
        cut.make()

        assert isinstance(asking.end(), Ended)
        assert asking.ended_at - cut_at < AT_ONCE_S
        assert busy.left.acquire(timeout=AT_ONCE_S), "the server sees nobody waiting"
        until(lambda: slots_taken(redis) == 0, within_s=AT_ONCE_S)


def test_a_cut_is_out_of_time_to_whoever_asked(redis: fakeredis.FakeRedis) -> None:
    with Unfinished() as busy:
        cut = Cut()
        asking = Asking(server_of(busy.url, redis), Deadline.after(60, cut=cut))
        assert busy.asked.acquire(timeout=10)
        cut.make()

        said = asking.end()

    assert isinstance(said, OutOfTime)
    assert said.is_fault is None
    assert str(said).endswith("; ask again.")


def test_however_many_calls_are_cut_the_circuit_stays_closed(redis: fakeredis.FakeRedis) -> None:
    with Unfinished() as busy:
        for _ in range(5):
            cut = Cut()
            asking = Asking(server_of(busy.url, redis), Deadline.after(60, cut=cut))
            assert busy.asked.acquire(timeout=10)
            cut.make()
            asking.end()

        assert http_calls.circuit_of(redis, "rerank", busy.url).state == "closed"


def test_a_try_of_an_open_circuit_that_is_cut_is_left_to_the_next_call(
    stub: ModelStub, redis: fakeredis.FakeRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)
    server = server_of(stub.url, redis)
    stub.answer = lambda body: reply({}, 500)
    for _ in range(3):
        with pytest.raises(CallFailed):
            server.call({}, Deadline.after(60), dict)
    now += 5
    stub.answer = lambda body: reply({"said": "good"})
    stub.arrived.clear()
    cut = Cut()
    with stub.held():
        asking = Asking(server, Deadline.after(60, cut=cut))
        assert stub.arrived.wait(10)
        cut.make()
        assert isinstance(asking.end(), Ended)

    assert server.call({}, Deadline.after(60), dict) == {"said": "good"}
    assert http_calls.circuit_of(redis, "rerank", stub.url).state == "closed"


def test_a_cut_ends_the_wait_for_a_slot(redis: fakeredis.FakeRedis) -> None:
    with Unfinished() as busy:
        server = server_of(busy.url, redis, concurrency=1)
        holding, waiting = Cut(), Cut()
        first = Asking(server, Deadline.after(60, cut=holding))
        assert busy.asked.acquire(timeout=10)
        second = Asking(server, Deadline.after(60, cut=waiting))

        cut_at = time.monotonic()
        waiting.make()

        assert isinstance(second.end(), OutOfTime)
        assert second.ended_at - cut_at < AT_ONCE_S
        assert slots_taken(redis) == 1
        holding.make()
        first.end()
        assert not busy.asked.acquire(timeout=0), "the server was not asked again"


def test_a_cut_ends_a_pause_that_the_server_asked_for(stub: ModelStub) -> None:
    stub.answer = lambda body: reply({}, 429, Retry_After="30")
    cut = Cut()
    with capture_logs() as logs:
        asking = Asking(server_of(stub.url, None), Deadline.after(60, cut=cut))
        until(lambda: logs)  # it says that it pauses

        cut_at = time.monotonic()
        cut.make()

        assert isinstance(asking.end(), Ended)
    assert asking.ended_at - cut_at < AT_ONCE_S
    assert len(stub.requests) == 1


def test_a_call_that_was_cut_leaves_the_others_alone(stub: ModelStub) -> None:
    cut = Cut()
    server = server_of(stub.url, None)
    server.call({}, Deadline.after(60), dict)  # there is a connection to be used again
    with stub.held():
        others = [Asking(server, Deadline.after(60)) for _ in range(3)]
        others += [Asking(server, Deadline.after(60, cut=Cut())) for _ in range(3)]
        cuts = [Asking(server, Deadline.after(60, cut=cut)) for _ in range(2)]
        until(lambda: len(stub.requests) == 9)
        cut.make()
        ended = [one.end() for one in cuts]

    assert [type(error) for error in ended] == [Ended] * 2
    assert [one.end() for one in others] == [{"said": "good"}] * 6
    assert server.call({}, Deadline.after(60), dict) == {"said": "good"}


def test_calls_that_may_be_cut_share_the_connections_that_are_kept(stub: ModelStub) -> None:
    server = server_of(stub.url, None)

    for _ in range(3):
        server.call({}, Deadline.after(60, cut=Cut()), dict)
        server.call({}, Deadline.after(60), dict)

    assert len(stub.connections) == 1


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.mount("http://", EndableAdapter())
        yield session


def test_the_connection_of_an_answered_call_is_the_next_one_s(
    stub: ModelStub, session: requests.Session
) -> None:
    first, second = EndableCall(), EndableCall()
    with first.made_here():
        session.post(stub.url, json={}, timeout=10)

    def end_the_first(_body: dict[str, Any]) -> Reply:
        first.end()
        return reply({"said": "good"})

    stub.answer = end_the_first
    with second.made_here():
        response = session.post(stub.url, json={}, timeout=10)

    assert response.json() == {"said": "good"}
    assert len(stub.connections) == 1


def test_a_call_that_has_ended_sends_nothing(stub: ModelStub, session: requests.Session) -> None:
    session.post(stub.url, json={}, timeout=10)
    for url in (stub.url, stub.url.replace("127.0.0.1", "localhost")):  # kept, and made anew
        call = EndableCall()
        call.end()
        with call.made_here(), pytest.raises(requests.ConnectionError):
            session.post(url, json={}, timeout=10)

    assert len(stub.requests) == 1


def test_a_call_that_is_ended_while_its_server_is_looked_up_sends_nothing(
    stub: ModelStub, session: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, look_up = EndableCall(), socket.getaddrinfo

    def end_meanwhile(*arguments: Any, **options: Any) -> Any:
        call.end()
        return look_up(*arguments, **options)

    monkeypatch.setattr("socket.getaddrinfo", end_meanwhile)
    with call.made_here(), pytest.raises(requests.ConnectionError):
        session.post(stub.url, json={}, timeout=10)

    assert stub.requests == []


def test_a_call_that_is_being_connected_ends_for_its_caller_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        # A connection in the queue is all it takes; the next ones get no answer to their first
        # packet, as from a host that is gone.
        address = full.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(address)
            cut = Cut()
            url = f"http://127.0.0.1:{address[1]}"
            asking = Asking(server_of(url, None), Deadline.after(4, cut=cut))

            cut_at = time.monotonic()
            cut.make()

            assert isinstance(asking.end(), OutOfTime)
            assert asking.ended_at - cut_at < AT_ONCE_S
