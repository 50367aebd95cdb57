"""Every error is a problem that can be told apart, followed up, and gives nothing away."""

import json
from http import HTTPStatus
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.problems import STATUS
from tests.unit.app.app_fakes import Door
from workers.errors import PoimenError


def descendants(kind: type[PoimenError]) -> set[type[PoimenError]]:
    return {kind}.union(*(descendants(child) for child in kind.__subclasses__()))


def assert_problem(response: Any, status: int, code: str) -> dict[str, Any]:
    """The shape of every problem."""
    assert response.status_code == status
    assert response.content_type == "application/problem+json"
    said: dict[str, Any] = response.get_json()
    assert (said["status"], said["error"], said["type"]) == (status, code, f"/problems/{code}")
    assert said["title"]
    assert said["detail"]
    assert said["request_id"] == response.headers["X-Request-Id"]
    return said


def test_every_error_has_a_status() -> None:
    ours = {
        kind
        for kind in descendants(PoimenError) - {PoimenError}
        if kind.__module__ == "workers.errors"
    }

    assert set(STATUS) == ours
    assert all(status >= HTTPStatus.BAD_REQUEST for status in STATUS.values())


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in STATUS]

    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", STATUS, ids=lambda kind: kind.code)
def test_each_error_is_rendered_as_its_problem(
    door: Door, monkeypatch: pytest.MonkeyPatch, kind: type[PoimenError]
) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "what to do next")

    def fail(*_: object) -> None:
        raise error.with_facts(query_id="q1")

    monkeypatch.setattr(door.service, "list_projects", fail)

    said = assert_problem(door.get("/memory/projects"), STATUS[kind], kind.code)

    assert (said["detail"], said["query_id"]) == ("what to do next", "q1")


def test_an_unforeseen_error_tells_its_text_to_nobody(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError("the question was: where is my password")

    monkeypatch.setattr(door.service, "ask", break_down)

    with capture_logs() as logs:
        response = door.get("/memory/query?query=where+is+my+password")

    said = assert_problem(response, 500, "internal_error")
    assert "password" not in json.dumps(said)
    (logged,) = [line for line in logs if line["event"] == "request_failed"]
    assert logged["error"] == "RuntimeError"
    assert "test_problems.py" in logged["place"]
    assert "password" not in json.dumps(logged)


def test_an_unknown_address_is_a_problem(door: Door) -> None:
    assert_problem(door.get("/memory/nowhere"), 404, "route_not_found")


@pytest.mark.parametrize("path", ["/memory/query", "/memory/projects", "/health"])
def test_a_wrong_method_is_a_problem_that_names_the_right_ones(door: Door, path: str) -> None:
    response = door.client.delete(path)

    said = assert_problem(response, 405, "method_not_allowed")
    assert "GET" in said["detail"]
    assert "GET" in response.headers["Allow"]


def send(door: Door, data: bytes, content_type: str | None = "application/json") -> Any:
    headers = {"Authorization": "Bearer pmk_all"}
    return door.client.post("/memory/ingest", data=data, content_type=content_type, headers=headers)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"nodes", b'{"a": "\xff"}', b"\x00", b"[1,]", b"1" * 5000],
)
def test_a_body_that_is_not_json_is_a_problem_of_the_body(door: Door, data: bytes) -> None:
    said = assert_problem(send(door, data), 400, "invalid_parameters")

    assert said["errors"] == [{"parameter": "body", "reason": "is not valid JSON"}]


@pytest.mark.parametrize("data", [b"[]", b"null", b'"nodes"', b"7", b"true"])
def test_json_that_is_no_object_is_a_problem_of_the_body(door: Door, data: bytes) -> None:
    said = assert_problem(send(door, data), 400, "invalid_parameters")

    assert said["errors"] == [{"parameter": "body", "reason": "is not a JSON object"}]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_another_content_type_is_unsupported(door: Door, kind: str | None) -> None:
    assert_problem(send(door, b"{}", kind), 415, "unsupported_media_type")


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_body_nested_without_end_is_a_problem_of_the_body(door: Door, opening: bytes) -> None:
    said = assert_problem(send(door, opening * 1900), 400, "invalid_parameters")

    assert said["errors"][0]["parameter"] == "body"


def test_a_body_over_the_limit_is_too_large(door: Door) -> None:
    said = assert_problem(send(door, b'"' + b"x" * 10_000 + b'"'), 413, "body_too_large")

    assert "POIMEN_INGEST_MAX_MB" in said["detail"]


@pytest.mark.parametrize("given", ["abc", "A-1.b_2", "x" * 64])
def test_a_caller_s_request_id_is_kept(door: Door, given: str) -> None:
    response = door.get("/health", headers={"X-Request-Id": given})

    assert response.headers["X-Request-Id"] == given


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, 'a"b', "ä", "a;b", "../a"])
def test_a_request_id_that_could_carry_something_is_replaced(door: Door, given: str) -> None:
    response = door.get("/memory/nowhere", headers={"X-Request-Id": given})

    said = response.get_json()["request_id"]
    assert said == response.headers["X-Request-Id"] != given
    assert len(said) == 32


def test_two_requests_have_two_ids(door: Door) -> None:
    one, other = (door.get("/health").headers["X-Request-Id"] for _ in range(2))

    assert one != other


def test_answers_are_not_to_be_stored_or_guessed_at(door: Door) -> None:
    headers = door.get("/memory/query?query=why").headers

    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
