"""What is said of results: whose it may be, and what it is tied to."""

from typing import Any

import pytest

from tests.unit.app.app_fakes import Door, make_door
from tests.unit.pipeline.pipeline_fakes import found, hit

FEEDBACK = "/memory/query/feedback"
SHA, OTHER = "a" * 64, "b" * 64
GONE = "0" * 32


@pytest.fixture
def door() -> Door:
    return make_door(lambda project: found(project, hit(SHA, project, 0.9)), "p")


def ask(door: Door, key: str = "pmk_all") -> str:
    response = door.get("/memory/query?query=why&project=p", key=key)
    query_id: str = response.get_json()["query_id"]
    return query_id


def say(door: Door, query_id: str, result_id: str = SHA, key: str = "pmk_all", **said: Any) -> Any:
    body = {"query_id": query_id, "result_id": result_id, "relevant": True} | said
    return door.post(FEEDBACK, body, key)


def test_an_answer_is_remembered_with_its_owner_its_way_and_its_hits(door: Door) -> None:
    served = door.served.known[ask(door)]

    assert (served.key_id, served.method) == ("all", "lexical")
    assert [(each.sha256, each.rank, each.rerank_score) for each in served.hits] == [(SHA, 1, 0.9)]


def test_feedback_is_kept_with_what_was_served(door: Door) -> None:
    response = say(door, ask(door), feedback_text="just so")

    assert response.status_code == 201
    (kept,) = door.feedback.kept.values()
    assert (kept.project, kept.method, kept.feedback_text) == ("p", "lexical", "just so")
    assert kept.hit is not None
    assert kept.hit.rank == 1


def test_what_is_said_and_asked_is_kept_without_its_secrets(door: Door) -> None:
    say(door, ask(door), feedback_text="the password is hunter2", query_text="is it hunter2?")

    (kept,) = door.feedback.kept.values()
    assert (kept.feedback_text, kept.query_text) == ("the password is ***", "is it ***?")


def test_a_redis_that_is_away_costs_the_tie_and_not_the_answer(door: Door) -> None:
    door.served.is_away = True
    assert door.get("/memory/query?query=why&project=p").status_code == 200
    query_id = ask(door)

    refused = say(door, query_id, query_text="why")
    door.served.is_away = False
    taken = say(door, query_id, query_text="why")

    assert (refused.status_code, refused.get_json()["error"]) == (503, "queue_unavailable")
    assert (taken.status_code, taken.get_json()["is_tied"]) == (201, False)


def test_another_key_s_answer_does_not_exist(door: Door) -> None:
    response = say(door, ask(door), key="pmk_poimen")

    assert (response.status_code, response.get_json()["error"]) == (404, "query_not_found")
    assert door.feedback.kept == {}


def test_a_reading_key_is_refused_before_its_body_is_looked_at(door: Door) -> None:
    response = door.post(FEEDBACK, {"nonsense": True}, key="pmk_reader")

    assert (response.status_code, response.get_json()["error"]) == (403, "not_permitted")


def test_a_job_that_runs_has_no_results_to_be_judged_yet(door: Door) -> None:
    job = door.world.store.add("1" * 32, "p", key_id="all")

    response = say(door, job.id)

    assert response.status_code == 400
    assert response.get_json()["errors"][0]["parameter"] == "query_id"


def test_untied_feedback_goes_to_the_project_that_holds_the_node_within_reach(door: Door) -> None:
    door.feedback.nodes = {SHA: "p", OTHER: "poimen"}

    for key, result_id in (("pmk_all", SHA), ("pmk_poimen", SHA), ("pmk_poimen", OTHER)):
        assert say(door, GONE, result_id, key, query_text="why").status_code == 201

    assert [kept.project for kept in door.feedback.kept.values()] == ["p", None, "poimen"]


def test_a_report_is_asked_for_as_it_was_wanted(door: Door) -> None:
    path = f"{FEEDBACK}?keys=500&limit=0&about=unresolved&project=p"

    response = door.get(path)

    assert response.get_json() == {"results": [], "next_cursor": None}
    assert door.feedback.asked == [
        {"project": "p", "about": "unresolved", "keys": 100, "before": None, "limit": 2}
    ]


@pytest.mark.parametrize("project", ["nope", "p"])
def test_a_report_of_a_project_out_of_reach_is_one_of_none(door: Door, project: str) -> None:
    response = door.get(f"{FEEDBACK}?project={project}", key="pmk_poimen")

    assert (response.status_code, response.get_json()["error"]) == (404, "project_not_found")
