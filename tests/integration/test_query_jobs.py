"""Submitted questions as a caller sees them: accepted, followed, stopped, cancelled, removed."""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
import requests

from config.settings import Settings
from tests.integration.callers import JOBS, Caller, checked, events_of, found, states
from tests.integration.obstacles import broken_projects, slow_projects
from tests.integration.service import Service, until
from tests.integration.snapshot import Snapshot

QUESTION = "why did requests over 10KB fail?"
NEVER_S = 25.0  # longer than anything here waits
BOTH = {"poimen", "agent-rust"}
UNKNOWN = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def memory(session_service: Service, fixture_memory: Snapshot) -> Service:
    """The fixture's memory, set up once: nothing here changes it."""
    session_service.empty()
    fixture_memory.restore()
    return session_service


@pytest.fixture(scope="module")
def caller(memory: Service) -> Caller:
    return Caller.new(memory)


@pytest.fixture(scope="module")
def stranger(memory: Service) -> Caller:
    """Somebody else."""
    return Caller.new(memory)


@pytest.fixture
def newcomer(memory: Service) -> Caller:
    """Somebody who has no job yet."""
    return Caller.new(memory)


@pytest.fixture
def blocked(caller: Caller) -> Iterator[Caller]:
    """While agent-rust does not answer."""
    with slow_projects(caller.service, {"agent-rust": NEVER_S}):
        yield caller
        caller.cancel_all()


@pytest.fixture
def halted(caller: Caller) -> Iterator[Caller]:
    """While no project answers."""
    with slow_projects(caller.service, dict.fromkeys(BOTH, NEVER_S)):
        yield caller
        caller.cancel_all()


def problem(response: requests.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text[:300]
    assert response.headers["Content-Type"] == "application/problem+json"
    said: dict[str, Any] = response.json()
    assert (said["status"], said["error"]) == (status, code)
    return said


def blamed(response: requests.Response) -> list[str]:
    said = problem(response, 400, "invalid_parameters")
    return [error["parameter"] for error in said["errors"]]


def with_one_project(caller: Caller, job_id: str) -> dict[str, Any]:
    """A running job's document once poimen has answered."""

    def look() -> dict[str, Any] | None:
        said = caller.show(job_id)
        return said if said["progress"]["done"] == 1 else None

    return until(look)


# Accepted


def test_a_question_is_accepted_with_the_place_of_its_answer(halted: Caller) -> None:
    response = halted.submit(QUESTION)

    said = response.json()
    assert response.status_code == 202
    assert re.fullmatch("[0-9a-f]{32}", said["id"])
    assert response.headers["Location"] == f"{JOBS}/{said['id']}"
    assert (said["is_running"], said["results"], said["attempts"] <= 1) == (True, [], True)
    submitted, deadline = (
        datetime.fromisoformat(said[name]) for name in ("submitted_at", "deadline_at")
    )
    assert (deadline - submitted).total_seconds() == 60
    assert halted.send("GET", response.headers["Location"]).json()["id"] == said["id"]


def test_waiting_long_enough_brings_the_answer_at_once(caller: Caller) -> None:
    response = caller.submit(QUESTION, wait_seconds=20)

    said = checked(response)
    assert (response.status_code, said["status"]) == (200, "completed")
    assert response.headers["Location"] == f"{JOBS}/{said['id']}"
    assert said["federation"]["finalized_by"] == "callback"
    assert (said["attempts"], said["progress"]) == (1, {"done": 2, "total": 2})
    assert said["expires_at"] > said["deadline_at"]


def test_a_job_finds_what_a_question_finds(caller: Caller) -> None:
    for asked in ({}, {"project": "poimen"}, {"projects": ["poimen"]}, {"level": ["L0"]}):
        job = caller.completed(QUESTION, limit=10, explain=True, **asked)
        several = {name: ",".join(v) if isinstance(v, list) else v for name, v in asked.items()}
        answer = caller.send(
            "GET",
            "/memory/query",
            params={"query": QUESTION, "limit": 10, "explain": "true", **several},
        ).json()

        assert job["results"] == answer["results"]
        assert job["explain"] == answer["explain"]
        for name in ("query", "project", "project_filter", "level_filter", "projects_searched"):
            assert job[name] == answer[name]
        assert answer.keys() <= job.keys()


def test_a_job_of_one_project_is_ended_by_its_task(caller: Caller) -> None:
    said = caller.completed(QUESTION, project="poimen")

    assert said["federation"]["finalized_by"] == "task"
    assert {hit["project"] for hit in said["results"]} == {"poimen"}


def test_whoever_has_no_project_yet_is_told_how_to_get_one(memory: Service) -> None:
    early = Caller.new(memory, projects=["not-there-yet"])

    said = early.completed(QUESTION)

    assert (said["results"], said["projects_searched"]) == ([], [])
    assert said["notes"].startswith("0 results; this memory has no project yet: mem ingest")
    assert said["progress"] == {"done": 0, "total": 0}


def test_a_wait_that_is_too_short_brings_what_there_is(blocked: Caller) -> None:
    response = blocked.submit(QUESTION, wait_seconds=1)

    said = checked(response)
    assert (response.status_code, said["status"]) == (202, "running")
    assert said["projects_searched"] == ["poimen"]
    assert said["results"]


def test_numbers_beyond_what_is_possible_are_cut_and_the_notes_say_so(caller: Caller) -> None:
    said = caller.completed(QUESTION, limit=99, timeout_seconds=7000, keep_alive_seconds=1)

    for note in (
        "limit 99 was cut to 50",
        "timeout_seconds 7000 was cut to 600",
        "keep_alive_seconds 1 was cut to 60",
    ):
        assert note in said["notes"]
    finished, expires = (
        datetime.fromisoformat(said[name]) for name in ("finished_at", "expires_at")
    )
    assert (expires - finished).total_seconds() == 60


def test_what_nobody_answers_in_time_has_failed_at_its_deadline(halted: Caller) -> None:
    said = halted.ended(halted.begin(QUESTION, timeout_seconds=1)["id"])

    assert (said["status"], said["error"]["error"]) == ("failed", "deadline_exceeded")
    assert said["error"]["status"] == 504
    assert said["federation"]["timed_out"] == 2
    assert said["latency_ms"] < 6000


def test_what_one_project_answers_in_time_is_a_partial_answer(blocked: Caller) -> None:
    said = blocked.ended(blocked.begin(QUESTION, timeout_seconds=1)["id"])

    assert said["status"] == "partial"
    assert states(said)["poimen"] == ("successful", None)
    assert states(said)["agent-rust"][0] == "timed_out"
    assert said["warnings"] == ["project 'agent-rust' timed out"]
    assert said["results"]
    assert 0 < said["federation"]["document_coverage"] < 1


# Asked twice


def test_the_same_key_brings_the_same_job(blocked: Caller) -> None:
    first = blocked.submit(QUESTION, "a-key-of-a-caller")
    while_it_runs = blocked.submit(QUESTION, "a-key-of-a-caller")
    blocked.stop(first.json()["id"])
    afterwards = blocked.submit(QUESTION, "a-key-of-a-caller")

    assert "Idempotency-Replayed" not in first.headers
    for response, status in ((while_it_runs, 202), (afterwards, 200)):
        assert response.status_code == status
        assert response.headers["Idempotency-Replayed"] == "true"
        assert response.headers["Location"] == first.headers["Location"]
        assert response.json()["id"] == first.json()["id"]


def test_fifty_at_once_with_the_same_key_are_one_job(newcomer: Caller) -> None:
    with ThreadPoolExecutor(50) as pool:
        responses = list(pool.map(lambda _: newcomer.submit(QUESTION, "just-once"), range(50)))

    assert {response.status_code for response in responses} <= {200, 202}
    assert len({response.json()["id"] for response in responses}) == 1
    assert sum("Idempotency-Replayed" not in response.headers for response in responses) == 1
    assert len(newcomer.listed()) == 1


def test_the_same_key_for_something_else_is_refused(caller: Caller) -> None:
    job = caller.completed(QUESTION, idempotency_key="taken")

    for body in ({"query": "another question"}, {"query": QUESTION, "limit": 6}):
        said = problem(caller.submit(idempotency_key="taken", **body), 422, "idempotency_conflict")
        assert "Idempotency-Key" in said["detail"]
    assert caller.submit(QUESTION, "taken", wait_seconds=20).json()["id"] == job["id"]


def test_keys_of_two_callers_have_nothing_to_do_with_each_other(
    caller: Caller, stranger: Caller
) -> None:
    mine, theirs = (one.submit(QUESTION, "the-same").json()["id"] for one in (caller, stranger))

    assert mine != theirs


def test_without_a_key_every_submission_is_a_job(newcomer: Caller) -> None:
    newcomer.begin(QUESTION)
    newcomer.begin(QUESTION)

    assert len(newcomer.listed()) == 2


def test_a_key_that_is_being_accepted_is_a_conflict_for_the_moment(caller: Caller) -> None:
    known = caller.completed(QUESTION)["id"]
    with caller.service.connect() as connection, connection.transaction(force_rollback=True):
        connection.execute(
            "INSERT INTO query_job (id, key_id, idempotency_key, fingerprint, status,"
            " project_count, keep_alive_s, deadline_at)"
            " SELECT gen_random_uuid(), key_id, 'under-way', '', 'open', 0, 60, now()"
            "   FROM query_job WHERE id = %s::uuid",
            [known],
        )
        start = time.monotonic()
        response = caller.submit(QUESTION, "under-way")
        took = time.monotonic() - start

    problem(response, 409, "idempotency_in_progress")
    assert response.headers["Retry-After"] == "1"
    assert took < 3
    assert caller.submit(QUESTION, "under-way").status_code in (200, 202)


@pytest.mark.parametrize("key", ["", "two words", "\xe9t\xe9", "x" * 256, "tab\there"])
def test_a_key_that_cannot_be_one_is_refused_by_name(caller: Caller, key: str) -> None:
    assert blamed(caller.submit(QUESTION, key)) == ["Idempotency-Key"]


def test_a_key_may_have_255_characters(caller: Caller) -> None:
    assert caller.submit(QUESTION, "x" * 255).ok


# Followed


def test_a_poll_shows_the_hits_of_those_that_have_answered(blocked: Caller) -> None:
    said = with_one_project(blocked, blocked.begin(QUESTION)["id"])

    alone = blocked.completed(QUESTION, project="poimen")
    assert found(said) == found(alone)
    assert (said["status"], said["is_partial"], said["degraded"]) == ("running", True, False)
    assert states(said) == {"agent-rust": ("running", None), "poimen": ("successful", None)}
    assert said["warnings"] == []
    assert said["notes"].startswith("Searched 1 of 2 projects")


def test_a_long_poll_returns_with_the_end(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(blocked.look, job_id, wait_seconds=20)
        with_one_project(blocked, job_id)
        assert not polled.done(), "an answer of one project is not the end"
        blocked.stop(job_id)
        stopped_at = time.monotonic()
        said = checked(polled.result())

    assert time.monotonic() - stopped_at < 2
    assert said["status"] == "partial"


def test_a_long_poll_since_a_revision_returns_with_news(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    seen = [blocked.show(job_id)]
    while seen[-1]["progress"]["done"] < 1:
        seen.append(blocked.show(job_id, wait_seconds=10, since=seen[-1]["revision"]))
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(blocked.look, job_id, wait_seconds=20, since=seen[-1]["revision"])
        threading.Event().wait(0.3)
        assert not polled.done(), "nothing had happened"
        blocked.stop(job_id)
        seen.append(checked(polled.result()))

    revisions = [said["revision"] for said in seen]
    assert revisions == sorted(set(revisions))
    assert not seen[-1]["is_running"]


def test_a_long_poll_without_news_ends_with_its_wait(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    revision = with_one_project(blocked, job_id)["revision"]

    for since in (revision, revision + 1000, 10**30):
        start = time.monotonic()
        said = blocked.show(job_id, wait_seconds=1, since=since)
        assert 0.9 < time.monotonic() - start < 3
        assert said["revision"] == revision


def test_old_news_is_told_at_once(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    with_one_project(blocked, job_id)

    start = time.monotonic()
    blocked.show(job_id, wait_seconds=20, since=0)
    assert time.monotonic() - start < 2


def test_nobody_waits_for_a_job_that_has_ended(caller: Caller) -> None:
    said = caller.completed(QUESTION)

    start = time.monotonic()
    caller.show(said["id"], wait_seconds=20)
    caller.show(said["id"], wait_seconds=20, since=said["revision"])
    assert time.monotonic() - start < 2


def test_what_has_not_changed_is_not_sent_again(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    with_one_project(blocked, job_id)

    def again(tag: str, **parameters: Any) -> requests.Response:
        path = f"{JOBS}/{job_id}"
        return blocked.send("GET", path, headers={"If-None-Match": tag}, params=parameters)

    tags = [blocked.look(job_id).headers["ETag"]]
    blocked.stop(job_id)
    assert again(tags[0]).status_code == 200, "it has ended since"
    tags.append(blocked.look(job_id).headers["ETag"])
    assert tags[0] != tags[1]
    for tag in (tags[1], f"W/{tags[1]}", f'"another", {tags[1]}', "*"):
        response = again(tag)
        assert (response.status_code, response.content) == (304, b"")
        assert response.headers["ETag"] == tags[1]
        assert response.headers["Cache-Control"] == "private, no-cache"
    assert again(tags[0]).status_code == 200
    assert again(tags[1], wait_seconds=1).status_code == 200


def test_a_running_job_that_has_not_changed_is_not_sent_again(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    with_one_project(blocked, job_id)
    tag = blocked.look(job_id).headers["ETag"]

    response = blocked.send("GET", f"{JOBS}/{job_id}", headers={"If-None-Match": tag})

    assert (response.status_code, response.headers["ETag"]) == (304, tag)


def test_a_second_read_is_the_same_byte_by_byte(caller: Caller) -> None:
    job_id = caller.completed(QUESTION, explain=True)["id"]

    reads = [caller.look(job_id) for _ in range(3)]
    reads.append(caller.send("POST", f"{JOBS}/{job_id}/stop"))
    reads.append(caller.send("DELETE", f"{JOBS}/{job_id}?if_running=true"))

    assert len({(read.content, read.headers["ETag"]) for read in reads}) == 1


# Stopped, cancelled, removed


def test_a_job_that_is_stopped_keeps_what_was_found(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    before = with_one_project(blocked, job_id)

    said = blocked.stop(job_id)

    assert (said["status"], said["federation"]["finalized_by"]) == ("partial", "stop")
    assert said["results"] == before["results"]
    assert states(said)["agent-rust"] == ("cancelled", "stopped_by_user")
    assert [detail["code"] for detail in said["warning_details"]] == ["stopped_by_user"]
    assert said["degraded"] is True
    assert blocked.show(job_id) == said == blocked.stop(job_id)
    until(lambda: not sleeping(blocked.service), within_s=5)


def sleeping(service: Service) -> int:
    """Searches that the database is still at."""
    with service.connect() as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        ).fetchone()
    return int(row[0]) if row else 0


def test_a_job_that_is_stopped_before_anything_was_found_has_failed(halted: Caller) -> None:
    for projects in (["poimen"], sorted(BOTH)):
        said = halted.stop(halted.begin(QUESTION, projects=projects)["id"])

        assert (said["status"], said["error"]["error"]) == ("failed", "stopped_by_user")
        assert set(states(said).values()) == {("cancelled", "stopped_by_user")}


def test_a_job_that_has_ended_cannot_be_stopped_any_more(caller: Caller) -> None:
    said = caller.completed(QUESTION)

    assert caller.stop(said["id"]) == said


def test_a_job_that_is_cancelled_keeps_nothing(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    with_one_project(blocked, job_id)

    said = checked(blocked.send("DELETE", f"{JOBS}/{job_id}"))

    assert (said["status"], said["results"]) == ("cancelled", [])
    assert set(states(said).values()) == {("cancelled", "cancelled_by_user")}
    assert said["federation"]["finalized_by"] == "cancel"
    assert blocked.show(job_id) == said == blocked.stop(job_id)
    until(lambda: not sleeping(blocked.service), within_s=5)


def test_a_result_that_is_removed_is_gone(newcomer: Caller) -> None:
    job_id = newcomer.completed(QUESTION, idempotency_key="gone")["id"]

    response = newcomer.send("DELETE", f"{JOBS}/{job_id}")

    assert (response.status_code, response.content) == (204, b"")
    for method, path in ROUTES:
        said = problem(newcomer.send(method, path.format(job_id)), 410, "job_expired")
        assert QUESTION not in str(said)
    problem(newcomer.submit(QUESTION, "gone", wait_seconds=20), 410, "job_expired")
    assert newcomer.listed() == []


def test_a_cancelled_job_can_be_removed_as_well(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    blocked.cancel(job_id)

    assert blocked.send("DELETE", f"{JOBS}/{job_id}").status_code == 204
    assert blocked.look(job_id).status_code == 410


def test_who_cancels_what_has_ended_meanwhile_keeps_it(caller: Caller) -> None:
    said = caller.completed(QUESTION)

    for flag in ("true", "1", "TRUE"):
        response = caller.send("DELETE", f"{JOBS}/{said['id']}", params={"if_running": flag})
        assert checked(response) == said
    assert caller.show(said["id"]) == said


def test_a_result_is_gone_once_its_time_is_over(newcomer: Caller) -> None:
    kept, lapsed = (newcomer.completed(QUESTION, keep_alive_seconds=60)["id"] for _ in range(2))
    with newcomer.service.connect() as connection:
        connection.execute(
            "UPDATE query_job SET expires_at = now() - interval '1 second' WHERE id = %s::uuid",
            [lapsed],
        )

    for method, path in ROUTES:
        problem(newcomer.send(method, path.format(lapsed)), 410, "job_expired")
    assert [job["id"] for job in newcomer.listed()] == [kept]


ROUTES = [
    ("GET", f"{JOBS}/{{}}"),
    ("GET", f"{JOBS}/{{}}?wait_seconds=1"),
    ("GET", f"{JOBS}/{{}}/events"),
    ("POST", f"{JOBS}/{{}}/stop"),
    ("DELETE", f"{JOBS}/{{}}"),
    ("DELETE", f"{JOBS}/{{}}?if_running=true"),
]
NO_IDS = [UNKNOWN, "7", "nope", "x" * 500, "%00", "%F0%9F%92%A9", UNKNOWN.upper(), f"{UNKNOWN}0"]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_what_is_not_there_is_a_404(caller: Caller, method: str, path: str) -> None:
    for job_id in NO_IDS:
        problem(caller.send(method, path.format(job_id)), 404, "job_not_found")


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_what_is_someone_else_s_is_a_404_and_untouched(
    blocked: Caller, stranger: Caller, method: str, path: str
) -> None:
    running = blocked.begin(QUESTION)["id"]
    ended = blocked.stop(blocked.begin(QUESTION, project="poimen", wait_seconds=20)["id"])

    for job_id in (running, ended["id"]):
        theirs = stranger.send(method, path.format(job_id))
        nobody_s = stranger.send(method, path.format(UNKNOWN))
        said, known = problem(theirs, 404, "job_not_found"), nobody_s.json()
        assert {**said, "request_id": None} == {**known, "request_id": None}
    assert blocked.show(running)["is_running"]
    assert blocked.show(ended["id"]) == ended


# Listed


def test_jobs_are_listed_newest_first_and_without_results(blocked: Caller, memory: Service) -> None:
    own = Caller.new(memory)
    ended = own.completed("an ended question", project="poimen")
    running = own.begin("a running question")
    with_one_project(own, running["id"])

    newest, oldest = own.listed()

    own.cancel_all()
    assert (newest["id"], oldest["id"]) == (running["id"], ended["id"])
    assert (newest["query"], oldest["query"]) == ("a running question", "an ended question")
    assert newest["progress"] == {"done": 1, "total": 2}
    assert newest["poll_after_ms"] > 0
    assert oldest == {name: ended[name] for name in oldest}
    assert "results" not in oldest
    assert own.listed()[0]["status"] == "cancelled"


def test_a_list_comes_page_by_page(newcomer: Caller) -> None:
    ids = [newcomer.begin(f"question {n}", project="poimen")["id"] for n in range(5)]

    pages, cursor = [], None
    while True:
        asked = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = newcomer.send("GET", JOBS, params=asked).json()
        pages.append([job["id"] for job in page["jobs"]])
        cursor = page["next_cursor"]
        if cursor is None:
            break
        newcomer.begin("one that comes in between", project="poimen")

    assert pages == [ids[4:2:-1], ids[2:0:-1], ids[:1]]


@pytest.mark.parametrize(("limit", "count"), [(0, 1), (-3, 1), (1, 1), (3, 3), (101, 3)])
def test_the_length_of_a_page_is_cut(newcomer: Caller, limit: int, count: int) -> None:
    for n in range(3):
        newcomer.begin(f"question {n}", project="poimen")

    assert len(newcomer.listed(limit=limit)) == count


def test_a_list_can_be_of_one_status(blocked: Caller, memory: Service) -> None:
    own = Caller.new(memory)
    jobs = {
        "completed": own.completed(QUESTION, project="poimen")["id"],
        "partial": own.begin(QUESTION)["id"],
        "failed": own.stop(own.begin(QUESTION, project="agent-rust")["id"])["id"],
        "cancelled": own.cancel(own.begin(QUESTION, project="agent-rust")["id"])["id"],
        "running": own.begin(QUESTION, project="agent-rust")["id"],
    }
    with_one_project(own, jobs["partial"])
    own.stop(jobs["partial"])

    for status, job_id in jobs.items():
        assert [job["id"] for job in own.listed(status=status)] == [job_id]
    assert {job["id"] for job in own.listed(status="ended")} == set(jobs.values()) - {
        jobs["running"]
    }
    own.cancel_all()


def test_whoever_has_no_jobs_has_an_empty_list(newcomer: Caller) -> None:
    response = newcomer.send("GET", JOBS)

    assert response.json() == {"jobs": [], "next_cursor": None}


# Watched


def test_a_stream_tells_what_happens_and_ends_with_the_answer(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    seen = []
    with blocked.watch(job_id) as response:
        assert response.headers["Cache-Control"] == "no-store"
        for event in events_of(response):
            seen.append(event)
            if event.kind == "hits" and event.data["results"]:
                blocked.stop(job_id)

    kinds = [event.kind for event in seen]
    assert kinds[-1] == "done"
    assert kinds.count("done") == 1
    ids = [event.id for event in seen]
    assert ids == sorted(ids)
    done = seen[-1]
    assert done.data == blocked.show(job_id)
    assert done.id == done.data["revision"]
    told = [event.data["project"] for event in seen if event.kind == "progress"]
    assert {"project": "poimen", "status": "successful", "reason": None} in told
    shown = next(e.data for e in seen if e.kind == "hits" and e.data["results"])
    assert (shown["status"], shown["projects_searched"]) == ("running", ["poimen"])


def test_a_stream_goes_on_where_it_was_left(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    with_one_project(blocked, job_id)
    with blocked.watch(job_id) as response:
        first = next(event for event in events_of(response) if event.kind == "progress")
    blocked.stop(job_id)

    rest = blocked.events(job_id, after=first.id)

    assert all(event.id > first.id for event in rest)
    assert rest[-1].kind == "done"
    assert blocked.events(job_id, after=rest[-1].id)[-1] == rest[-1]


def test_the_stream_of_an_ended_job_is_its_end(caller: Caller) -> None:
    said = caller.completed(QUESTION)

    (event,) = caller.events(said["id"])

    assert (event.kind, event.id, event.data) == ("done", said["revision"], said)


def test_a_stream_of_a_cancelled_job_ends_as_well(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(blocked.events, job_id)
        with_one_project(blocked, job_id)
        blocked.cancel(job_id)
        events = watched.result()

    assert (events[-1].kind, events[-1].data["status"]) == ("done", "cancelled")


def test_there_are_so_many_streams_and_no_more(blocked: Caller) -> None:
    job_id = blocked.begin(QUESTION)["id"]
    seats = Settings.model_fields["web_threads"].default // 8
    streams = [blocked.watch(job_id) for _ in range(seats + 1)]
    try:
        assert {stream.status_code for stream in streams[:seats]} == {200}
        assert streams[seats].status_code == 503, "one more than there may be"
        problem(streams[seats], 503, "overloaded")
        assert int(streams[seats].headers["Retry-After"]) >= 1
        assert blocked.look(job_id).status_code == 200, "polling goes on"
    finally:
        for stream in streams:
            stream.close()
    blocked.stop(job_id)  # now each stream would say something, and so learns that nobody listens

    def again() -> bool:
        with blocked.watch(job_id) as stream:
            return stream.status_code == 200

    until(again)


# All or nothing


def test_an_incomplete_answer_is_an_error_where_only_a_complete_one_is_of_use(
    blocked: Caller,
) -> None:
    asked = {"query": QUESTION, "timeout_seconds": 1, "allow_partial": "false"}
    response = blocked.send("GET", "/memory/query", params=asked)

    said = problem(response, 504, "deadline_exceeded")
    assert (said["federation"]["successful"], said["federation"]["timed_out"]) == (1, 1)
    assert said["warnings"] == ["project 'agent-rust' timed out"]
    job = blocked.ended(blocked.begin(QUESTION, timeout_seconds=1, allow_partial=False)["id"])
    assert (job["status"], job["error"]["error"]) == ("failed", "deadline_exceeded")
    assert job["federation"]["successful"] == 1
    assert job["error"]["warnings"] == ["project 'agent-rust' timed out"]


def test_a_project_that_fails_is_a_502_where_only_a_complete_answer_is_of_use(
    caller: Caller,
) -> None:
    with broken_projects(caller.service, ["agent-rust"]):
        asked = {"query": QUESTION, "allow_partial": "false"}
        response = caller.send("GET", "/memory/query", params=asked)
        tolerant = caller.send("GET", "/memory/query", params={"query": QUESTION})
        job = caller.ended(caller.begin(QUESTION, allow_partial=False)["id"])
        tolerant_job = caller.ended(caller.begin(QUESTION)["id"])

    said = problem(response, 502, "incomplete_answer")
    assert (said["federation"]["successful"], said["federation"]["failed"]) == (1, 1)
    assert (job["status"], job["error"]["error"]) == ("failed", "incomplete_answer")
    assert tolerant.status_code == 200
    assert tolerant.json()["federation"]["failed"] == 1
    assert tolerant_job["status"] == "partial"
    assert found(tolerant_job) == found(tolerant.json())


def test_a_complete_answer_is_one_for_those_who_want_nothing_else(caller: Caller) -> None:
    asked = {"query": QUESTION, "allow_partial": "false"}

    assert caller.send("GET", "/memory/query", params=asked).status_code == 200
    caller.completed(QUESTION, allow_partial=False)


def test_when_every_project_fails_there_is_an_error_and_no_empty_answer(caller: Caller) -> None:
    with broken_projects(caller.service, BOTH):
        response = caller.send("GET", "/memory/query", params={"query": QUESTION})
        job = caller.ended(caller.begin(QUESTION)["id"])

    said = problem(response, 502, "all_projects_failed")
    assert said["federation"]["failed"] == 2
    assert (job["status"], job["error"]["error"]) == ("failed", "all_projects_failed")
    assert {one["error"]["error"] for one in job["federation"]["projects"]} == {"internal_error"}


# Refused

TRUNCATED = b'{"query": "why"'
WRONG: dict[str, list[Any]] = {
    "query": [None, 5, "", " \t ", "a\x00b", "x" * 4001, ["why"], "\ud800"],
    "project": ["", 5, ["poimen"]],
    "projects": ["poimen", [], [""], [5], {"poimen": 1}],
    "level": ["L1", [], ["L3"], ["l1"], [1], None],
    "limit": ["5", 5.5, True, None, [5]],
    "timeout_seconds": ["5", 0.5, False, None],
    "keep_alive_seconds": ["60", 60.5, None],
    "wait_seconds": ["1", 1.5, None],
    "method": ["", "fuzzy", "HYBRID", 1, None],
    "semantic_weight": ["0.5", -0.1, 1.1, True],
    "filters": ["{}", [], 5],
    "facets": ["true", 1, []],
    "explain": ["true", 1, None],
    "allow_partial": ["false", 0, None],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_cannot_be_used_is_a_400_naming_it(caller: Caller, name: str) -> None:
    for value in WRONG[name]:
        response = caller.send("POST", JOBS, json={"query": QUESTION} | {name: value})
        assert [said.split("[")[0] for said in blamed(response)] == [name], value


def test_several_wrong_values_are_all_named(caller: Caller) -> None:
    response = caller.submit("", limit="many", levle=["L1"])

    assert sorted(blamed(response)) == ["levle", "limit", "query"]
    reasons = {error["parameter"]: error["reason"] for error in response.json()["errors"]}
    assert "level" in reasons["levle"]


def test_a_project_is_named_one_way_or_the_other(caller: Caller) -> None:
    assert blamed(caller.submit(QUESTION, project="poimen", projects=["poimen"])) == ["projects"]


@pytest.mark.parametrize("asked", [{"project": "nope"}, {"projects": ["poimen", "a\x00b"]}])
def test_a_project_that_is_not_there_is_a_404(caller: Caller, asked: dict[str, Any]) -> None:
    said = problem(caller.submit(QUESTION, **asked), 404, "project_not_found")

    assert [error["parameter"] for error in said["errors"]] == list(asked)


@pytest.mark.parametrize("body", [b"", TRUNCATED, b"null", b"[]", b'"why"', b"\xff", b"[" * 9999])
def test_a_body_that_is_no_object_is_a_400(caller: Caller, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}

    assert blamed(caller.send("POST", JOBS, data=body, headers=headers)) == ["body"]


def test_a_body_of_another_kind_is_a_415(caller: Caller) -> None:
    response = caller.send("POST", JOBS, data="query=why")

    problem(response, 415, "unsupported_media_type")


@pytest.mark.parametrize(("method", "path"), [("POST", JOBS), ("GET", JOBS), *ROUTES])
def test_an_unknown_parameter_is_a_400_on_every_route(
    caller: Caller, method: str, path: str
) -> None:
    job_id = caller.completed(QUESTION)["id"]
    mark = "&" if "?" in path else "?"
    body = {"json": {"query": QUESTION}} if path == JOBS and method == "POST" else {}

    response = caller.send(method, path.format(job_id) + f"{mark}wiat=1", **body)

    assert blamed(response) == ["wiat"]
    assert caller.show(job_id)["status"] == "completed"


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        *[(JOBS, "limit", value) for value in ("", "five", "1.5", "x" * 3000)],
        *[(JOBS, "status", value) for value in ("", "open", "expired", "RUNNING")],
        *[(JOBS, "cursor", v) for v in ("", "nope", "x" * 201, "\U0001f4a9", "AAAA", "====")],
        *[(f"{JOBS}/{{}}", "wait_seconds", value) for value in ("", "1.5", "soon")],
        *[(f"{JOBS}/{{}}", "since", value) for value in ("", "-1", "1.5", "x")],
    ],
)
def test_a_parameter_that_cannot_be_used_is_a_400_naming_it(
    caller: Caller, path: str, name: str, value: str
) -> None:
    path = path.format(caller.completed(QUESTION)["id"])

    assert blamed(caller.send("GET", path, params={name: value})) == [name]


def test_a_cursor_is_only_what_the_list_gave(caller: Caller) -> None:
    forged = [
        "MjAyNi0wMS0wMSBub3BlCg==",  # no job
        "MDAwMS0wMS0wMVQwMDowMDowMCAwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==",  # no zone
        "bm9wZSAwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==",  # no instant
    ]
    for cursor in forged:
        assert blamed(caller.send("GET", JOBS, params={"cursor": cursor})) == ["cursor"]


@pytest.mark.parametrize("value", ["", "-1", "1.5", "x", "9" * 30, "\xb2"])
def test_an_event_id_that_cannot_be_one_is_a_400_naming_it(caller: Caller, value: str) -> None:
    path = f"{JOBS}/{caller.completed(QUESTION)['id']}/events"

    response = caller.send("GET", path, headers={"Last-Event-ID": value})

    assert blamed(response) == ["Last-Event-ID"]


@pytest.mark.parametrize("value", ["", "yes", "2"])
def test_a_flag_is_true_or_false(caller: Caller, value: str) -> None:
    job_id = caller.completed(QUESTION)["id"]

    response = caller.send("DELETE", f"{JOBS}/{job_id}", params={"if_running": value})

    assert blamed(response) == ["if_running"]
    assert caller.look(job_id).status_code == 200


def test_only_what_a_job_can_do_is_allowed(caller: Caller) -> None:
    job_id = caller.completed(QUESTION)["id"]
    methods = Counter[int]()
    for method, path in (("PUT", ""), ("PATCH", ""), ("POST", ""), ("GET", "/stop")):
        methods[caller.send(method, f"{JOBS}/{job_id}{path}").status_code] += 1

    assert methods == {405: 4}


def test_a_job_is_submitted_with_a_key_only(caller: Caller) -> None:
    for method, path in [("POST", JOBS), ("GET", JOBS), *ROUTES]:
        response = requests.request(
            method, caller.service.url + path.format(UNKNOWN), json={"query": "why"}, timeout=20
        )
        problem(response, 401, "not_authenticated")
