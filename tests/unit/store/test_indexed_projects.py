"""Which projects have an index, remembered: who waits for the database when it is asked again."""

import threading
from typing import Any, cast

from tests.unit.pipeline.pipeline_fakes import FakeClock
from workers.deadline import Cut, Deadline
from workers.model import Level
from workers.store.database import Database
from workers.store.vector_indexes import IndexedProjects

LATER = Deadline.after(86_400)  # counted from when the tests are collected


class Reads:
    """A database whose answer waits until it is let go."""

    def __init__(self) -> None:
        self.count = 0
        self.begun, self.free = threading.Event(), threading.Event()
        self.free.set()

    def read(self, _statements: Any, deadline: Deadline) -> list[list[dict[str, Any]]]:
        self.count += 1
        self.deadline = deadline
        self.begun.set()
        assert self.free.wait(10)
        return [[{"project": "large", "level": "L0", "nodes": self.count}]]


def test_the_database_is_asked_once_in_a_while_and_not_for_every_search() -> None:
    reads, clock = Reads(), FakeClock()
    indexed = IndexedProjects(cast(Database, reads), 1, clock)

    first = [indexed.rows_of(project, LATER) for project in ("large", "large", "small")]
    clock.advance(60)
    later = indexed.rows_of("large", LATER)

    assert first == [{Level.L0: 1}, {Level.L0: 1}, None]
    assert later == {Level.L0: 2}
    assert reads.count == 2


def test_while_one_thread_asks_a_slow_database_the_others_go_on_with_what_is_known() -> None:
    reads, clock = Reads(), FakeClock()
    indexed = IndexedProjects(cast(Database, reads), 1, clock)
    indexed.rows_of("large", LATER)
    clock.advance(60)
    reads.begun.clear()
    reads.free.clear()
    slow = threading.Thread(target=indexed.rows_of, args=("large", LATER))
    slow.start()
    assert reads.begun.wait(10)

    known = indexed.rows_of("large", LATER)
    reads.free.set()
    slow.join()

    assert known == {Level.L0: 1}
    assert indexed.rows_of("large", LATER) == {Level.L0: 2}


def test_the_question_to_the_database_is_short_and_ends_with_the_query() -> None:
    reads, clock, cut = Reads(), FakeClock(), Cut()

    IndexedProjects(cast(Database, reads), 1, clock).rows_of(
        "large", Deadline.after(60, clock, cut)
    )

    assert reads.deadline.remaining() == 2.0
    cut.make()
    assert reads.deadline.passed()
