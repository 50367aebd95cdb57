"""Following a submitted query: waiting for news, watching, and what is told while Redis is away."""

from itertools import islice, pairwise

import pytest

from app.job_service import HEARTBEAT_S, STREAM_S, JobService
from app.parameters import JobListParameters, JobParameters
from tests.unit.app.app_fakes import EVERYTHING, POIMEN_ONLY, Door
from tests.unit.core.job_fakes import World
from tests.unit.pipeline.pipeline_fakes import found, hit, ids
from workers.errors import (
    InvalidParameters,
    JobExpired,
    JobNotFound,
    ProjectNotFound,
    QueueUnavailable,
    StoreUnavailable,
)
from workers.model import Silence, Status

JOB = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"
ME = EVERYTHING


@pytest.fixture
def world(door: Door) -> World:
    return door.world


@pytest.fixture
def jobs(door: Door) -> JobService:
    return door.job_service


@pytest.fixture
def running(world: World) -> str:
    """A job of mine over two projects that one worker has begun."""
    world.begun(JOB, "alpha", "beta", key_id=ME.key_id)
    return JOB


def answers(world: World, after_s: float, project: str) -> None:
    one = found(project, hit(project, project))
    world.time.after(after_s, lambda: world.states.record(JOB, one))


def ends(world: World, after_s: float) -> None:
    world.time.after(after_s, lambda: world.jobs.end(JOB, "callback"))


# Accepted


def test_what_was_submitted_is_in_the_table_and_sent(jobs: JobService, world: World) -> None:
    view, is_replayed = jobs.submit(JobParameters(query="why", limit=7), ME, None)

    job = view.job
    assert (view.status, is_replayed) == ("queued", False)
    assert (job.projects, job.key_id) == (("agent-rust", "poimen"), ME.key_id)
    assert world.searches.sent == [("all", job.id, ["agent-rust", "poimen"])]
    assert job.request["asked"]["limit"] == 7


def test_while_redis_is_away_nothing_is_accepted(jobs: JobService, world: World) -> None:
    world.states.is_down = True

    with pytest.raises(QueueUnavailable):
        jobs.submit(JobParameters(query="why"), ME, None)

    assert world.store.rows == {}


def test_what_redis_refuses_once_it_was_accepted_is_accepted(
    jobs: JobService, world: World
) -> None:
    world.states.is_full = True

    view, _ = jobs.submit(JobParameters(query="why"), ME, None)

    assert (view.job.has_ended, world.searches.sent) == (False, [])
    assert jobs.show(view.job.id, ME).status == "queued"


def test_who_has_to_wait_for_its_turn_sends_nothing(jobs: JobService, world: World) -> None:
    world.store.at_once = 0

    view, _ = jobs.submit(JobParameters(query="why"), ME, None)

    assert (view.status, view.revision, world.searches.sent) == ("queued", 0, [])


def test_a_project_that_is_not_there_is_not_accepted(jobs: JobService, world: World) -> None:
    for asked in ({"project": "nope"}, {"projects": ["poimen", "nope"]}):
        with pytest.raises(ProjectNotFound):
            jobs.submit(JobParameters(query="why", **asked), ME, None)
    with pytest.raises(ProjectNotFound):
        jobs.submit(JobParameters(query="why", project="agent-rust"), POIMEN_ONLY, None)

    assert world.store.rows == {}


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "\x7f", "é", "a\n"])
def test_a_key_is_visible_ascii(jobs: JobService, key: str) -> None:
    with pytest.raises(InvalidParameters) as caught:
        jobs.submit(JobParameters(query="why"), ME, key)

    assert caught.value.errors[0]["parameter"] == "Idempotency-Key"


# Waited for


def test_without_a_revision_the_end_is_waited_for(
    jobs: JobService, world: World, running: str
) -> None:
    answers(world, 1, "alpha")
    answers(world, 3, "beta")
    ends(world, 4)
    start = world.time()

    view = jobs.wait(running, ME, None, 20)

    assert (view.status, world.time() - start) == ("completed", 4)
    assert view.answer is not None
    assert ids(view.answer.hits) == ["alpha", "beta"]


def test_with_a_revision_the_next_news_are_waited_for(
    jobs: JobService, world: World, running: str
) -> None:
    answers(world, 1, "alpha")
    answers(world, 3, "beta")
    ends(world, 4)
    start = world.time()
    seen = [jobs.show(running, ME)]
    moments = []
    while not seen[-1].job.has_ended:
        seen.append(jobs.wait(running, ME, seen[-1].revision, 20))
        moments.append(world.time() - start)

    assert moments == [1, 3, 4]
    assert all(before.revision < after.revision for before, after in pairwise(seen))
    assert [len(view.answer.hits) for view in seen if view.answer] == [0, 1, 2, 2]


def test_a_wait_lasts_as_long_as_it_may(jobs: JobService, world: World, running: str) -> None:
    start = world.time()

    for since in (None, jobs.show(running, ME).revision, 10**30):
        assert jobs.wait(running, ME, since, 2.5).status == "running"

    assert world.time() - start == pytest.approx(7.5)


def test_old_news_and_ended_jobs_are_not_waited_for(
    jobs: JobService, world: World, running: str
) -> None:
    start = world.time()
    jobs.wait(running, ME, 0, 20)
    world.jobs.end(running, "stop", Silence.STOPPED)
    for since in (None, 0, 10**6):
        jobs.wait(running, ME, since, 20)

    assert world.time() == start


def test_a_job_that_nobody_ends_is_ended_by_who_waits(
    jobs: JobService, world: World, running: str
) -> None:
    answers(world, 1, "alpha")
    start = world.time()
    world.time.advance(50)

    view = jobs.wait(running, ME, None, 25)

    assert world.time() - start == pytest.approx(60, abs=0.1)
    assert (view.status, view.answer and view.answer.finalized_by) == ("partial", "poll")


def test_a_single_look_after_the_deadline_ends_a_job(
    jobs: JobService, world: World, running: str
) -> None:
    world.time.advance(61)

    view = jobs.show(running, ME)

    assert (view.status, view.job.error) == ("failed", "deadline_exceeded")


def test_while_redis_is_away_the_end_is_heard_of_from_the_table(
    jobs: JobService, world: World, running: str
) -> None:
    world.states.is_down = True
    world.time.after(3, lambda: world.jobs.cancel(running))
    start = world.time()

    view = jobs.wait(running, ME, None, 20)

    assert view.status == "cancelled"
    assert 3 <= world.time() - start < 3.5


def test_while_redis_does_not_tell_nothing_is_shown_that_a_later_look_contradicts(
    jobs: JobService, world: World, running: str
) -> None:
    world.states.is_down = True

    with pytest.raises(QueueUnavailable):
        jobs.show(running, ME)
    with pytest.raises(QueueUnavailable):
        jobs.revision(running, ME)
    assert not world.store.rows[running].has_ended


def test_a_wait_for_what_is_removed_meanwhile_says_so(
    jobs: JobService, world: World, running: str
) -> None:
    def remove() -> None:
        world.jobs.cancel(running)
        world.store.expire(running)

    world.time.after(2, remove)

    with pytest.raises(JobExpired):
        jobs.wait(running, ME, None, 20)


def test_a_database_that_goes_away_is_said(jobs: JobService, world: World, running: str) -> None:
    world.store.is_down = True

    for use in (
        lambda: jobs.wait(running, ME, None, 20),
        lambda: jobs.show(running, ME),
        lambda: jobs.stop(running, ME),
        lambda: jobs.remove(running, ME, False),
        lambda: jobs.list_jobs(JobListParameters(), ME),
    ):
        with pytest.raises(StoreUnavailable):
            use()


# Revisions


def test_revisions_grow_from_the_acceptance_to_the_end(jobs: JobService, world: World) -> None:
    world.store.at_once = 0
    world.store.add(JOB, "alpha", "beta", key_id=ME.key_id)
    seen = [(jobs.show(JOB, ME).status, jobs.revision(JOB, ME))]

    def look() -> None:
        assert jobs.show(JOB, ME).revision == jobs.revision(JOB, ME)
        seen.append((jobs.show(JOB, ME).status, jobs.revision(JOB, ME)))

    world.store.at_once = 8
    world.jobs.start_next()
    look()
    world.states.begin(JOB, "worker", "alpha", "beta")
    look()
    for project in ("alpha", "beta"):
        world.states.record(JOB, found(project))
        look()
    world.jobs.end(JOB, "callback")
    look()

    assert [status for status, _ in seen] == ["queued"] * 2 + ["running"] * 3 + ["completed"]
    assert all(before < after for (_, before), (_, after) in pairwise(seen))


def test_revisions_grow_when_redis_forgets_the_job(
    jobs: JobService, world: World, running: str
) -> None:
    world.states.record(JOB, found("alpha"))
    seen = [jobs.revision(JOB, ME)]
    world.time.advance(2)
    world.states.jobs.clear()
    seen.append(jobs.revision(JOB, ME))
    (job,) = world.store.at_work()
    claimed = world.store.claim_again(job, is_counted=True)
    assert claimed is not None
    seen.append(jobs.revision(JOB, ME))
    world.jobs.send(claimed, claimed.projects)
    world.states.begin(JOB, "another worker", "alpha", "beta")
    seen.append(jobs.revision(JOB, ME))

    assert seen == sorted(set(seen))


# Whose it is


def test_only_whose_it_is_may_touch_it(jobs: JobService, world: World, running: str) -> None:
    for job_id in (running, OTHER, "nope", "", running.upper(), f"{running}\n", f"{{{running}}}"):
        for use in (
            lambda job_id: jobs.show(job_id, POIMEN_ONLY),
            lambda job_id: jobs.wait(job_id, POIMEN_ONLY, None, 5),
            lambda job_id: jobs.stop(job_id, POIMEN_ONLY),
            lambda job_id: jobs.remove(job_id, POIMEN_ONLY, True),
            lambda job_id: list(jobs.events(job_id, POIMEN_ONLY, 0)),
        ):
            with pytest.raises(JobNotFound):
                use(job_id)
    assert jobs.list_jobs(JobListParameters(), POIMEN_ONLY) == ([], None)
    assert jobs.show(running, ME).status == "running"


# Stopped and removed


def test_stopping_is_idempotent(jobs: JobService, world: World, running: str) -> None:
    world.states.record(running, found("alpha", hit("a", "alpha")))

    first, second = jobs.stop(running, ME), jobs.stop(running, ME)

    assert first.status == "partial"
    assert (first.answer, first.revision) == (second.answer, second.revision)


def test_removing_is_for_what_has_ended_and_cancelling_for_what_runs(
    jobs: JobService, running: str
) -> None:
    cancelled = jobs.remove(running, ME, if_running=False)
    assert cancelled is not None
    assert cancelled.status == "cancelled"

    kept = jobs.remove(running, ME, if_running=True)
    assert kept is not None
    assert kept.status == "cancelled"

    assert jobs.remove(running, ME, if_running=False) is None
    with pytest.raises(JobExpired):
        jobs.remove(running, ME, if_running=False)


def test_what_is_not_kept_any_longer_has_expired(
    jobs: JobService, world: World, running: str
) -> None:
    world.jobs.cancel(running)
    world.time.advance(59)
    assert jobs.show(running, ME).status == "cancelled"
    world.time.advance(1)

    with pytest.raises(JobExpired):
        jobs.show(running, ME)


def test_a_result_that_is_removed_while_it_is_read_is_not_shown_empty(
    jobs: JobService, world: World, running: str
) -> None:
    world.states.record(JOB, found("alpha"), found("beta"))
    world.jobs.end(JOB, "callback")
    del world.store.answers[JOB]  # and its row was read before

    with pytest.raises(JobExpired):
        jobs.show(running, ME)


# Listed


def test_pages_follow_each_other_without_gap_or_repetition(jobs: JobService, world: World) -> None:
    names = [f"{n:032x}" for n in range(7)]
    for name in names:
        world.store.add(name, "alpha", key_id=ME.key_id)  # all at the same instant
    listed, cursor = [], None
    while True:
        page, cursor = jobs.list_jobs(JobListParameters(limit=3, cursor=cursor), ME)
        listed.append([view.job.id for view in page])
        if cursor is None:
            break

    assert [len(page) for page in listed] == [3, 3, 1]
    assert [name for page in listed for name in page] == names[::-1]


def test_a_full_last_page_has_no_next_one(jobs: JobService, world: World) -> None:
    for n in range(3):
        world.store.add(f"{n:032x}", "alpha", key_id=ME.key_id)

    page, cursor = jobs.list_jobs(JobListParameters(limit=3), ME)

    assert (len(page), cursor) == (3, None)


def test_a_list_comes_without_redis_as_well(jobs: JobService, world: World, running: str) -> None:
    world.states.is_down = True

    (view,), _ = jobs.list_jobs(JobListParameters(status="running"), ME)

    assert (view.job.id, view.pace) == (running, None)


@pytest.mark.parametrize("cursor", ["", "nope", "AAAA", "\U0001f4a9", "=", "MDAwMQ=="])
def test_a_cursor_is_only_what_a_list_gave(jobs: JobService, cursor: str) -> None:
    with pytest.raises(InvalidParameters) as caught:
        jobs.list_jobs(JobListParameters(cursor=cursor), ME)

    assert caught.value.errors[0]["parameter"] == "cursor"


# Watched


def test_a_stream_tells_each_change_then_what_was_found_and_the_end_last(
    jobs: JobService, world: World, running: str
) -> None:
    base = world.store.rows[JOB].first_revision
    answers(world, 1, "alpha")
    answers(world, 3, "beta")
    ends(world, 5)

    events = [event for event in jobs.events(running, ME, 0) if event]

    assert [(event.kind, event.revision) for event in events] == [
        ("progress", base + 1),
        ("hits", base + 1),
        ("progress", base + 2),
        ("hits", base + 2),
        ("progress", base + 3),
        ("hits", base + 3),
        ("done", base + 4),
    ]
    shown = [event.view.answer for event in events if event.kind != "progress"]
    assert [len(answer.hits) for answer in shown if answer] == [0, 1, 2, 2]
    assert events[2].change is not None
    assert (events[2].change.project, events[2].change.status) == ("alpha", Status.SUCCESSFUL)


def test_many_changes_at_once_are_shown_in_one_merge(jobs: JobService, world: World) -> None:
    projects = [f"project-{n}" for n in range(20)]
    world.begun(JOB, *projects, key_id=ME.key_id)
    for n, project in enumerate(projects):
        answers(world, 1 + 0.02 * n, project)
    ends(world, 2)

    events = [event for event in jobs.events(JOB, ME, 0) if event]

    kinds = [event.kind for event in events]
    assert kinds.count("progress") == 21
    assert kinds.count("hits") <= 4
    assert kinds[-1] == "done"


def test_a_stream_goes_on_after_the_last_event_that_was_heard(
    jobs: JobService, world: World, running: str
) -> None:
    answers(world, 1, "alpha")
    answers(world, 3, "beta")
    ends(world, 5)
    stream = jobs.events(running, ME, 0)
    heard = list(islice(stream, 4))
    stream.close()
    assert heard[-1] is not None

    rest = [event for event in jobs.events(running, ME, heard[-1].revision) if event]

    kinds = [event.kind for event in rest]
    assert kinds == ["progress", "hits", "done"]
    assert all(event.revision > heard[-1].revision for event in rest)


def test_no_event_has_an_earlier_id_than_one_before_it(
    jobs: JobService, world: World, running: str
) -> None:
    """What is shown may be ahead of what has been told; who comes back must still be told it."""
    answers(world, 0.1, "alpha")
    stream = jobs.events(running, ME, 0)
    first = next(stream)
    assert first is not None
    ids_heard = [first.revision]
    world.time.advance(0.3)
    world.states.record(JOB, found("beta"))  # after the stream has looked, before it shows
    ends(world, 2)

    ids_heard += [event.revision for event in stream if event]

    assert ids_heard == sorted(ids_heard)


def test_a_stream_in_which_nothing_happens_shows_that_it_lives_and_ends(
    jobs: JobService, world: World
) -> None:
    world.begun(JOB, "alpha", timeout_s=600, key_id=ME.key_id)
    revision = jobs.revision(JOB, ME)
    start = world.time()
    moments = [world.time() - start for event in jobs.events(JOB, ME, revision) if event is None]

    assert world.time() - start == pytest.approx(STREAM_S, abs=1.5)
    assert len(moments) == 3
    for before, after in pairwise([0.0, *moments]):
        assert after - before == pytest.approx(HEARTBEAT_S, abs=1.5)


def test_a_stream_of_an_ended_job_is_its_end(jobs: JobService, world: World, running: str) -> None:
    world.jobs.cancel(running)

    for since in (0, 10**6):
        (event,) = jobs.events(running, ME, since)
        assert event is not None
        assert (event.kind, event.view.status) == ("done", "cancelled")


def test_a_stream_ends_a_job_that_nobody_ends(jobs: JobService, world: World, running: str) -> None:
    start = world.time()
    world.time.advance(30)

    events = [event for event in jobs.events(running, ME, 0) if event]

    assert events[-1].kind == "done"
    assert world.time() - start == pytest.approx(60, abs=0.1)


def test_a_stream_tells_the_end_while_redis_is_away(
    jobs: JobService, world: World, running: str
) -> None:
    world.states.is_down = True
    world.time.after(3, lambda: world.jobs.cancel(running))

    events = [event for event in jobs.events(running, ME, 0) if event]

    assert [event.kind for event in events if event.kind != "hits"] == ["done"]
