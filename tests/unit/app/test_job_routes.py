"""Submitted queries over HTTP: headers, seats, the pace of polling and the text of a stream."""

import json
import re
from typing import Any

import pytest

from tests.unit.app.app_fakes import EVERYTHING, Door
from tests.unit.core.job_fakes import World
from tests.unit.pipeline.pipeline_fakes import found, hit
from workers.model import Silence

JOBS = "/memory/query/jobs"
JOB = "0123456789abcdef0123456789abcdef"
PLACE = f"{JOBS}/{JOB}"


@pytest.fixture
def world(door: Door) -> World:
    return door.world


@pytest.fixture
def running(world: World) -> str:
    """A job over two projects that one worker has begun."""
    world.begun(JOB, "alpha", "beta", key_id=EVERYTHING.key_id, timeout_s=600)
    return JOB


def test_a_202_names_the_place_of_the_answer_and_when_to_look(door: Door) -> None:
    response = door.post(JOBS, {"query": "why"})

    said = response.get_json()
    assert response.status_code == 202
    assert response.headers["Location"] == f"{JOBS}/{said['id']}"
    assert response.headers["Retry-After"] == "1"
    assert response.headers["ETag"] == f'"{said["id"]}-{said["revision"]}"'
    assert "Idempotency-Replayed" not in response.headers


def test_a_queue_that_is_away_is_a_503_and_nothing_is_accepted(door: Door) -> None:
    door.world.states.is_down = True

    response = door.post(JOBS, {"query": "why"})

    assert (response.status_code, response.get_json()["error"]) == (503, "queue_unavailable")
    assert response.headers["Retry-After"]
    assert door.world.store.rows == {}


def test_a_database_that_is_away_is_a_503_on_every_route(door: Door) -> None:
    door.world.store.is_down = True

    for response in (
        door.post(JOBS, {"query": "why"}),
        door.get(JOBS),
        door.get(PLACE),
        door.get(f"{PLACE}/events"),
        door.post(f"{PLACE}/stop", {}),
        door.client.delete(PLACE, headers={"Authorization": "Bearer pmk_all"}),
    ):
        assert (response.status_code, response.get_json()["error"]) == (503, "store_unavailable")
        assert response.headers["Retry-After"]


@pytest.mark.parametrize(
    ("age_s", "pause_ms"),
    [(0, 250), (1.9, 250), (2, 1000), (4.9, 1000), (5, 2500), (19, 2500), (20, 5000), (300, 5000)],
)
def test_the_older_a_job_the_less_often_it_is_looked_at(
    door: Door, world: World, running: str, age_s: float, pause_ms: int
) -> None:
    world.time.advance(age_s)

    responses = [door.get(PLACE) for _ in range(20)]

    pauses = [response.get_json()["poll_after_ms"] for response in responses]
    assert all(0.8 * pause_ms <= pause <= 1.2 * pause_ms for pause in pauses)
    assert len(set(pauses)) > 1, "not in step with others"
    for pause, response in zip(pauses, responses, strict=True):
        assert 0 <= int(response.headers["Retry-After"]) - pause / 1000 < 1


def test_who_finds_no_seat_to_wait_is_answered_at_once(door: Door, running: str) -> None:
    front = door.client.application.extensions["front_door"]
    start = door.world.time()
    with front.waits.take() as has_seat:
        assert has_seat
        response = door.get(f"{PLACE}?wait_seconds=20")

    assert (response.status_code, door.world.time()) == (200, start)
    door.get(f"{PLACE}?wait_seconds=20")
    assert door.world.time() == start + 20


def test_a_look_that_finds_nothing_new_says_so_without_a_body(door: Door, running: str) -> None:
    tag = door.get(PLACE).headers["ETag"]

    for sent in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        response = door.get(PLACE, headers={"If-None-Match": sent})
        assert (response.status_code, response.data) == (304, b"")
        assert response.headers["ETag"] == tag

    door.world.states.record(JOB, found("alpha"))
    assert door.get(PLACE, headers={"If-None-Match": tag}).status_code == 200
    assert door.get(PLACE, headers={"If-None-Match": "nonsense"}).status_code == 200


def events(text: str) -> list[dict[str, str]]:
    """What a stream said, block by block; a comment has an empty name."""
    blocks = [block.split("\n") for block in text.split("\n\n") if block]
    return [dict(reversed_pair(line) for line in block) for block in blocks]


def reversed_pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(": ")
    return name, value


def test_a_stream_is_text_that_ends_with_the_document(
    door: Door, world: World, running: str
) -> None:
    world.time.after(1, lambda: world.states.record(JOB, found("alpha", hit("a", "alpha"))))
    world.time.after(20, lambda: world.jobs.end(JOB, "stop", Silence.STOPPED))

    response = door.get(f"{PLACE}/events")

    assert response.mimetype == "text/event-stream"
    assert response.headers["X-Accel-Buffering"] == "no"
    first, *said = events(response.get_data(as_text=True))
    assert first == {"retry": "1000"}
    assert {"": "still running"} in said
    told = [block for block in said if "event" in block]
    assert [block["event"] for block in told] == ["progress", "hits", "progress", "hits", "done"]
    base = world.store.rows[JOB].first_revision
    assert [int(block["id"]) - base for block in told] == [1, 1, 2, 2, 4]
    progress: dict[str, Any] = json.loads(told[2]["data"])
    assert progress == {
        "status": "running",
        "revision": base + 2,
        "progress": {"done": 1, "total": 2},
        "project": {"project": "alpha", "status": "successful", "reason": None},
    }
    assert json.loads(told[-1]["data"]) == door.get(PLACE).get_json()


def test_a_stream_breaks_no_line_whatever_was_found(door: Door, world: World, running: str) -> None:
    text = "one\ntwo\r\n\r\nthree\u2028four\x85"
    world.states.record(JOB, found("alpha", hit("a", "alpha", text=text)), found("beta"))
    world.jobs.end(JOB, "callback")

    data = door.get(f"{PLACE}/events").get_data(as_text=True)

    lines = [line for line in re.split("\r\n|\n|\r", data) if line]
    assert [line.partition(":")[0] for line in lines] == ["retry", "id", "event", "data"]
    assert json.loads(lines[-1].removeprefix("data: "))["results"][0]["text"] == text


def test_a_stream_has_a_seat_until_it_ends(door: Door, world: World, running: str) -> None:
    first = door.get(f"{PLACE}/events", buffered=False)
    refused = door.get(f"{PLACE}/events")
    first.close()
    world.jobs.cancel(JOB)

    assert (refused.status_code, refused.get_json()["error"]) == (503, "overloaded")
    assert refused.headers["Retry-After"] == "1"
    assert door.get(f"{PLACE}/events").status_code == 200


def test_whoever_wants_the_head_of_a_stream_takes_no_seat(door: Door, running: str) -> None:
    start = door.world.time()

    response = door.client.head(f"{PLACE}/events", headers={"Authorization": "Bearer pmk_all"})

    assert (response.status_code, response.mimetype) == (200, "text/event-stream")
    assert door.world.time() == start


def test_what_is_wrong_with_a_stream_is_said_before_it_takes_a_seat(
    door: Door, running: str
) -> None:
    for path, headers, status in (
        (f"{JOBS}/nope/events", {}, 404),
        (f"{PLACE}/events?x=1", {}, 400),
        (f"{PLACE}/events", {"Last-Event-ID": "x"}, 400),
    ):
        assert door.get(path, headers=headers).status_code == status
    door.world.jobs.cancel(JOB)
    assert door.get(f"{PLACE}/events").status_code == 200


def test_a_stream_whose_database_goes_away_ends_and_is_no_broken_answer(
    door: Door, world: World, running: str
) -> None:
    def go_away() -> None:
        world.store.is_down = True

    world.time.after(3, go_away)

    said = events(door.get(f"{PLACE}/events").get_data(as_text=True))

    assert [block["event"] for block in said if "event" in block] == ["progress", "hits"]
    assert door.get(f"{PLACE}/events").status_code == 503


def test_a_cancelled_job_has_lost_what_it_found(door: Door, world: World, running: str) -> None:
    world.states.record(JOB, found("alpha", hit("a", "alpha")))

    deletion = {"headers": {"Authorization": "Bearer pmk_all"}}
    said = door.client.delete(PLACE, **deletion).get_json()

    assert (said["status"], said["results"], said["error"]) == ("cancelled", [], None)
    assert said["federation"]["cancelled"] == said["federation"]["total"] == 2
    assert door.client.delete(PLACE, **deletion).status_code == 204
    assert door.get(PLACE).status_code == 410


def test_a_failed_job_says_why_as_a_problem_would(door: Door, world: World, running: str) -> None:
    world.jobs.end(JOB, "stop", Silence.STOPPED)

    response = door.get(PLACE)

    assert response.status_code == 200, "the job can be shown, whatever became of it"
    error = response.get_json()["error"]
    assert (error["error"], error["status"]) == ("stopped_by_user", 409)
    assert error["type"] == "/problems/stopped_by_user"
    assert error["query_id"] == JOB
