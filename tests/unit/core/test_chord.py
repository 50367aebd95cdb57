"""When a chord's callback is sent."""

from collections.abc import Iterator
from types import SimpleNamespace
from uuid import uuid4

import pytest
from celery import Celery
from celery.backends.base import DisabledBackend

from config.celery import celery_options


@pytest.fixture
def celery() -> Iterator[Celery]:
    celery = Celery("test", set_as_current=False)
    celery.conf.update(celery_options("memory://"))
    yield celery
    celery.close()


@pytest.mark.parametrize(
    ("result", "sent"),
    [(True, 1), (False, 0), (None, 0), (RuntimeError("expired"), 0)],
)
def test_the_part_that_recorded_the_last_outcome_sends_the_callback(
    celery: Celery, result: object, sent: int
) -> None:
    queue = f"merge-{uuid4().hex}"
    callback = celery.signature("poimen.merge_results", ["query"], queue=queue)

    celery.backend.on_chord_part_return(SimpleNamespace(chord=dict(callback)), "SUCCESS", result)

    with celery.connection_for_read() as connection, connection.SimpleQueue(queue) as waiting:
        assert waiting.qsize() == sent
        if sent:
            assert waiting.get(timeout=1).payload[0] == [[], "query"]


def test_no_results_are_kept(celery: Celery) -> None:
    assert isinstance(celery.backend, DisabledBackend)
