"""Jobs over many projects, many jobs at once, and that none of them is in another's way."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import requests
from psycopg import sql

from tests.integration.callers import Caller, Document, found, states
from tests.integration.obstacles import slow_projects
from tests.integration.service import Service, running, until
from tests.integration.snapshot import TABLES

QUESTION = "which service refuses large request bodies?"
NEVER_S = 25.0  # longer than anything here waits
MANY = [f"project-{n:03}" for n in range(200)]
FEW = MANY[:10]
CAUSES = ["its gateway", "a proxy", "its body buffer", "the load balancer", "its web framework"]
DISHES = ["soup", "bread", "rice", "salad", "cake"]


def nodes_of(number: int) -> list[dict[str, Any]]:
    """A turn and the note made from it: in the first half about what is asked, else far from it."""
    name, size = MANY[number], 10 + number
    about = (
        f"Service {number} refuses request bodies over {size} KB in {CAUSES[number % 5]}."
        if number < 100
        else f"Recipe {number}: {DISHES[number % 5]} for {number - 90} guests, with {size} herbs."
    )
    turn = {"id": "turn", "level": "L0", "kind": "turn", "source": "pi:s", "position": 1}
    note = {"level": "L1", "kind": "note", "source": "s", "parents": ["turn"]}
    return [
        turn | {"id": f"turn-{number}", "project": name, "text": f"Somebody said: {about}"},
        note | {"parents": [f"turn-{number}"], "project": name, "text": about},
    ]


@pytest.fixture(scope="module")
def memory(session_service: Service) -> Service:
    """Two hundred projects, set up once: nothing here changes them."""
    session_service.empty()
    ended = session_service.ingest([node for n in range(len(MANY)) for node in nodes_of(n)])
    assert ended["status"] == "completed", ended
    return session_service


@pytest.fixture(scope="module")
def caller(memory: Service) -> Caller:
    return Caller.new(memory)


@pytest.fixture(scope="module")
def stranger(memory: Service) -> Caller:
    """Somebody else."""
    return Caller.new(memory)


# Hits as they come


def test_hits_are_only_ever_pushed_down_while_projects_answer_one_by_one(caller: Caller) -> None:
    delays = {project: 0.15 * n for n, project in enumerate(FEW)} | {FEW[-1]: NEVER_S}
    seen: list[Document] = []
    with slow_projects(caller.service, delays):
        job = caller.begin(QUESTION, projects=FEW, limit=6)
        while not seen or seen[-1]["progress"]["done"] < len(FEW) - 1:
            since = seen[-1]["revision"] if seen else 0
            seen.append(caller.show(job["id"], wait_seconds=10, since=since))
        seen.append(caller.stop(job["id"]))

    assert len(seen) > 4, "it was seen while it grew"
    for before, after in pairwise(seen):
        assert before["revision"] < after["revision"]
        assert before["progress"]["done"] <= after["progress"]["done"]
        assert before["expires_at"] is None
        shown, then = found(before), found(after)
        assert len(then) == len(set(then)) >= len(shown), "none is shown twice, none is lost"
        kept = [hit for hit in shown if hit in then]
        assert kept == [hit for hit in then if hit in shown] == shown[: len(kept)]
        assert len(kept) == len(shown) or len(then) == 6, "only what was pushed out is gone"
    assert seen[-1]["status"] == "partial"


def test_with_one_of_many_projects_blocked_all_others_are_shown(caller: Caller) -> None:
    with slow_projects(caller.service, {FEW[3]: NEVER_S}):
        job_id = caller.begin(QUESTION, projects=FEW, limit=50)["id"]

        def look() -> Document | None:
            said = caller.show(job_id)
            return said if said["progress"]["done"] == len(FEW) - 1 else None

        said = until(look)
        caller.cancel(job_id)

    assert {hit["project"] for hit in said["results"]} == {*FEW} - {FEW[3]}
    assert states(said)[FEW[3]] == ("running", None)
    assert said["federation"]["coverage"] == 0.9


# Two hundred projects


@contextmanager
def union_of_all(service: Service) -> Iterator[None]:
    """While a project named union holds what all others hold."""
    with service.connect() as connection:
        connection.execute("INSERT INTO project (project) VALUES ('union')")
        for table in TABLES[1:]:
            columns = [
                name
                for (name,) in connection.execute(
                    "SELECT column_name::text FROM information_schema.columns"
                    " WHERE table_schema = 'public' AND table_name = %s"
                    " AND column_name <> 'project' AND is_generated = 'NEVER'",
                    [table],
                )
            ]
            statement = sql.SQL(
                "INSERT INTO public.{0} (project, {1}) SELECT 'union', {1} FROM public.{0}"
            )
            listed = sql.SQL(", ").join(map(sql.Identifier, columns))
            connection.execute(statement.format(sql.Identifier(table), listed))
    try:
        yield
    finally:
        with service.connect() as connection:
            connection.execute("DELETE FROM project WHERE project = 'union'")


def test_two_hundred_projects_are_one_job_whose_answer_is_that_of_their_union(
    caller: Caller,
) -> None:
    # By meaning: how rare a word is goes by the project, and so differs in their union.
    by_meaning = {"limit": 10, "method": "semantic"}
    merged = caller.completed(QUESTION, projects=MANY, timeout_seconds=60, **by_meaning)
    with union_of_all(caller.service):
        exact = caller.completed(QUESTION, project="union", **by_meaning)

    assert merged["federation"]["total"] == merged["federation"]["successful"] == 200
    assert merged["federation"]["document_coverage"] == 1.0
    assert len({one["task_id"] for one in merged["federation"]["projects"]}) == 16
    assert len(merged["results"]) == 10
    assert [(hit["id"], hit["score"]) for hit in merged["results"]] == [
        (hit["id"], hit["score"]) for hit in exact["results"]
    ]


def test_two_hundred_projects_are_read_while_one_of_them_does_not_answer(caller: Caller) -> None:
    with slow_projects(caller.service, {MANY[150]: NEVER_S}):
        job_id = caller.begin(QUESTION, projects=MANY, limit=10, timeout_seconds=8)["id"]
        looks: list[Document] = []
        while len(looks) == 0 or looks[-1]["progress"]["done"] < 180:
            since = looks[-1]["revision"] if looks else 0
            looks.append(caller.show(job_id, wait_seconds=8, since=since))
            assert looks[-1]["is_running"]
        said = caller.stop(job_id)

    first = next(look for look in looks if look["results"])
    assert first["progress"]["done"] < 200
    assert said["status"] == "partial"
    assert said["federation"]["successful"] >= 180
    assert states(said)[MANY[150]] == ("cancelled", "stopped_by_user")


# Many jobs


def test_a_question_asked_a_hundred_times_is_answered_the_same_byte_by_byte(caller: Caller) -> None:
    def ask(_: int) -> str:
        said = caller.completed(QUESTION, projects=FEW, limit=10)
        return json.dumps([said["results"], said["projects_searched"], said["notes"]])

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(100)))) == 1


def test_a_job_has_one_end_whoever_ends_it_at_whatever_moment(caller: Caller) -> None:
    chance = random.Random(4)
    moments = [chance.uniform(0, 0.12) for _ in range(100)]

    def end_several_ways(moment: float) -> str:
        job_id = caller.begin(QUESTION, projects=FEW[:4], timeout_seconds=10)["id"]
        with ThreadPoolExecutor(3) as ends:
            waited = ends.submit(caller.show, job_id, wait_seconds=10)
            threading.Event().wait(moment)
            at_once = [ends.submit(end, job_id) for end in (caller.cancel, caller.stop)]
            said = [one.result() for one in (*at_once, waited)]
        said += [caller.show(job_id), caller.cancel(job_id)]
        # The answer to a cancel may be the job as it was ended meanwhile, never another end.
        assert not any(one["is_running"] for one in said)
        assert all(one == said[0] for one in said)
        return str(said[0]["status"])

    # Long enough that some are cancelled while they run, however fast the machine is.
    with slow_projects(caller.service, {FEW[0]: 0.1}), ThreadPoolExecutor(8) as pool:
        ends = Counter(pool.map(end_several_ways, moments))

    assert ends.total() == 100
    assert ends["cancelled"], ends


# Fairness


def took(ask: Callable[[], object]) -> float:
    start = time.monotonic()
    ask()
    return time.monotonic() - start


def ask_one(caller: Caller, project: str) -> None:
    asked = {"query": QUESTION, "project": project, "timeout_seconds": 5}
    response = caller.send("GET", "/memory/query", params=asked)
    assert response.status_code == 200, response.text
    assert response.json()["results"]


def test_a_slow_question_over_many_does_not_keep_one_over_a_single_project_waiting(
    caller: Caller, stranger: Caller
) -> None:
    slow = {"query": QUESTION, "projects": ",".join(MANY[:32]), "timeout_seconds": 3}
    delays = dict.fromkeys(MANY[:32], NEVER_S)
    with slow_projects(caller.service, delays), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(stranger.send, "GET", "/memory/query", params=slow)
        threading.Event().wait(0.3)
        longest = max(took(lambda: ask_one(caller, MANY[50])) for _ in range(5))
        assert not asked.done()

    assert longest < 1


def test_slow_jobs_take_no_place_of_a_question(caller: Caller, stranger: Caller) -> None:
    with slow_projects(caller.service, dict.fromkeys(MANY[:32], NEVER_S)):
        for _ in range(6):
            stranger.begin(QUESTION, projects=MANY[:32])
        threading.Event().wait(0.5)
        longest = max(took(lambda: ask_one(caller, MANY[50])) for _ in range(5))
        stranger.cancel_all()

    assert longest < 1


def test_a_job_over_two_hundred_projects_keeps_nobody_waiting(
    caller: Caller, stranger: Caller
) -> None:
    with slow_projects(caller.service, dict.fromkeys(MANY, 0.3)):
        heavy = stranger.begin(QUESTION, projects=MANY)["id"]
        until(lambda: stranger.show(heavy)["progress"]["done"])
        longest = max(
            took(lambda: ask_one(caller, MANY[50])),
            took(lambda: caller.completed(QUESTION, project=MANY[60])),
        )
        assert stranger.show(heavy)["is_running"]
        stranger.cancel(heavy)

    assert longest < 2


# Admission


@pytest.fixture(scope="module")
def tight() -> Iterator[Service]:
    """A service that works on one job at a time, and takes few of them."""
    limits = {"JOBS_AT_ONCE": "1", "JOBS_OPEN_OF_KEY": "3", "JOBS_OPEN": "5"}
    with running(**{f"POIMEN_{name}": value for name, value in limits.items()}) as service:
        ended = service.ingest([node for number in (0, 1) for node in nodes_of(number)])
        assert ended["status"] == "completed", ended
        yield service


@pytest.fixture
def callers(tight: Service) -> Iterator[list[Caller]]:
    """Three callers without jobs."""
    found = [Caller.new(tight) for _ in range(3)]
    yield found
    for one in found:
        one.cancel_all()


def refusal(response: requests.Response, status: int, code: str) -> int:
    """After how many seconds to come back."""
    assert (response.status_code, response.json()["error"]) == (status, code), response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    return int(response.headers["Retry-After"])


def test_one_key_has_so_many_unfinished_jobs_and_no_more(
    tight: Service, callers: list[Caller]
) -> None:
    one, other, _ = callers
    with slow_projects(tight, {FEW[0]: NEVER_S}):
        jobs = [one.submit(QUESTION, f"job-{n}").json()["id"] for n in range(3)]
        assert refusal(one.submit(QUESTION), 429, "too_many_jobs") >= 1
        assert one.submit(QUESTION, "job-1").json()["id"] == jobs[1], "that one is no new job"
        assert other.submit(QUESTION).status_code == 202
        one.cancel(jobs[1])
        assert one.submit(QUESTION).status_code == 202
        one.cancel_all()
        other.cancel_all()


def test_all_keys_have_so_many_unfinished_jobs_and_no_more(
    tight: Service, callers: list[Caller]
) -> None:
    one, other, third = callers
    with slow_projects(tight, {FEW[0]: NEVER_S}):
        for submitter in (one, one, one, other, other):
            submitter.begin(QUESTION)
        assert refusal(third.submit(QUESTION), 503, "overloaded") >= 1
        assert third.listed() == []
        one.cancel_all()
        assert third.submit(QUESTION).status_code == 202
        for submitter in callers:
            submitter.cancel_all()


def test_what_would_have_its_turn_too_late_is_refused_at_once(
    tight: Service, callers: list[Caller]
) -> None:
    one, other, _ = callers
    one.completed(QUESTION)
    with tight.connect() as connection:
        connection.execute(
            "UPDATE query_job SET dispatched_at = finished_at - interval '100 seconds'"
            " WHERE status <> 'open'"
        )
    with slow_projects(tight, {FEW[0]: NEVER_S}):
        for _ in range(2):
            one.begin(QUESTION)
        assert 30 <= refusal(other.submit(QUESTION, timeout_seconds=60), 503, "overloaded") <= 60
        assert other.submit(QUESTION, timeout_seconds=600).status_code == 202
        one.cancel_all()
        other.cancel_all()
    with tight.connect() as connection:
        connection.execute("DELETE FROM query_job")


def test_many_jobs_of_one_key_do_not_keep_another_key_s_waiting(
    tight: Service, callers: list[Caller]
) -> None:
    one, other, _ = callers
    with slow_projects(tight, {FEW[0]: 0.5}):
        jobs = [one.begin(QUESTION)["id"] for _ in range(3)]
        theirs = other.begin(QUESTION)["id"]
        waiting = one.show(jobs[-1])
        assert (waiting["status"], waiting["attempts"]) == ("queued", 0)
        assert waiting["progress"] == {"done": 0, "total": 2}
        their_end = other.ended(theirs)
        ends = [one.ended(job_id) for job_id in jobs]

    assert {said["status"] for said in (their_end, *ends)} == {"completed"}
    assert their_end["finished_at"] < ends[-1]["finished_at"], "it was submitted later"


def test_a_job_whose_turn_does_not_come_in_time_says_so(
    tight: Service, callers: list[Caller]
) -> None:
    one, other, _ = callers
    with slow_projects(tight, {FEW[0]: NEVER_S}):
        one.begin(QUESTION)
        said = other.ended(other.begin(QUESTION, timeout_seconds=1)["id"])
        one.cancel_all()

    assert (said["status"], said["error"]["error"]) == ("failed", "queue_deadline")
    assert set(states(said).values()) == {("timed_out", "queue_deadline")}
    assert said["attempts"] == 0
