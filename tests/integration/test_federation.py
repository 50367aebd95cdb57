"""One question over all projects: a global ranking, side by side, and whoever is late is named."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.integration.obstacles import pids_of, slow_projects
from tests.integration.service import Service

QUESTION = "why did requests over 10KB fail?"
TEN = [f"project-{n}" for n in range(10)]


@pytest.fixture
def ten_projects(empty_service: Service) -> Service:
    for project in TEN:
        note = {"level": "L1", "kind": "note", "source": "s", "parents": ["turn"]}
        turn = {"id": "turn", "level": "L0", "kind": "turn", "source": "pi:s", "position": 1}
        nodes = [
            turn | {"text": f"The gateway of {project} refuses bodies over 10 KB."},
            note | {"text": f"Requests to {project} over 10 KB fail in its gateway."},
        ]
        assert empty_service.ingest(nodes, project)["status"] == "completed"
    return empty_service


def interval(outcome: dict[str, Any]) -> tuple[datetime, datetime]:
    start = datetime.fromisoformat(outcome["started_at"])
    return start, start + timedelta(milliseconds=outcome["took_ms"])


def test_federation_a1_a_single_project_is_no_federation(service: Service) -> None:
    answer = service.ask(QUESTION, project="poimen")

    assert {result["project"] for result in answer["results"]} == {"poimen"}
    assert answer["project_filter"] == "poimen"
    assert answer["federation"]["total"] == 1
    assert answer["federation"]["finalized_by"] == "task"


def test_federation_a2_without_a_project_all_are_searched(service: Service) -> None:
    answer = service.ask("build flags and body buffers", limit=50)

    assert {result["project"] for result in answer["results"]} == {"poimen", "agent-rust"}
    assert answer["federation"]["finalized_by"] == "callback"


def test_federation_a3_the_order_is_global_not_per_project(service: Service) -> None:
    results = service.ask("how do we cache things?", limit=50)["results"]

    for better, worse in pairwise(results):
        assert better["rerank_score"] >= worse["rerank_score"]
    projects = [result["project"] for result in results]
    changes = sum(one != next_one for one, next_one in pairwise(projects))
    assert changes > 1, "the projects' results stand in blocks"


def test_federation_a4_the_answer_says_who_was_searched(service: Service) -> None:
    answer = service.ask(QUESTION)

    assert answer["projects_searched"] == ["agent-rust", "poimen"]
    federation = answer["federation"]
    assert (federation["total"], federation["successful"]) == (2, 2)
    assert federation["coverage"] == 1.0
    assert answer["notes"].startswith("Searched 2 of 2 projects in parallel; 5 results")
    assert answer["warnings"] == []
    assert answer["degraded"] is False


def test_federation_a5_a_project_out_of_time_is_a_warning_and_the_others_answer(
    service: Service,
) -> None:
    with slow_projects(service, {"agent-rust": 10}):
        answer = service.ask(QUESTION, timeout_seconds=2)

    assert answer["results"]
    assert {result["project"] for result in answer["results"]} == {"poimen"}
    assert answer["projects_searched"] == ["poimen"]
    assert answer["warnings"] == ["project 'agent-rust' timed out"]
    assert answer["warning_details"][0]["code"] == "recall_timeout"
    assert answer["degraded"] is True
    assert answer["federation"]["timed_out"] == 1
    assert answer["federation"]["coverage"] == 0.5
    assert answer["latency_ms"] < 2500


def test_federation_a6_the_limit_counts_after_the_merge(service: Service) -> None:
    per_project = [
        service.ask("how do we cache things?", project=project, limit=3)["results"]
        for project in ("poimen", "agent-rust")
    ]
    assert [len(results) for results in per_project] == [3, 3]

    merged = service.ask("how do we cache things?", limit=4)["results"]

    best = sorted((r for results in per_project for r in results), key=lambda r: -r["score"])
    assert [r["id"] for r in merged] == [r["id"] for r in best[:4]]


def test_federation_a7_no_project_filter_in_a_federated_answer(service: Service) -> None:
    answer = service.ask(QUESTION)

    assert answer["project_filter"] is None
    assert answer["project"] is None


def test_federation_a8_ten_projects_are_searched_side_by_side(ten_projects: Service) -> None:
    with slow_projects(ten_projects, dict.fromkeys(TEN, 0.5)):
        answer = ten_projects.ask(QUESTION, explain="true")

    outcomes = answer["federation"]["projects"]
    starts, ends = zip(*map(interval, outcomes), strict=True)
    assert len(outcomes) == 10
    assert max(starts) < min(ends), "one search began after another had ended"
    assert len({outcome["task_id"] for outcome in outcomes}) == 10
    pids = {outcome["pid"] for outcome in outcomes}
    assert pids == set(pids_of(ten_projects, "query", 2)), "both workers took part"
    assert not pids & set(ten_projects.pids["web"])


def test_identical_text_in_two_projects_is_two_results(service: Service) -> None:
    results = service.ask("rotating the registry token", limit=50)["results"]

    texts = [result["text"] for result in results]
    twins = [result for result in results if texts.count(result["text"]) == 2]
    assert {twin["project"] for twin in twins} == {"poimen", "agent-rust"}
    assert len({twin["id"] for twin in twins}) == 2
    assert all(twin["parents"] for twin in twins)


def test_named_projects_are_the_ones_searched(ten_projects: Service) -> None:
    answer = ten_projects.ask(QUESTION, projects="project-3,project-7")

    assert answer["projects_searched"] == ["project-3", "project-7"]
    assert answer["federation"]["finalized_by"] == "callback"


def test_no_time_is_divided_by_the_number_of_projects(service: Service) -> None:
    """With 3 s, a project that needs 2 s answers in full and one that needs 10 s is a warning."""
    third = [{"level": "L0", "kind": "turn", "source": "s", "text": "Bodies over 10 KB fail."}]
    service.ingest(third, "slowest")

    with slow_projects(service, {"agent-rust": 2, "slowest": 10}):
        answer = service.ask(QUESTION, timeout_seconds=3, level="L0,L1,L2", limit=50)

    assert answer["projects_searched"] == ["agent-rust", "poimen"]
    assert answer["warnings"] == ["project 'slowest' timed out"]
    took = {o["project"]: o["took_ms"] for o in answer["federation"]["projects"]}
    assert took["agent-rust"] >= 2000
    assert any(result["project"] == "agent-rust" for result in answer["results"])


def test_a_memory_without_projects_answers_and_says_how_to_begin(empty_service: Service) -> None:
    answer = empty_service.ask(QUESTION)

    assert answer["results"] == []
    assert answer["projects_searched"] == []
    assert "mem ingest" in answer["notes"]


def test_a_project_without_nodes_is_successful_with_no_hits(empty_service: Service) -> None:
    assert empty_service.post("/memory/projects", {"project": "fresh"}).status_code == 200

    answer = empty_service.ask(QUESTION, project="fresh")

    assert answer["results"] == []
    assert answer["federation"]["successful"] == 1


def test_every_project_out_of_time_is_an_error_not_an_empty_answer(service: Service) -> None:
    with slow_projects(service, {"poimen": 10, "agent-rust": 10}):
        response = service.get("/memory/query", query=QUESTION, timeout_seconds=1)

    assert response.status_code == 504
    assert response.json()["error"] == "deadline_exceeded"
    assert sorted(response.json()["warnings"]) == [
        "project 'agent-rust' timed out",
        "project 'poimen' timed out",
    ]


def test_an_edge_deleted_from_the_database_is_gone_from_the_next_answer(service: Service) -> None:
    before = service.ask(QUESTION, project="poimen")["results"][0]
    gone = before["parents"][0]["sha256"]
    with service.connect() as connection:
        connection.execute(
            "DELETE FROM memory_edge WHERE project = 'poimen' AND child = %s AND parent = %s",
            [before["id"], gone],
        )

    after = service.ask(QUESTION, project="poimen")["results"][0]

    assert after["id"] == before["id"]
    assert [p["sha256"] for p in after["parents"]] == [p["sha256"] for p in before["parents"][1:]]


def test_a_hit_whose_evidence_is_gone_is_returned_with_a_warning(service: Service) -> None:
    top = service.ask(QUESTION, project="poimen")["results"][0]
    with service.connect() as connection:
        connection.execute("DELETE FROM memory_node WHERE level = 'L0' AND project = 'poimen'")

    answer = service.ask(QUESTION, project="poimen")

    assert answer["results"][0]["id"] == top["id"]
    assert answer["results"][0]["parents"] == []
    assert {detail["code"] for detail in answer["warning_details"]} == {"provenance_missing"}


def test_the_same_question_gives_the_same_bytes_twice(service: Service) -> None:
    first, second = (service.ask("how do we cache things?", limit=50)["results"] for _ in "12")

    assert first == second


def test_many_projects_share_sixteen_tasks_and_slow_ones_starve_none(
    empty_service: Service,
) -> None:
    names = [f"many-{n:02d}" for n in range(40)]
    turn = {"level": "L0", "kind": "turn", "source": "pi:s", "text": "Bodies over 10 KB fail."}
    nodes = [turn | {"project": name} for name in names]
    assert empty_service.ingest(nodes)["status"] == "completed"
    # More slow ones than there are threads to search with, and first in their packs.
    slow = names[:18]

    with slow_projects(empty_service, dict.fromkeys(slow, 20) | {names[21]: 0.3}):
        answer = empty_service.ask(QUESTION, level="L0", timeout_seconds=5, limit=50)

    outcomes = answer["federation"]["projects"]
    assert len({outcome["task_id"] for outcome in outcomes if outcome["task_id"]}) == 16
    assert answer["projects_searched"] == names[18:]
    assert answer["warnings"] == [f"project '{name}' timed out" for name in slow]
    assert answer["federation"]["total"] == 40
    assert {(o["plan"], o["requested"], o["got"]) for o in outcomes if o["plan"]} == {
        ("exact", 500, 1)
    }
