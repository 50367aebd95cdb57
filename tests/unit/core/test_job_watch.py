"""Searches of a job that has ended are cut, and only those."""

import threading
from collections.abc import Collection, Sequence

import pytest

from workers.errors import QueueUnavailable
from workers.job_watch import JobWatch


class FakeEnds:
    """What Redis knows of the end of jobs, and of the life of workers."""

    def __init__(self) -> None:
        self.ended: set[str] = set()
        self.asked: list[list[str]] = []
        self.failures = 0
        self.alive: list[tuple[str, list[str]]] = []
        self.is_told = threading.Event()

    def frozen(self, query_ids: Sequence[str]) -> list[bool]:
        self.asked.append(list(query_ids))
        return [query_id in self.ended for query_id in query_ids]

    def say_alive(self, worker: str, jobs: Collection[str]) -> None:
        if self.failures:
            self.failures -= 1
            raise QueueUnavailable("no Redis")
        self.alive.append((worker, sorted(jobs)))
        self.is_told.set()


@pytest.fixture
def ends() -> FakeEnds:
    return FakeEnds()


@pytest.fixture
def watch(ends: FakeEnds) -> JobWatch:
    return JobWatch(ends)


def test_only_searches_of_the_job_that_ended_are_cut(ends: FakeEnds, watch: JobWatch) -> None:
    with watch.over("ended") as one, watch.over("ended") as other, watch.over("goes on") as third:
        watch.look()
        assert not any(cut.is_made for cut in (one, other, third))
        ends.ended.add("ended")
        watch.look()

        assert (one.is_made, other.is_made, third.is_made) == (True, True, False)


def test_each_job_is_asked_about_once_and_nothing_where_nothing_runs(
    ends: FakeEnds, watch: JobWatch
) -> None:
    watch.look()
    with watch.over("one"), watch.over("one"), watch.over("other"):
        watch.look()
    watch.look()

    assert ends.asked == [["one", "other"]]


def test_a_search_that_is_over_is_not_cut_any_more(ends: FakeEnds, watch: JobWatch) -> None:
    with watch.over("ended") as cut:
        pass
    ends.ended.add("ended")

    watch.look()

    assert not cut.is_made


def test_a_search_that_broke_is_forgotten_as_well(ends: FakeEnds, watch: JobWatch) -> None:
    with pytest.raises(ZeroDivisionError), watch.over("one"):
        _ = 1 / 0

    watch.look()

    assert ends.asked == []


def test_two_workers_never_have_the_same_name(ends: FakeEnds) -> None:
    assert len({JobWatch(ends).worker for _ in range(100)}) == 100


def test_a_worker_goes_on_saying_that_it_lives_whatever_happens(
    ends: FakeEnds, watch: JobWatch
) -> None:
    ends.failures = 1
    with watch.over("one"):
        watch.start()
        assert ends.is_told.wait(10.0)

    assert ends.alive[0] == (watch.worker, ["one"])
