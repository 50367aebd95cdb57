"""How a submitted query ends, whoever ends it and whatever is lost meanwhile."""

import itertools

import pytest

from tests.unit.core.job_fakes import World, statuses
from tests.unit.pipeline.pipeline_fakes import found, hit, ids
from workers.errors import QueueUnavailable, StoreUnavailable
from workers.jobs import BLIND_S, SETTLED_S, SUSPECT_S, UNBEGUN_S, Sweep
from workers.model import Outcome, SignOfLife, Silence, Status

JOB = "a-job"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def sweep(world: World) -> Sweep:
    return Sweep(world.jobs, world.store, world.states, attempts=3, clock=world.time)


def swept(world: World, sweep: Sweep, times: int, tasks: int = 0) -> None:
    """So many sweeps, a second apart."""
    world.states.tasks = tasks
    for _ in range(times):
        sweep.run()
        world.time.advance(1.0)


# Started


def test_a_job_of_several_projects_is_sent_as_a_whole(world: World) -> None:
    world.store.add(JOB, "alpha", "beta")

    world.jobs.start_next()

    assert world.searches.sent == [("all", JOB, ["alpha", "beta"])]
    assert world.searches.left_s == [59.0], "a second is kept for the merge"
    assert world.store.rows[JOB].attempts == 1


def test_a_job_of_one_project_ends_by_itself(world: World) -> None:
    world.store.add(JOB, "alpha")

    world.jobs.start_next()

    assert world.searches.sent == [("one", JOB, ["alpha"])]


def test_a_job_of_no_project_is_completed_at_once(world: World) -> None:
    world.store.add(JOB)

    world.jobs.start_next()

    assert world.searches.sent == []
    assert (world.store.status(JOB), world.answer(JOB).hits) == ("completed", ())


def test_as_many_jobs_are_sent_as_there_is_room_for(world: World) -> None:
    world.store.at_once = 2
    for name in ("one", "two", "three"):
        world.store.add(name, "alpha")

    world.jobs.start_next()
    assert [job for _, job, _ in world.searches.sent] == ["one", "two"]

    world.states.record("one", found("alpha"))
    world.jobs.end("one", "task")
    assert [job for _, job, _ in world.searches.sent] == ["one", "two", "three"]


def test_a_job_that_cannot_be_opened_waits_for_its_turn_again(world: World) -> None:
    world.store.add(JOB, "alpha", "beta")
    world.states.is_down = True

    world.jobs.start_next()

    row = world.store.rows[JOB]
    assert (row.status, row.attempts, row.dispatched_at) == ("open", 0, None)
    world.states.is_down = False
    world.jobs.start_next()
    assert world.searches.sent == [("all", JOB, ["alpha", "beta"])]


def test_a_job_whose_tasks_the_queue_does_not_take_is_not_lost(world: World, sweep: Sweep) -> None:
    world.store.add(JOB, "alpha", "beta")
    world.searches.is_down = True
    world.jobs.start_next()
    world.searches.is_down = False

    swept(world, sweep, 7)

    assert world.searches.sent == [("all", JOB, ["alpha", "beta"])]
    assert world.store.rows[JOB].attempts == 1


# Ended


@pytest.mark.parametrize(
    ("outcomes", "allow_partial", "status", "error"),
    [
        ([Status.SUCCESSFUL, Status.SUCCESSFUL], True, "completed", None),
        ([Status.SUCCESSFUL, Status.PARTIAL], True, "partial", None),
        ([Status.PARTIAL, Status.FAILED], True, "partial", None),
        ([Status.FAILED, Status.FAILED], True, "failed", "all_projects_failed"),
        ([Status.SUCCESSFUL, Status.SUCCESSFUL], False, "completed", None),
        ([Status.SUCCESSFUL, Status.PARTIAL], False, "failed", "incomplete_answer"),
        ([Status.SUCCESSFUL, Status.FAILED], False, "failed", "incomplete_answer"),
        ([Status.SUCCESSFUL, Status.TIMED_OUT], False, "failed", "deadline_exceeded"),
    ],
)
def test_how_a_job_ended_follows_from_what_its_projects_answered(
    world: World, outcomes: list[Status], allow_partial: bool, status: str, error: str | None
) -> None:
    world.begun(JOB, "alpha", "beta", allow_partial=allow_partial)
    for project, outcome in zip(("alpha", "beta"), outcomes, strict=True):
        world.states.record(JOB, found(project, hit(project, project), status=outcome))

    world.jobs.end_complete(JOB, "callback")

    row = world.store.rows[JOB]
    assert (row.status, row.error) == (status, error)
    assert world.answer(JOB).finalized_by == "callback"
    assert world.states.closed == [(JOB, row.last_revision, "callback")]


def test_a_job_is_not_complete_before_its_last_project(world: World) -> None:
    world.begun(JOB, "alpha", "beta")
    world.states.record(JOB, found("alpha"))

    world.jobs.end_complete(JOB, "callback")

    assert world.store.status(JOB) == "open"


def test_a_job_that_is_stopped_keeps_what_was_found(world: World) -> None:
    world.begun(JOB, "alpha", "beta")
    world.states.record(JOB, found("alpha", hit("a", "alpha")))

    answer = world.jobs.end(JOB, "stop", Silence.STOPPED)

    assert answer is not None
    assert (ids(answer.hits), world.store.status(JOB)) == (["a"], "partial")
    assert statuses(answer)["beta"] == ("cancelled", "stopped_by_user")
    assert answer.documents == 3


def test_a_job_that_is_cancelled_keeps_nothing(world: World) -> None:
    world.begun(JOB, "alpha")
    world.states.record(JOB, found("alpha"))

    assert world.jobs.cancel(JOB)

    assert world.store.status(JOB) == "cancelled"
    assert world.store.answers == {}
    assert world.jobs.end(JOB, "stop", Silence.STOPPED) is None
    assert not world.jobs.cancel(JOB)


ENDS = {
    "callback": lambda world: world.jobs.end_complete(JOB, "callback"),
    "poll": lambda world: world.jobs.end(JOB, "poll"),
    "stop": lambda world: world.jobs.end(JOB, "stop", Silence.STOPPED),
    "cancel": lambda world: world.jobs.cancel(JOB),
    "unfrozen": lambda world: world.jobs.end_unfrozen(world.store.rows[JOB], has_redis=True),
}


@pytest.mark.parametrize("order", list(itertools.permutations(ENDS, 2)))
def test_the_first_end_stands(world: World, order: tuple[str, str]) -> None:
    world.begun(JOB, "alpha", "beta")
    world.states.record(JOB, found("alpha"), found("beta"))

    ENDS[order[0]](world)
    row, answer = world.store.rows[JOB], world.store.answers.get(JOB)
    ENDS[order[1]](world)

    assert row.status == ("cancelled" if order[0] == "cancel" else "completed")
    assert (world.store.rows[JOB], world.store.answers.get(JOB)) == (row, answer)


def test_a_job_that_redis_has_forgotten_ends_with_nothing_found(world: World) -> None:
    world.begun(JOB, "alpha")
    world.states.jobs.clear()
    world.time.advance(60)

    answer = world.jobs.end(JOB, "poll")

    assert answer is not None
    assert statuses(answer) == {"alpha": ("timed_out", "no_answer_by_deadline")}
    assert (world.store.status(JOB), world.store.rows[JOB].error) == ("failed", "deadline_exceeded")


def test_a_job_that_redis_forgets_as_it_is_about_to_end_is_not_ended_before_its_deadline(
    world: World, sweep: Sweep
) -> None:
    world.begun(JOB, "alpha")
    world.states.jobs.clear()

    assert world.jobs.end(JOB, "callback") is None

    world.time.advance(2)
    sweep.run()
    assert (world.store.status(JOB), world.store.rows[JOB].attempts) == ("open", 2)


def test_a_job_whose_turn_never_came_says_so(world: World) -> None:
    world.store.add(JOB, "alpha")
    world.time.advance(60)

    answer = world.jobs.end(JOB, "poll")

    assert answer is not None
    assert statuses(answer) == {"alpha": ("timed_out", "queue_deadline")}
    assert world.store.rows[JOB].error == "queue_deadline"


def test_an_end_that_cannot_be_told_is_an_end(world: World) -> None:
    world.begun(JOB, "alpha")
    world.states.is_full = True

    assert world.jobs.cancel(JOB)

    assert world.store.status(JOB) == "cancelled"


def test_what_has_arrived_is_shown_without_ending_anything(world: World) -> None:
    world.begun(JOB, "alpha", "beta")
    world.states.record(JOB, found("alpha", hit("a", "alpha")))

    answer = world.jobs.so_far(world.store.rows[JOB])

    assert ids(answer.hits) == ["a"]
    assert statuses(answer) == {"alpha": ("successful", None), "beta": ("running", None)}
    assert (answer.finalized_by, answer.warnings) == ("", ())
    assert world.store.status(JOB) == "open"


def test_of_a_job_that_redis_does_not_know_yet_every_project_runs(world: World) -> None:
    world.begun(JOB, "alpha", "beta")
    del world.states.jobs[JOB]

    answer = world.jobs.so_far(world.store.rows[JOB])

    assert {one.status for one in answer.outcomes} == {Status.RUNNING}


# Swept up


def test_a_sweep_ends_what_is_overdue(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha", "beta", timeout_s=5)
    world.states.record(JOB, found("alpha", hit("a", "alpha")))
    world.time.advance(5.0)

    sweep.run()

    assert world.store.status(JOB) == "partial"
    assert world.answer(JOB).finalized_by == "sweep"
    assert statuses(world.answer(JOB))["beta"] == ("timed_out", "no_answer_by_deadline")


def test_a_sweep_lets_the_next_ones_begin(world: World, sweep: Sweep) -> None:
    world.store.add(JOB, "alpha")

    sweep.run()

    assert [job for _, job, _ in world.searches.sent] == [JOB]


def test_an_undisturbed_job_is_left_alone(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha", "beta")
    world.states.record(JOB, found("alpha"))

    swept(world, sweep, 10)

    assert world.searches.sent == []
    assert (world.store.status(JOB), world.store.rows[JOB].attempts) == ("open", 1)


def test_a_job_whose_callback_was_lost_is_ended_a_turn_later(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha")
    world.states.record(JOB, found("alpha"))

    sweep.run()
    assert world.store.status(JOB) == "open", "its callback is about to end it"
    sweep.run()

    assert world.store.status(JOB) == "completed"
    assert world.answer(JOB).finalized_by == "sweep"


def test_who_died_after_freezing_a_job_leaves_its_end_to_a_sweep(
    world: World, sweep: Sweep
) -> None:
    world.begun(JOB, "alpha", "beta")
    world.states.record(JOB, found("alpha"))
    world.states.freeze(JOB, "stop", Silence.STOPPED)

    swept(world, sweep, 2)

    assert (world.store.status(JOB), world.answer(JOB).finalized_by) == ("partial", "stop")
    assert statuses(world.answer(JOB))["beta"] == ("cancelled", "stopped_by_user")


def test_a_job_that_redis_has_forgotten_is_sent_again(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha", "beta")
    world.states.jobs.clear()

    sweep.run()
    assert world.searches.sent == [], "it may be about to be written"
    world.time.advance(SETTLED_S + 0.1)
    sweep.run()

    assert world.searches.sent == [("all", JOB, ["alpha", "beta"])]
    assert world.store.rows[JOB].attempts == 2


def test_redis_may_forget_a_job_as_often_as_it_likes(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha")
    for _ in range(10):
        world.states.jobs.clear()
        world.time.advance(SETTLED_S + 0.1)
        sweep.run()

    assert len(world.searches.sent) == 10
    assert world.store.status(JOB) == "open"


def test_what_a_lost_worker_had_begun_is_sent_again(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha", "beta", "gamma")
    world.states.begin(JOB, "another worker", "gamma")
    world.states.record(JOB, found("alpha"))
    del world.states.alive["worker"]

    swept(world, sweep, 1 + int(SUSPECT_S + 1))

    assert world.searches.sent == [("all", JOB, ["beta"])]
    assert world.store.rows[JOB].attempts == 2


def test_a_worker_that_lives_and_works_on_something_else_has_lost_the_job(
    world: World, sweep: Sweep
) -> None:
    """Redis lost the outcome that it had recorded."""
    world.begun(JOB, "alpha", "beta")
    world.states.alive["worker"] = SignOfLife(0.1, frozenset({"another-job"}))

    swept(world, sweep, 1 + int(SUSPECT_S + 1))

    assert world.searches.sent == [("all", JOB, ["alpha", "beta"])]


def test_a_worker_that_had_no_time_to_say_so_is_not_lost(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha")
    sign = world.states.alive.pop("worker")
    swept(world, sweep, 1)
    world.states.alive["worker"] = sign

    swept(world, sweep, 5)

    assert world.searches.sent == []


def test_a_job_that_loses_its_workers_each_time_is_given_up(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha", "poison", timeout_s=600)
    world.states.record(JOB, found("alpha", hit("a", "alpha")))
    for attempt in range(1, 4):
        world.states.begin(JOB, f"worker {attempt}", "poison")
        del world.states.alive[f"worker {attempt}"]
        swept(world, sweep, 4)

    assert world.searches.sent == [("all", JOB, ["poison"])] * 2
    assert (world.store.status(JOB), ids(world.answer(JOB).hits)) == ("partial", ["a"])
    assert statuses(world.answer(JOB))["poison"] == ("failed", "attempts_exhausted")


def test_a_job_of_nothing_but_poison_has_failed(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "poison", timeout_s=600)
    for attempt in range(1, 4):
        world.states.begin(JOB, f"worker {attempt}", "poison")
        world.states.alive.clear()
        swept(world, sweep, 4)

    assert (world.store.status(JOB), world.store.rows[JOB].error) == (
        "failed",
        "attempts_exhausted",
    )


def test_tasks_that_nobody_began_though_none_waits_are_sent_again(
    world: World, sweep: Sweep
) -> None:
    world.store.add(JOB, "alpha", "beta")
    world.jobs.start_next()
    world.states.begin(JOB, "worker", "alpha")
    world.searches.sent.clear()
    world.states.tasks = 1
    world.time.advance(UNBEGUN_S + 1)

    sweep.run()
    assert world.searches.sent == [], "they may be among those that wait"
    world.states.tasks = 0
    sweep.run()

    assert world.searches.sent == [("all", JOB, ["beta"])]
    assert world.store.rows[JOB].attempts == 1, "no worker was lost"


def test_two_sweeps_at_once_send_a_lost_job_once(world: World) -> None:
    sweeps = [
        Sweep(world.jobs, world.store, world.states, attempts=3, clock=world.time) for _ in range(2)
    ]
    world.begun(JOB, "alpha")
    world.states.jobs.clear()
    world.time.advance(SETTLED_S + 0.1)
    before = world.store.at_work()[0]

    for sweep in sweeps:
        sweep.run()

    assert len(world.searches.sent) == 1
    assert world.store.claim_again(before, is_counted=True) is None


def test_an_overdue_job_ends_without_redis_if_it_has_to(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha", timeout_s=5)
    world.states.is_down = True
    world.time.advance(5 + BLIND_S / 2)
    with pytest.raises(QueueUnavailable):
        sweep.run()
    assert world.store.status(JOB) == "open", "Redis may come back"

    world.time.advance(BLIND_S)
    with pytest.raises(QueueUnavailable):
        sweep.run()

    assert world.store.status(JOB) == "failed"


def test_a_redis_that_is_full_still_tells_what_was_found(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha", "beta", timeout_s=5)
    world.states.record(JOB, found("alpha", hit("a", "alpha")))
    world.states.is_full = True
    world.time.advance(5.1 + BLIND_S)

    with pytest.raises(QueueUnavailable):
        sweep.run()

    assert (world.store.status(JOB), ids(world.answer(JOB).hits)) == ("partial", ["a"])


def test_nobody_is_lost_while_redis_is_away(world: World, sweep: Sweep) -> None:
    world.begun(JOB, "alpha")
    sign = world.states.alive.pop("worker")
    swept(world, sweep, 1)
    world.states.is_down = True
    for _ in range(5):
        with pytest.raises(QueueUnavailable):
            sweep.run()
        world.time.advance(1.0)
    world.states.is_down = False

    sweep.run()
    world.states.alive["worker"] = sign
    swept(world, sweep, 3)

    assert world.searches.sent == []


def test_a_database_that_is_away_ends_a_sweep(world: World, sweep: Sweep) -> None:
    world.store.is_down = True

    with pytest.raises(StoreUnavailable):
        sweep.run()


def test_a_job_that_cannot_be_read_ends_no_care_for_the_others(world: World, sweep: Sweep) -> None:
    for job_id in ("broken", "sound"):
        world.begun(job_id, "alpha", timeout_s=5)
        world.states.record(job_id, found("alpha"))
    world.states.jobs["broken"].outcomes["alpha"] = None  # type: ignore[assignment]
    world.states.jobs["broken"].job = None  # type: ignore[assignment]
    world.time.advance(6)

    sweep.run()

    assert world.store.status("sound") == "completed"


def test_late_outcomes_change_nothing(world: World) -> None:
    world.begun(JOB, "alpha", "beta")
    world.states.record(JOB, found("alpha"))
    answer = world.jobs.end(JOB, "stop", Silence.STOPPED)
    world.states.record(JOB, Outcome("beta", Status.SUCCESSFUL))

    assert world.jobs.end(JOB, "callback") == answer
