"""The protocol by which many processes end one query once, on a Redis of this process."""

import threading
from concurrent.futures import ThreadPoolExecutor

import fakeredis
import pytest
import redis

from tests.unit.pipeline.pipeline_fakes import found, hit, ids
from workers.errors import QueueUnavailable
from workers.model import Answer, Outcome, Status
from workers.pipeline.merge import finalize
from workers.store.query_runs import QueryRuns, Recorded

QUERY = "0123456789abcdef"


class BrokenRedis(fakeredis.FakeRedis):
    """A server that cannot be reached."""

    def execute_command(self, *args: object, **options: object) -> object:
        raise redis.ConnectionError("connection refused to redis://:secret@host")


@pytest.fixture
def server() -> fakeredis.FakeRedis:
    return fakeredis.FakeRedis()


@pytest.fixture
def runs(server: fakeredis.FakeRedis) -> QueryRuns:
    runs = QueryRuns(server)
    runs.open(QUERY, ["alpha", "beta"], [3, 4], limit=3, timeout_s=5.0)
    return runs


def answer_of(by: str) -> Answer:
    return Answer(QUERY, ("alpha",), (), (), (), finalized_by=by)


def test_what_was_recorded_is_what_is_merged(runs: QueryRuns) -> None:
    outcome = found("alpha", hit("a", "alpha", 0.25))

    assert runs.record(QUERY, outcome) is Recorded.RECORDED

    frozen = runs.freeze(QUERY, "callback")
    assert frozen is not None
    assert (frozen.projects, frozen.limit, frozen.by) == (("alpha", "beta"), 3, "callback")
    assert frozen.outcomes == {"alpha": outcome}


def test_the_first_outcome_of_a_project_stands(runs: QueryRuns) -> None:
    runs.record(QUERY, found("alpha", hit("first", "alpha")))

    again = runs.record(QUERY, found("alpha", hit("second", "alpha")))

    assert again is Recorded.DUPLICATE
    frozen = runs.freeze(QUERY, "callback")
    assert frozen is not None
    assert ids(frozen.outcomes["alpha"].hits) == ["first"]


def test_an_outcome_after_freezing_is_dropped_and_counted(
    runs: QueryRuns, server: fakeredis.FakeRedis
) -> None:
    runs.freeze(QUERY, "waiter")

    assert runs.record(QUERY, found("alpha")) is Recorded.TOO_LATE
    assert runs.record(QUERY, found("beta")) is Recorded.TOO_LATE

    assert server.hget(f"poimen:q:{{{QUERY}}}", "late") == b"2"
    frozen = runs.freeze(QUERY, "callback")
    assert frozen is not None
    assert (frozen.by, frozen.outcomes) == ("waiter", {})


def test_an_outcome_of_an_unknown_query_leaves_nothing_behind(
    server: fakeredis.FakeRedis,
) -> None:
    assert QueryRuns(server).record("forgotten", found("alpha")) is Recorded.UNKNOWN_QUERY

    assert server.keys() == []


def test_an_unknown_query_cannot_be_frozen_into_being(server: fakeredis.FakeRedis) -> None:
    runs = QueryRuns(server)

    assert runs.freeze("forgotten", "waiter") is None
    assert server.keys() == []


def test_who_stopped_the_query_first_is_remembered(runs: QueryRuns) -> None:
    runs.freeze(QUERY, "waiter")

    frozen = runs.freeze(QUERY, "callback")

    assert frozen is not None
    assert frozen.by == "waiter"


def test_publishing_returns_the_answer_that_stands(runs: QueryRuns) -> None:
    first, second = answer_of("callback"), answer_of("waiter")

    assert runs.publish(QUERY, first) == first
    assert runs.publish(QUERY, second) == first
    assert runs.freeze(QUERY, "poll") == first


def test_whoever_waits_is_woken_by_the_answer(runs: QueryRuns) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(runs.wait, QUERY, 30.0)

        runs.publish(QUERY, answer_of("callback"))

        assert waiting.result(timeout=10.0) == answer_of("callback")


def test_no_time_to_wait_is_no_wait_at_all(runs: QueryRuns) -> None:
    assert runs.wait(QUERY, 0.0) is None  # 0 would mean for ever to Redis
    assert runs.wait(QUERY, -1.0) is None


def test_every_key_has_a_lifetime_beyond_the_deadline(
    runs: QueryRuns, server: fakeredis.FakeRedis
) -> None:
    runs.record(QUERY, found("alpha"))
    runs.freeze(QUERY, "waiter")
    runs.record(QUERY, found("beta"))
    runs.publish(QUERY, answer_of("waiter"))
    runs.publish(QUERY, answer_of("callback"))

    lifetimes = {key.decode(): server.ttl(key) for key in server.keys()}  # noqa: SIM118

    assert len(lifetimes) == 3, "the outcomes have become the answer"
    assert all(50 < lifetime <= 66 for lifetime in lifetimes.values()), lifetimes
    assert all(f"{{{QUERY}}}" in key for key in lifetimes)


def test_outcomes_do_not_die_before_the_query_they_belong_to(
    runs: QueryRuns, server: fakeredis.FakeRedis
) -> None:
    runs.record(QUERY, found("alpha"))

    key = f"poimen:q:{{{QUERY}}}"
    assert server.ttl(f"{key}:outcomes") >= server.ttl(key)


def test_queries_do_not_see_each_other(server: fakeredis.FakeRedis) -> None:
    runs = QueryRuns(server)
    runs.open("one", ["alpha"], [1], 5, 5.0)
    runs.open("other", ["alpha", "beta"], [1, 1], 5, 5.0)

    runs.record("one", found("alpha"))
    runs.freeze("one", "waiter")

    assert runs.record("other", found("alpha")) is Recorded.RECORDED


def test_whoever_records_the_last_outcome_is_told_also_again(runs: QueryRuns) -> None:
    told = [runs.record(QUERY, found(name)) for name in ("beta", "beta", "alpha", "alpha")]

    recorded, duplicate, completed = Recorded.RECORDED, Recorded.DUPLICATE, Recorded.COMPLETED
    assert told == [recorded, duplicate, completed, completed]


def test_a_query_over_no_project_can_be_ended(server: fakeredis.FakeRedis) -> None:
    runs = QueryRuns(server)
    runs.open("empty", [], [], 5, 5.0)

    answer = finalize(runs, "empty", "waiter")

    assert answer is not None
    assert answer.hits == ()


def test_many_finalizers_agree_on_one_answer(runs: QueryRuns) -> None:
    runs.record(QUERY, found("alpha", hit("a", "alpha", 0.5)))
    answers: list[Answer | None] = []
    start = threading.Barrier(8)

    def end(by: str) -> None:
        start.wait()
        answers.append(finalize(runs, QUERY, by))

    finalizers = [threading.Thread(target=end, args=[f"finalizer {n}"]) for n in range(8)]
    for finalizer in finalizers:
        finalizer.start()
    for finalizer in finalizers:
        finalizer.join()

    assert len(answers) == 8
    assert all(answer == answers[0] for answer in answers)
    assert answers[0] is not None
    assert answers[0].outcomes[1].status is Status.TIMED_OUT


def test_a_recorded_outcome_is_in_the_answer_or_was_told_that_it_came_late(
    runs: QueryRuns,
) -> None:
    told: dict[str, Recorded] = {}
    start = threading.Barrier(3)

    def record(project: str) -> None:
        start.wait()
        told[project] = runs.record(QUERY, Outcome(project, Status.SUCCESSFUL))

    def end() -> None:
        start.wait()
        finalize(runs, QUERY, "waiter")

    threads = [threading.Thread(target=record, args=[name]) for name in ("alpha", "beta")]
    threads.append(threading.Thread(target=end))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    answer = runs.freeze(QUERY, "poll")
    assert isinstance(answer, Answer)
    for outcome in answer.outcomes:
        is_in = outcome.status is Status.SUCCESSFUL
        stored = (Recorded.RECORDED, Recorded.COMPLETED)
        assert told[outcome.project] in (stored if is_in else (Recorded.TOO_LATE,))


def test_a_redis_that_does_not_answer_is_said_without_its_address() -> None:
    runs = QueryRuns(BrokenRedis())

    for use in (
        lambda: runs.open(QUERY, ["alpha"], [1], 5, 5.0),
        lambda: runs.record(QUERY, found("alpha")),
        lambda: runs.freeze(QUERY, "waiter"),
        lambda: runs.publish(QUERY, answer_of("waiter")),
        lambda: runs.wait(QUERY, 1.0),
    ):
        with pytest.raises(QueueUnavailable) as caught:
            use()
        assert "secret" not in str(caught.value)
