"""What Redis knows of a submitted query while it runs, on a Redis of this process."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import fakeredis
import pytest

from tests.unit.pipeline.pipeline_fakes import found, hit
from workers.errors import QueueUnavailable
from workers.model import Change, Job, JobLook, Outcome, Pace, Silence, Status
from workers.store.query_runs import ALIVE_MS, JobRuns, Recorded

NOW = datetime(2026, 7, 21, 9, 0, tzinfo=UTC)
JOB = Job(
    id="0123456789abcdef0123456789abcdef",
    key_id="somebody",
    status="open",
    request={},
    projects=("alpha", "beta"),
    documents=(3, 4),
    attempts=1,
    submitted_at=NOW,
    deadline_at=NOW + timedelta(seconds=60),
    asked_at=NOW,
    dispatched_at=NOW,
)
BASE = JOB.first_revision


@pytest.fixture
def server() -> fakeredis.FakeRedis:
    return fakeredis.FakeRedis()


@pytest.fixture
def runs(server: fakeredis.FakeRedis) -> JobRuns:
    runs = JobRuns(server)
    runs.open_job(JOB, JOB.projects, limit=5)
    return runs


def pace(runs: JobRuns) -> Pace | None:
    (found,) = runs.pace([JOB.id])
    return found


def changes(runs: JobRuns, since: int = 0) -> list[Change]:
    return runs.changes(JOB.id, since, 0.001)


def test_opening_a_job_tells_the_time_and_how_much_waits(
    server: fakeredis.FakeRedis, runs: JobRuns
) -> None:
    server.rpush("jobs", "one", "other")

    opened = runs.open_job(JOB, JOB.projects, limit=5)

    assert (opened.waiting, runs.waiting()) == (2, 2)
    assert opened.at > 1_700_000_000


def test_every_revision_is_told_once_and_in_order(runs: JobRuns) -> None:
    paces = [pace(runs)]
    runs.begin(JOB.id, ["alpha"], "worker one")
    paces.append(pace(runs))
    runs.begin(JOB.id, ["beta"], "worker two")
    runs.record(JOB.id, Outcome("beta", Status.TIMED_OUT, reason="recall_timeout"))
    paces.append(pace(runs))
    runs.record(JOB.id, found("alpha"))
    paces.append(pace(runs))
    runs.close(JOB.id, JOB.last_revision, "callback")

    assert paces == [
        Pace(BASE, False, 0, 2),
        Pace(BASE + 1, True, 0, 2),
        Pace(BASE + 2, True, 1, 2),
        Pace(BASE + 3, True, 2, 2),
    ]
    assert changes(runs) == [
        Change(BASE + 1),
        Change(BASE + 2, "beta", Status.TIMED_OUT, "recall_timeout"),
        Change(BASE + 3, "alpha", Status.SUCCESSFUL),
        Change(BASE + 4, is_end=True),
    ]
    assert JOB.last_revision == BASE + 4


def test_only_what_came_after_a_revision_is_told(runs: JobRuns) -> None:
    runs.begin(JOB.id, ["alpha"], "worker")
    runs.record(JOB.id, found("alpha"))

    assert changes(runs, BASE + 1) == [Change(BASE + 2, "alpha", Status.SUCCESSFUL)]
    assert changes(runs, BASE + 2) == []


def test_whoever_waits_for_news_is_woken_by_them(runs: JobRuns) -> None:
    told: list[Change] = []
    waiter = threading.Thread(target=lambda: told.extend(runs.changes(JOB.id, BASE, 5.0)))
    waiter.start()

    runs.begin(JOB.id, ["alpha"], "worker")

    waiter.join(timeout=10.0)
    # Waits come in slices; one that ended a moment too early finds the news in the next one.
    assert [change.revision for change in told or changes(runs, BASE)] == [BASE + 1]


def test_a_second_outcome_of_a_project_is_no_news(runs: JobRuns) -> None:
    runs.record(JOB.id, found("alpha", hit("first", "alpha")))

    assert runs.record(JOB.id, found("alpha", hit("second", "alpha"))) is Recorded.DUPLICATE

    assert len(changes(runs)) == 1
    so_far = runs.so_far(JOB.id)
    assert so_far is not None
    assert so_far.outcomes["alpha"].hits[0].sha256 == "first"


def test_an_outcome_before_anybody_said_that_it_began_is_news_as_well(runs: JobRuns) -> None:
    """Its worker could not say so, or began it before Redis forgot the job."""
    runs.record(JOB.id, found("alpha"))
    told = [change.revision for change in changes(runs)]

    assert runs.begin(JOB.id, ["alpha", "beta"], "worker") == ["beta"]
    runs.record(JOB.id, found("beta"))

    assert told == [BASE + 2]
    assert pace(runs) == Pace(BASE + 3, True, 2, 2)
    assert [change.revision for change in changes(runs)] == [BASE + 2, BASE + 3]


def test_another_attempt_goes_on_with_later_revisions(runs: JobRuns) -> None:
    runs.begin(JOB.id, ["alpha", "beta"], "a worker that was lost")
    runs.record(JOB.id, found("alpha"))

    runs.open_job(replace(JOB, attempts=2), JOB.projects, limit=5)
    seen = [pace(runs)]
    runs.begin(JOB.id, ["beta"], "another worker")
    runs.record(JOB.id, found("beta"))
    seen.append(pace(runs))

    later = replace(JOB, attempts=2).first_revision
    assert later > BASE + 2
    assert [one.revision for one in seen if one] == [later + 2, later + 3]
    told = [change.revision for change in changes(runs)]
    assert told == sorted(set(told)) == [BASE + 1, BASE + 2, later + 3]


def test_a_worker_takes_what_is_not_answered_yet(runs: JobRuns) -> None:
    assert runs.begin(JOB.id, ["alpha", "beta"], "one") == ["alpha", "beta"]
    runs.record(JOB.id, found("alpha"))

    assert runs.begin(JOB.id, ["alpha", "beta"], "other") == ["beta"]

    assert runs.look([JOB.id, "unknown"]) == [
        JobLook(False, frozenset({"alpha"}), {"alpha": "one", "beta": "other"}),
        None,
    ]


def test_nothing_is_begun_of_a_job_that_is_frozen_or_unknown(runs: JobRuns) -> None:
    runs.freeze(JOB.id, "stop", Silence.STOPPED)

    assert runs.begin(JOB.id, ["alpha"], "worker") == []
    assert runs.begin("unknown", ["alpha"], "worker") == []
    assert runs.frozen([JOB.id, "unknown"]) == [True, True]


def test_a_look_at_what_has_arrived_ends_nothing(runs: JobRuns) -> None:
    runs.record(JOB.id, found("alpha", hit("a", "alpha")))

    so_far = runs.so_far(JOB.id)

    assert so_far is not None
    assert (so_far.projects, so_far.documents, so_far.limit) == (("alpha", "beta"), (3, 4), 5)
    assert (list(so_far.outcomes), so_far.silence) == (["alpha"], Silence.UNFINISHED)
    assert runs.frozen([JOB.id]) == [False]
    assert runs.record(JOB.id, found("beta")) is Recorded.COMPLETED
    assert runs.so_far("unknown") is None


def test_why_a_project_is_silent_is_said_by_the_first_to_freeze(runs: JobRuns) -> None:
    runs.freeze(JOB.id, "stop", Silence.STOPPED)

    frozen = runs.freeze(JOB.id, "sweep", Silence.GIVEN_UP)

    assert frozen is not None
    assert (frozen.by, frozen.silence) == ("stop", Silence.STOPPED)


def test_a_job_that_was_cancelled_cannot_be_frozen_any_more(runs: JobRuns) -> None:
    runs.record(JOB.id, found("alpha"))
    runs.close(JOB.id, JOB.last_revision, "cancel")

    assert runs.freeze(JOB.id, "stop", Silence.STOPPED) is None


def test_a_job_closed_before_it_was_opened_stays_closed(server: fakeredis.FakeRedis) -> None:
    runs = JobRuns(server)
    runs.close(JOB.id, JOB.last_revision, "cancel")

    assert runs.freeze(JOB.id, "stop", Silence.STOPPED) is None
    assert runs.so_far(JOB.id) is None
    assert pace(runs) is None
    runs.open_job(JOB, JOB.projects, limit=5)  # by who had claimed it, and was slow
    assert runs.begin(JOB.id, ["alpha"], "worker") == []


def test_outcomes_after_the_end_are_counted_and_dropped(
    server: fakeredis.FakeRedis, runs: JobRuns
) -> None:
    runs.close(JOB.id, JOB.last_revision, "cancel")

    assert runs.record(JOB.id, found("alpha")) is Recorded.TOO_LATE

    assert server.hget(f"poimen:q:{{{JOB.id}}}", "late") == b"1"
    assert [change.is_end for change in changes(runs)] == [True]


def test_whoever_found_a_job_running_does_not_see_less_of_it_once_it_has_ended(
    runs: JobRuns,
) -> None:
    runs.begin(JOB.id, ["alpha"], "worker")
    runs.record(JOB.id, found("alpha"))
    before = pace(runs), runs.so_far(JOB.id)

    runs.close(JOB.id, JOB.last_revision, "callback")

    assert (pace(runs), runs.so_far(JOB.id)) == before


def test_a_job_is_closed_once(runs: JobRuns) -> None:
    runs.close(JOB.id, JOB.last_revision, "stop")
    runs.close(JOB.id, JOB.last_revision, "sweep")

    assert [change.revision for change in changes(runs)] == [JOB.last_revision]


def test_everything_about_a_job_has_a_lifetime(server: fakeredis.FakeRedis, runs: JobRuns) -> None:
    def lifetimes() -> dict[str, int]:
        keys = [key.decode() for key in server.keys()]  # noqa: SIM118
        return {key.rpartition("}")[2]: server.ttl(key) for key in keys}

    runs.begin(JOB.id, ["alpha"], "worker")
    runs.record(JOB.id, found("alpha"))
    running = lifetimes()
    runs.close(JOB.id, JOB.last_revision, "callback")
    ended = lifetimes()

    assert running.keys() == {"", ":outcomes", ":begun", ":changes"}
    assert all(100 < lifetime <= 122 for lifetime in running.values()), running
    assert ended.keys() == {"", ":outcomes", ":changes"}
    assert all(0 < lifetime <= 60 for lifetime in ended.values()), ended
    assert ended[":outcomes"] <= 10


def test_a_worker_without_a_sign_of_life_is_lost(
    server: fakeredis.FakeRedis, runs: JobRuns
) -> None:
    runs.say_alive("alive", {JOB.id})

    (sign,) = runs.signs({"alive", "dead"}).values()
    assert sign.jobs == {JOB.id}
    assert 0 <= sign.age_s < 1
    assert runs.signs(set()) == {}
    assert 0 < server.pttl("poimen:alive:alive") <= ALIVE_MS


def test_many_jobs_are_looked_at_at_once(runs: JobRuns) -> None:
    other = replace(JOB, id="f" * 32)
    runs.open_job(other, JOB.projects, limit=5)
    runs.record(other.id, found("beta"))

    looks = runs.look([JOB.id, "unknown", other.id])
    paces = runs.pace([JOB.id, "unknown", other.id])

    assert [look and look.answered for look in looks] == [frozenset(), None, frozenset({"beta"})]
    assert [one and one.done for one in paces] == [0, None, 1]
    assert runs.look([]) == runs.pace([]) == runs.frozen([]) == []


def test_a_redis_that_does_not_answer_is_said_without_its_address() -> None:
    nowhere = fakeredis.FakeServer()
    nowhere.connected = False
    runs = JobRuns(fakeredis.FakeRedis(server=nowhere))

    for use in (
        lambda: runs.open_job(JOB, JOB.projects, 5),
        lambda: runs.begin(JOB.id, ["alpha"], "worker"),
        lambda: runs.record(JOB.id, found("alpha")),
        lambda: runs.look([JOB.id]),
        lambda: runs.pace([JOB.id]),
        lambda: runs.so_far(JOB.id),
        lambda: runs.frozen([JOB.id]),
        lambda: runs.changes(JOB.id, 0, 1.0),
        lambda: runs.close(JOB.id, 9, "stop"),
        lambda: runs.say_alive("worker", ()),
        lambda: runs.signs({"worker"}),
        lambda: runs.waiting(),
        lambda: runs.takes_writes(),
    ):
        with pytest.raises(QueueUnavailable) as caught:
            use()
        assert "://" not in str(caught.value)
