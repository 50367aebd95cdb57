"""Asking one project: what the answer holds, and what it is made of."""

from itertools import pairwise
from typing import Any

import pytest

from tests.integration.service import Service

QUESTION = "why did requests over 10KB fail?"


def results_of(service: Service, query: str, **parameters: Any) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = service.ask(query, **parameters)["results"]
    return results


def test_query_a1_a_question_returns_results(service: Service) -> None:
    answer = service.ask("Kong body", project="poimen")

    assert answer["results"]
    assert answer["query"] == "Kong body"
    assert answer["results"][0]["standing_id"] == "infra-root-causes"


def test_query_a2_scores_are_present_and_vary(service: Service) -> None:
    results = results_of(service, QUESTION, project="poimen")

    for result in results:
        assert 0 <= result["query_score"] <= 1
        assert 0 < result["rerank_score"] <= 1
        assert result["score"] == result["rerank_score"]
    assert len({result["rerank_score"] for result in results}) == len(results)


def test_query_a3_parents_down_to_l0_are_included_and_exist(service: Service) -> None:
    top = results_of(service, QUESTION, project="poimen")[0]

    assert top["level"] == "L1"
    assert top["parents"]
    for parent in top["parents"]:
        assert parent["level"] == "L0"
        assert parent["source"]
        with service.connect() as connection:
            row = connection.execute(
                "SELECT text FROM memory_node WHERE project = 'poimen' AND sha256 = %s",
                [parent["sha256"]],
            ).fetchone()
        assert row == (parent["text"],)


def test_query_a4_level_l0_returns_evidence_only(service: Service) -> None:
    results = results_of(service, QUESTION, project="poimen", level="L0", limit=50)

    assert results
    assert {result["level"] for result in results} == {"L0"}
    both = results_of(service, QUESTION, project="poimen", level="L0,L1,L2", limit=50)
    assert len(both) > len(results)


def test_query_a5_default_levels_hold_no_evidence(service: Service) -> None:
    asked = results_of(service, QUESTION, project="poimen", level="L1,L2", limit=50)

    assert {result["level"] for result in asked} == {"L1", "L2"}
    by_default = results_of(service, QUESTION, project="poimen", limit=50)
    assert [r["id"] for r in by_default] == [r["id"] for r in asked]


def test_query_a6_a_project_filter_keeps_other_projects_out(service: Service) -> None:
    for project in ("poimen", "agent-rust"):
        results = results_of(service, "build flags", project=project, limit=50)
        assert results
        assert {result["project"] for result in results} == {project}


def test_query_a7_the_limit_is_respected(service: Service) -> None:
    assert len(results_of(service, QUESTION, project="poimen", limit=3)) == 3
    assert len(results_of(service, QUESTION, project="poimen", limit=1)) == 1


def test_query_a8_query_score_is_recall_s_and_the_order_is_the_reranker_s(
    service: Service,
) -> None:
    answer = service.ask(QUESTION, project="poimen", limit=50, explain="true")
    results = answer["results"]
    recalled = {c["sha256"]: c for c in answer["explain"]["projects"][0]["candidates"]}

    for result in results:
        assert result["query_score"] == pytest.approx(1 - recalled[result["id"]]["distance"])
    for better, worse in pairwise(results):
        assert better["rerank_score"] >= worse["rerank_score"]
    by_recall = sorted(results, key=lambda result: recalled[result["id"]]["rank"])
    assert [r["id"] for r in by_recall] != [r["id"] for r in results]


def test_query_a10_an_empty_or_missing_question_is_a_400(service: Service) -> None:
    for parameters in ({}, {"query": ""}, {"query": "   "}):
        response = service.get("/memory/query", **parameters)
        assert response.status_code == 400
        assert response.headers["Content-Type"] == "application/problem+json"
        assert response.json()["errors"][0]["parameter"] == "query"


def test_an_answer_stays_small_however_much_stands_behind_it(empty_service: Service) -> None:
    text = "The gateway refuses bodies over 10 KB. " * 500
    turns = [
        {"id": f"t{n}", "level": "L0", "kind": "turn", "source": "s", "text": f"{n} {text}"}
        for n in range(20)
    ]
    notes = [
        {"id": f"n{n}", "level": "L1", "kind": "note", "source": "s", "text": f"{n} {text}"}
        | {"parents": [turn["id"] for turn in turns]}
        for n in range(20)
    ]
    syntheses = [
        {"level": "L2", "kind": "synthesis", "source": "s", "text": f"{n} {text}"}
        | {"parents": [note["id"] for note in notes]}
        for n in range(20)
    ]
    assert empty_service.ingest([*turns, *notes, *syntheses], "deep")["status"] == "completed"

    response = empty_service.get("/memory/query", query=QUESTION, level="L2", limit=20)
    top = response.json()["results"][0]

    assert len(response.content) < 3_000_000
    assert (len(top["parents"]), top["parents_omitted"]) == (12, 8)
    assert (len(top["parents"][0]["parents"]), top["parents"][0]["parents_omitted"]) == (4, 16)
    assert top["parents"][0]["is_excerpt"] is True
    assert len(top["parents"][0]["text"]) == 1000
    assert top["is_excerpt"] is False


def test_a_very_long_hit_says_that_its_text_goes_on(empty_service: Service) -> None:
    long = {"level": "L0", "kind": "document", "source": "s", "text": "gateway " * 10_000}
    assert empty_service.ingest([long], "long")["status"] == "completed"

    (hit,) = results_of(empty_service, "gateway", level="L0")

    assert (len(hit["text"]), hit["is_excerpt"]) == (20_000, True)
