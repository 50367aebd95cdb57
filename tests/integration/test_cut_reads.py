"""Reads whose query was cut: the caller goes on at once, and PostgreSQL stops its work."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from app.local.signals import StopRequest
from tests.integration.local.conftest import open_folder
from tests.integration.local.serve import make_stack
from tests.integration.obstacles import stopped
from tests.integration.service import until
from workers.deadline import Cut, Deadline
from workers.errors import DeadlineExceeded, PoimenError
from workers.store.database import Database, Statement
from workers.store.watchdog import Watchdog

SOON_S = 1.0  # about 0.1 s undisturbed
ONE = Statement("SELECT 1 AS one", {})


def sleep(seconds: float) -> Statement:
    return Statement("SELECT 1 AS one FROM pg_sleep(%(seconds)s)", {"seconds": seconds})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with open_folder() as folder, make_stack(folder / "state", StopRequest()) as stack:
        url = stack.start().database_url
        with psycopg.connect(url) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield url


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """With one connection, so that nothing which is left of a read is missed by the next."""
    with closing(Database(url, 1)) as database:
        database.read([ONE], Deadline.after(60))
        yield database


class Reading:
    """A read in a thread of its own."""

    def __init__(self, database: Database, statements: list[Statement], deadline: Deadline) -> None:
        self.said: Any = None
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._run, args=(database, statements, deadline))
        self._thread.start()

    def _run(self, database: Database, statements: list[Statement], deadline: Deadline) -> None:
        try:
            self.said = database.read(statements, deadline)
        except PoimenError as error:
            self.said = error
        self.ended_at = time.monotonic()

    def end(self) -> Any:
        self._thread.join(20)
        return self.said


def sleepers(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
        return [pid for (pid,) in rows]


@pytest.mark.parametrize(
    "statements",
    [[sleep(60)], [ONE, sleep(60), ONE], [sleep(60)] * 3],
    ids=["one", "between others", "several"],
)
def test_a_cut_ends_a_read_and_its_statement_in_the_server(
    url: str, database: Database, statements: list[Statement]
) -> None:
    cut = Cut()
    reading = Reading(database, statements, Deadline.after(60, cut=cut))
    until(lambda: sleepers(url))

    cut_at = time.monotonic()
    cut.make()

    assert isinstance(reading.end(), DeadlineExceeded)
    assert reading.ended_at - cut_at < SOON_S
    until(lambda: not sleepers(url), within_s=SOON_S)
    assert database.read([ONE], Deadline.after(60)) == [[{"one": 1}]]


def test_a_cut_ends_all_reads_of_its_query_and_no_others(url: str) -> None:
    cut, other = Cut(), Cut()
    with closing(Database(url, 8)) as database:
        cuts = [Reading(database, [sleep(60)], Deadline.after(60, cut=cut)) for _ in range(4)]
        others = [Reading(database, [sleep(60)], Deadline.after(60, cut=other)) for _ in range(3)]
        until(lambda: len(sleepers(url)) == 7)

        cut.make()

        assert [type(one.end()) for one in cuts] == [DeadlineExceeded] * 4
        assert len(until(lambda: found if len(found := sleepers(url)) == 3 else None)) == 3
        other.make()
        assert [type(one.end()) for one in others] == [DeadlineExceeded] * 3


def test_a_cut_ends_the_wait_for_a_free_connection(url: str, database: Database) -> None:
    holding, waiting = Cut(), Cut()
    first = Reading(database, [sleep(60)], Deadline.after(60, cut=holding))
    until(lambda: sleepers(url))
    second = Reading(database, [ONE], Deadline.after(60, cut=waiting))

    cut_at = time.monotonic()
    waiting.make()

    assert isinstance(second.end(), DeadlineExceeded)
    assert second.ended_at - cut_at < SOON_S
    assert sleepers(url), "whoever has the connection keeps it"
    holding.make()
    first.end()


def test_one_that_may_be_cut_waits_for_a_free_connection_as_long_as_any_other(
    url: str, database: Database
) -> None:
    holding = Cut()
    first = Reading(database, [sleep(60)], Deadline.after(60, cut=holding))
    until(lambda: sleepers(url))
    second = Reading(database, [ONE], Deadline.after(60, cut=Cut()))

    holding.make()

    assert isinstance(first.end(), DeadlineExceeded)
    assert second.end() == [[{"one": 1}]]


def test_a_server_that_hangs_holds_nobody_up_and_stops_its_work_later(
    url: str, database: Database
) -> None:
    cut = Cut()
    reading = Reading(database, [sleep(60)], Deadline.after(60, cut=cut))
    with stopped(until(lambda: sleepers(url))):
        cut_at = time.monotonic()
        cut.make()

        assert isinstance(reading.end(), DeadlineExceeded)
        assert reading.ended_at - cut_at < SOON_S
    until(lambda: not sleepers(url), within_s=SOON_S)


def test_after_the_cut_nothing_is_asked(database: Database) -> None:
    cut = Cut()
    cut.make()

    with pytest.raises(DeadlineExceeded):
        database.read([ONE], Deadline.after(60, cut=cut))


def test_a_read_that_may_be_cut_and_is_not_is_like_any_other(database: Database) -> None:
    deadline = Deadline.after(60, cut=Cut())
    threads = threading.active_count()

    sessions = {
        database.read([Statement("SELECT pg_backend_pid() AS pid", {})], deadline)[0][0]["pid"]
        for _ in range(20)
    }

    assert len(sessions) == 1, "the connection is kept"
    assert threading.active_count() == threads


def test_a_connection_is_lost_with_the_cut_even_if_the_answer_came_first(url: str) -> None:
    watchdog, cut = Watchdog(), Cut()
    with psycopg.connect(url, autocommit=True) as kept, psycopg.connect(url) as lost:
        with watchdog.over(kept, 60, Cut()):
            kept.execute("SELECT 1")
        with watchdog.over(lost, 60, cut):
            lost.execute("SELECT 1")
            cut.make()

        # The server may be told to cancel a moment later, and would then end what comes next.
        assert (kept.closed, lost.closed) == (False, True)


def test_a_cut_that_comes_at_any_moment_never_ends_another_s_read(database: Database) -> None:
    for round_ in range(25):
        cut = Cut()
        reading = Reading(database, [sleep(0.05)], Deadline.after(60, cut=cut))
        cut.wait(0.003 * round_)
        cut.make()
        # On the same connection, if there is still one.
        assert database.read([sleep(0.02)], Deadline.after(60)) == [[{"one": 1}]]
        assert isinstance(reading.end(), DeadlineExceeded | list)
