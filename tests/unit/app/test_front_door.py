"""Use cases over HTTP: what is asked of the workers, and what their silence becomes."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.unit.app.app_fakes import Door, make_door
from tests.unit.pipeline.pipeline_fakes import found, hit
from workers.errors import DeadlineExceeded, PoimenError, StoreUnavailable
from workers.model import Kind, Level, Outcome, Status

NODES = {"format": "nodes", "nodes": [{"text": "t"}]}


def failing(**reasons: str | None) -> Door:
    """Projects that fail with a reason; None: one that says nothing."""

    def outcome(project: str) -> Outcome | None:
        reason = reasons[project]
        if reason is None:
            return None
        return Outcome(project, Status.FAILED, reason=reason, message=f"{project} is ill")

    return make_door(outcome, *reasons)


def test_without_a_project_all_are_asked_at_once(door: Door) -> None:
    answer = door.get("/memory/query?query=why").get_json()

    ((how, projects, _, _),) = door.queries.sent
    assert (how, projects) == ("all", ["agent-rust", "poimen"])
    assert answer["projects_searched"] == ["agent-rust", "poimen"]
    assert answer["notes"] == "Searched 2 of 2 projects in parallel; 2 results"
    assert (answer["project"], answer["degraded"]) == (None, False)


def test_one_named_project_is_one_task(door: Door) -> None:
    answer = door.get("/memory/query?query=why&project=poimen").get_json()

    ((how, projects, _, _),) = door.queries.sent
    assert (how, projects) == ("one", ["poimen"])
    assert [result["project"] for result in answer["results"]] == ["poimen"]


def test_a_project_named_twice_in_a_list_is_asked_once(door: Door) -> None:
    door.get("/memory/query?query=why&projects=poimen,poimen")

    assert door.queries.sent[0][1] == ["poimen"]


def test_the_question_reaches_the_workers_as_it_was_asked(door: Door) -> None:
    door.get("/memory/query?query=w%C3%BCrg&limit=7&level=L0&explain=1")

    query = door.queries.sent[0][2]
    assert (query.text, query.limit, query.is_explained) == ("würg", 7, True)
    assert query.levels == (Level.L0,)


@pytest.mark.parametrize(("timeout", "reserve"), [(5, 0.25), (1, 0.15), (30, 1.0), (99, 1.0)])
def test_workers_stop_a_reserve_before_the_deadline_and_the_waiter_after_them(
    door: Door, timeout: int, reserve: float
) -> None:
    door.get(f"/memory/query?query=why&timeout_seconds={timeout}")

    left, (waited,) = door.queries.sent[0][3], door.queries.waited
    used = min(30, timeout)
    assert used - reserve - 0.5 < left <= used - reserve
    assert left < waited <= used - reserve / 3


@pytest.mark.parametrize("query", ["project=nope", "projects=poimen,nope"])
def test_an_unknown_project_is_404_and_nothing_is_asked(door: Door, query: str) -> None:
    response = door.get(f"/memory/query?query=why&{query}")

    assert response.status_code == 404
    assert response.get_json()["error"] == "project_not_found"
    assert response.get_json()["errors"][0]["parameter"] == query.partition("=")[0]
    assert door.queries.sent == []


def test_a_project_beyond_the_key_is_as_unknown_as_one_that_is_not_there(door: Door) -> None:
    beyond = door.get("/memory/query?query=why&project=agent-rust", key="pmk_poimen")
    absent = door.get("/memory/query?query=why&project=agent-ruby", key="pmk_poimen")

    told = [response.get_json()["detail"] for response in (beyond, absent)]
    assert beyond.status_code == absent.status_code == 404
    assert told[0].replace("rust", "ruby") == told[1]


def test_a_key_of_one_project_asks_that_one_only(door: Door) -> None:
    answer = door.get("/memory/query?query=why", key="pmk_poimen").get_json()

    assert answer["projects_searched"] == ["poimen"]


def test_a_memory_without_projects_answers_and_says_how_to_fill_it() -> None:
    door = make_door(lambda _: None)

    response = door.get("/memory/query?query=why")

    assert response.status_code == 200
    assert response.get_json()["projects_searched"] == []
    assert "mem ingest" in response.get_json()["notes"]


def test_a_silent_project_degrades_the_answer_and_is_named() -> None:
    door = make_door(lambda name: found(name) if name == "here" else None, "here", "x")

    response = door.get("/memory/query?query=why")

    said = response.get_json()
    assert response.status_code == 200
    assert said["degraded"] is True
    assert said["warnings"] == ["project 'x' timed out"]
    assert said["federation"]["timed_out"] == 1
    assert said["notes"].startswith("Searched 1 of 2 projects")


@pytest.mark.parametrize(
    ("reasons", "status", "code"),
    [
        ({"a": None, "b": None}, 504, "deadline_exceeded"),
        ({"a": "store_unavailable", "b": "store_unavailable"}, 503, "store_unavailable"),
        ({"a": "embedding_service_unavailable"}, 503, "embedding_service_unavailable"),
        ({"a": "model_mismatch"}, 503, "model_mismatch"),
        ({"a": "store_unavailable", "b": "queue_unavailable"}, 502, "all_projects_failed"),
        ({"a": "internal_error"}, 502, "all_projects_failed"),
        ({"a": "store_unavailable", "b": None}, 503, "store_unavailable"),
    ],
)
def test_nobody_answering_is_an_error_and_never_an_empty_success(
    reasons: dict[str, str | None], status: int, code: str
) -> None:
    response = failing(**reasons).get("/memory/query?query=why")

    assert response.status_code == status
    assert response.get_json()["error"] == code
    assert len(response.get_json()["warnings"]) == len(reasons)


def test_a_redis_that_forgot_the_query_is_503(door: Door) -> None:
    door.queries.is_forgetful = True

    response = door.get("/memory/query?query=why")

    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert response.get_json()["error"] == "queue_unavailable"


def test_accepted_nodes_are_kept_before_the_queue_hears_of_them(door: Door) -> None:
    response = door.post("/memory/ingest", NODES)

    job_id = response.get_json()["id"]
    assert response.status_code == 202
    assert response.headers["Location"] == f"/memory/ingest/{job_id}"
    assert door.jobs.saved[UUID(job_id)]["nodes"] == NODES["nodes"]
    assert door.queries.ingested == [job_id]


def test_nodes_are_accepted_while_the_queue_is_down(door: Door) -> None:
    door.queries.is_queue_down = True

    response = door.post("/memory/ingest", NODES)

    assert response.status_code == 202
    assert len(door.jobs.saved) == 1


def test_a_key_s_projects_go_with_the_job(door: Door) -> None:
    door.post("/memory/ingest", NODES, key="pmk_poimen")

    (payload,) = door.jobs.saved.values()
    assert payload["projects"] == ["poimen"]


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/memory/ingest", NODES, "pmk_reader"),
        ("/memory/ingest", NODES | {"project": "agent-rust"}, "pmk_poimen"),
        ("/memory/projects", {"project": "new"}, "pmk_reader"),
        ("/memory/projects", {"project": "new"}, "pmk_poimen"),
    ],
)
def test_a_key_that_may_not_write_there_is_403_and_nothing_is_kept(
    door: Door, path: str, body: dict[str, Any], key: str
) -> None:
    response = door.post(path, body, key)

    assert response.status_code == 403
    assert response.get_json()["error"] == "not_permitted"
    assert (door.jobs.saved, sorted(door.projects.rows)) == ({}, ["agent-rust", "poimen"])


@pytest.mark.parametrize("job", ["nope", "0" * 32, "%00", "00000000-0000-0000-0000-000000000000"])
def test_an_unknown_or_malformed_job_is_404(door: Door, job: str) -> None:
    response = door.get(f"/memory/ingest/{job}")

    assert response.status_code == 404
    assert response.get_json()["error"] == "ingest_not_found"


def test_a_project_is_created_and_listed(door: Door) -> None:
    made = door.post("/memory/projects", {"project": "new", "title": "N", "roots": ["/src"]})

    assert made.status_code == 200
    assert made.get_json()["nodes"] == {"L0": 0, "L1": 0, "L2": 0}
    assert made.get_json()["created_at"] == "2026-07-21T09:00:00Z"
    listed = door.get("/memory/projects").get_json()["projects"]
    assert [project["project"] for project in listed] == ["agent-rust", "new", "poimen"]


@pytest.mark.parametrize(
    ("roots", "parameter"),
    [
        (["/src", "relative"], "roots[1]"),
        ([""], "roots[0]"),
        (["/nul\0"], "roots[0]"),
        ("/src", "roots"),
        ([1], "roots[0]"),
        (["/x"] * 101, "roots"),
    ],
)
def test_a_project_s_roots_are_absolute_folders(door: Door, roots: object, parameter: str) -> None:
    response = door.post("/memory/projects", {"project": "new", "roots": roots})

    assert response.status_code == 400
    assert response.get_json()["errors"][0]["parameter"] == parameter


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Basic cG1rX2FsbA=="},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "pmk_all"},
        {"Authorization": "Bearer unknown"},
        {"Authorization": "Bearer pmk_all pmk_all"},
        {"X-API-Key": ""},
        {"X-API-Key": "x" * 5000},
        {"X-API-Key": "é"},
    ],
)
def test_without_a_known_key_nothing_is_told(door: Door, headers: dict[str, str]) -> None:
    response = door.client.get("/memory/projects", headers=headers)

    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert response.get_json()["error"] == "not_authenticated"


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer pmk_all"},
        {"Authorization": "bearer  pmk_all "},
        {"X-API-Key": "pmk_all"},
        {"X-API-Key": " pmk_all "},
    ],
)
def test_a_known_key_is_taken_from_either_header(door: Door, headers: dict[str, str]) -> None:
    assert door.client.get("/memory/projects", headers=headers).status_code == 200


@pytest.mark.parametrize("key", ["pmk_all", ""])
def test_two_credentials_are_one_too_many(door: Door, key: str) -> None:
    headers = {"Authorization": "Bearer pmk_all", "X-API-Key": key}

    response = door.client.get("/memory/projects", headers=headers)

    assert response.status_code == 400
    assert response.get_json()["errors"][0]["parameter"] == "X-API-Key"


def test_liveness_and_the_document_need_no_key(door: Door) -> None:
    assert door.get("/health", key=None).get_json() == {"status": "ok"}
    assert door.get("/openapi.json", key=None).status_code == 200


def test_readiness_names_each_dependency_that_fails_and_no_password(door: Door) -> None:
    response = door.get("/health/ready", key=None)

    said = response.get_json()
    assert (response.status_code, said["status"]) == (503, "not_ready")
    states = {name: state["state"] for name, state in said["dependencies"].items()}
    assert states["database"] == states["redis"] == states["query_worker"] == "failed"
    assert "secret" not in response.get_data(as_text=True)


def test_an_error_of_the_store_while_listing_is_a_problem(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> list[str]:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(door.projects, "find_projects", gone)

    response = door.get("/memory/projects")

    assert response.status_code == 503
    assert response.get_json()["detail"] == "the database is away"


def test_the_methods_of_an_address_are_told_without_a_page(door: Door) -> None:
    response = door.client.open("/memory/query", method="OPTIONS")

    assert response.status_code == 200
    assert "GET" in response.headers["Allow"]
    assert "Content-Type" not in response.headers
    assert response.data == b""


@pytest.mark.parametrize("error", [DeadlineExceeded("too late"), StoreUnavailable("it is gone")])
def test_context_that_cannot_be_read_costs_the_context_and_not_the_answer(
    error: PoimenError,
) -> None:
    turn = replace(hit("a"), turn=3)
    door = make_door(lambda project: found(project, turn), "p")
    door.contexts.error = error

    response = door.get("/memory/query/with-context?query=why&project=p")

    answer = response.get_json()
    assert response.status_code == 200
    assert [result["context"] for result in answer["results"]] == [None]
    (warning,) = answer["warning_details"]
    assert (warning["code"], warning["project"]) == ("context_missing", None)
    assert str(error) in warning["message"]
    assert answer["degraded"] is False


def test_neighbours_are_asked_of_what_has_a_place_in_a_source_and_of_nothing_else() -> None:
    turn, note = replace(hit("turn"), turn=3), replace(hit("note"), kind=Kind.NOTE, turn=3)
    door = make_door(lambda project: found(project, turn, note, hit("placeless")), "p")

    door.get("/memory/query/with-context?query=why&project=p&context_chunks=50")

    assert door.contexts.asked == [([("p", "turn")], 10)]


def test_nothing_is_read_where_no_neighbours_are_wanted_or_there_is_no_hit() -> None:
    door = make_door(lambda project: found(project, replace(hit("a"), turn=3)), "p")
    nothing = make_door(lambda project: found(project), "p")

    for one, count in ((door, 0), (nothing, 2)):
        path = f"/memory/query/with-context?query=why&context_chunks={count}"
        assert one.get(path).status_code == 200
        assert one.contexts.asked == []
