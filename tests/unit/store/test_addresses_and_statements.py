"""Redis's address in two spellings, and SQL by its name."""

import re
from pathlib import Path
from typing import cast

import pytest
from redis import Redis

from tests.unit.pipeline.pipeline_fakes import FakeClock
from workers.errors import QueueUnavailable
from workers.store import queries
from workers.store.queries import load_queries
from workers.store.redis import celery_url, check_redis, connect, wait_for

SQL_FILES = sorted(path.name for path in (Path(queries.__file__).parent / "sql").glob("*.sql"))


@pytest.mark.parametrize(
    ("ours", "celery_s"),
    [
        ("redis://host:6379/2", "redis://host:6379/2"),
        ("redis://:pass@host/0?x=1", "redis://:pass@host/0?x=1"),
        (
            "unix://:pass@/run/valkey.sock?db=3",
            "redis+socket://:pass@/run/valkey.sock?virtual_host=3",
        ),
        ("unix://u:p%40ss@/run/valkey.sock", "redis+socket://u:p%40ss@/run/valkey.sock"),
    ],
)
def test_an_address_is_translated_for_celery(ours: str, celery_s: str) -> None:
    assert celery_url(ours) == celery_s


def test_a_long_wait_is_made_of_slices_within_the_socket_timeout() -> None:
    client = connect("redis://127.0.0.1:1/0")
    clock = FakeClock()
    asked: list[float] = []

    class Empty:
        def blpop(self, _keys: list[str], timeout: float) -> None:
            asked.append(timeout)
            clock.advance(timeout)

    assert wait_for(cast(Redis, Empty()), "key", 3.5, clock) is None
    assert sum(asked) == pytest.approx(3.5)
    assert max(asked) < client.connection_pool.connection_kwargs["socket_timeout"]


def test_an_unreachable_redis_is_named_without_its_password() -> None:
    with pytest.raises(QueueUnavailable) as caught:
        check_redis("redis://:secret@127.0.0.1:1/0")

    assert "POIMEN_REDIS_URL" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("file", sorted({*SQL_FILES} - {"filters.sql"}))  # that is a condition
def test_every_statement_has_a_name_of_its_own_and_text(file: str) -> None:
    text = (Path(queries.__file__).parent / "sql" / file).read_text(encoding="utf-8")

    loaded = load_queries(file)

    assert len(loaded) == len(re.findall(r"^-- name:", text, re.MULTILINE)) > 0
    for name, statement in loaded.items():
        assert re.search(
            r"^ *(SELECT|INSERT|UPDATE|DELETE|WITH|ANALYZE)\b", statement, re.MULTILINE
        ), name
        assert "-- name:" not in statement


def test_a_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        load_queries("nowhere.sql")
