"""Sending the tasks of a query."""

import json
from collections.abc import Iterator
from threading import Thread

import pytest
from fakeredis import TcpFakeServer
from kombu.exceptions import BatchPublishError
from kombu.transport.redis import PublishBatch
from redis import Redis

from workers.celery_app import make_celery
from workers.dispatch import Dispatcher
from workers.errors import QueueUnavailable
from workers.model import Query, Sending

PROJECTS = ["alpha", "beta", "gamma"]
SENDING = Sending("q", at=1_700_000_000.0, left_s=5.0)


@pytest.fixture
def server() -> Iterator[TcpFakeServer]:
    server = TcpFakeServer(("127.0.0.1", 0))
    Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def url(server: TcpFakeServer) -> str:
    return f"redis://127.0.0.1:{server.server_address[1]}/0"


def test_each_project_gets_a_task_of_its_own_in_one_chord(url: str) -> None:
    Dispatcher(make_celery(url)).search_all(Query("why"), PROJECTS, SENDING)

    with Redis.from_url(url) as redis:
        sent = [json.loads(message)["headers"] for message in redis.lrange("query", 0, -1)]
    assert len({headers["id"] for headers in sent}) == len(PROJECTS)
    assert sorted(headers["group_index"] for headers in sent) == [0, 1, 2]
    assert len({headers["group"] for headers in sent}) == 1


def test_messages_of_which_nobody_knows_whether_they_arrived_are_said(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(_batch: PublishBatch) -> None:
        raise BatchPublishError("the connection dropped")

    monkeypatch.setattr(PublishBatch, "flush", lose)

    with pytest.raises(QueueUnavailable):
        Dispatcher(make_celery(url)).search_all(Query("why"), PROJECTS, SENDING)
