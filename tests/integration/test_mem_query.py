"""`mem query` as a person uses it, against the real service."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service import FIXTURE, Service, fixture_nodes

QUESTION = "why did requests over 10KB fail?"


def asked(service: Service, *arguments: str) -> dict[str, Any]:
    done = service.mem("query", "--format", "json", *arguments)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def provenance(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for own in node["parents"] for step in (own, *provenance(own))]


def test_mem_query_a1_a_known_question_finds_its_note_first(service: Service) -> None:
    done = service.mem("query", "--project", "poimen", QUESTION)

    assert done.returncode == 0
    first = done.stdout.splitlines()[0]
    assert "infra-root-causes" in first
    assert "L1" in first
    assert asked(service, "-p", "poimen", QUESTION)["results"][0]["standing_id"] == (
        "infra-root-causes"
    )


def test_mem_query_a2_every_hit_s_provenance_exists_in_the_database(service: Service) -> None:
    results = asked(service, "-p", "poimen", "-k", "20", QUESTION)["results"]

    shas = {(r["project"], step["sha256"]) for r in results for step in provenance(r)}
    assert all(result["parents"] for result in results)
    with service.connect() as connection:
        for key in shas:
            row = connection.execute(
                "SELECT 1 FROM memory_node WHERE project = %s AND sha256 = %s", key
            ).fetchone()
            assert row == (1,)


def test_mem_query_a3_evidence_is_no_hit_by_default(service: Service) -> None:
    results = asked(service, "-p", "poimen", "-k", "50", QUESTION)["results"]

    assert results
    assert "L0" not in {result["level"] for result in results}


def test_mem_query_a4_levels_l0_shows_the_evidence(service: Service) -> None:
    results = asked(service, "-p", "poimen", "--levels", "L0", QUESTION)["results"]

    assert results
    assert {result["level"] for result in results} == {"L0"}
    assert "pi:2026-07-21-019f857d" in {result["source"] for result in results}


def test_mem_query_a5_reranking_reorders_what_recall_found(service: Service) -> None:
    answer = asked(service, "-p", "poimen", "--explain", QUESTION)
    candidates = answer["explain"]["projects"][0]["candidates"]

    by_recall = sorted(candidates, key=lambda candidate: candidate["rank"])
    by_rerank = sorted(candidates, key=lambda candidate: candidate["final_rank"])
    fused = [c["fused"] for c in by_recall]
    assert fused == sorted(fused, reverse=True)
    scores = [c["rerank_score"] for c in by_rerank]
    assert scores == sorted(scores, reverse=True)
    assert [c["sha256"] for c in by_recall] != [c["sha256"] for c in by_rerank]


def test_mem_query_a6_no_hit_crosses_projects(service: Service) -> None:
    for project in ("poimen", "agent-rust"):
        results = asked(service, "-p", project, "-k", "50", "registry token")["results"]
        assert {result["project"] for result in results} == {project}


def test_mem_query_a7_without_a_project_it_is_an_error(service: Service, tmp_path: Path) -> None:
    done = service.mem("query", QUESTION, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "--project" in done.stderr
    assert "--all-projects" in done.stderr
    unknown = service.mem("query", "-p", "poimne", QUESTION)
    assert unknown.returncode == 2
    assert "poimen" in unknown.stderr


def test_mem_query_a8_a_synthesis_leads_through_notes_to_evidence(service: Service) -> None:
    results = asked(service, "-p", "poimen", "--levels", "L2", "silent limits")["results"]
    assert results

    for synthesis in results:
        assert {parent["level"] for parent in synthesis["parents"]} == {"L1"}
        for note in synthesis["parents"]:
            assert note["parents"]
            assert {evidence["level"] for evidence in note["parents"]} == {"L0"}
            assert all(evidence["source"] for evidence in note["parents"])
    text = service.mem("query", "-p", "poimen", "--levels", "L2", "silent limits").stdout
    assert "pi:2026-07-21-019f857d" in text


def test_the_project_is_inferred_from_the_folder(service: Service, tmp_path: Path) -> None:
    inside = tmp_path / "src" / "deep"
    inside.mkdir(parents=True)
    added = service.mem("projects", "add", "poimen", "--root", str(tmp_path))
    assert added.returncode == 0, added.stderr

    done = service.mem("query", "--format", "json", QUESTION, cwd=inside)

    assert json.loads(done.stdout)["project_filter"] == "poimen"


def test_explain_prints_the_candidates_and_who_searched(service: Service) -> None:
    done = service.mem("query", "-A", "--explain", QUESTION)
    workers = {str(worker["pid"]) for worker in service.workers() if "query" in worker["queues"]}

    assert done.returncode == 0
    shown = done.stdout + done.stderr
    assert any(pid in shown for pid in workers)
    assert "distance" in shown or " d " in shown


def test_ingest_reports_what_it_stored_and_what_it_already_had(empty_service: Service) -> None:
    first = empty_service.mem("ingest", str(FIXTURE), "--as", "nodes")
    second = empty_service.mem("ingest", str(FIXTURE), "--as", "nodes")

    count = len(fixture_nodes())
    assert first.returncode == second.returncode == 0
    assert f"{count} stored" in first.stdout + first.stderr
    assert f"{count} unchanged" in second.stdout + second.stderr


def test_a_key_for_a_project_that_is_not_there_yet_is_made_with_a_warning(
    service: Service,
) -> None:
    made = service.mem("keys", "create", "--name", "early", "-p", "poimen", "-p", "later")

    assert made.returncode == 0
    assert "no project later yet" in made.stderr
    assert "no project poimen" not in made.stderr


def test_evidence_is_named_by_its_source_and_turn(service: Service) -> None:
    done = service.mem("query", "-p", "poimen", "--levels", "L0", "-k", "1", QUESTION)

    assert "  L0 turn  pi:2026-07-21-019f857d  turn " in done.stdout.splitlines()[0]
    assert "+-" not in done.stdout


def test_a_revoked_key_is_told_to_sign_in(service: Service) -> None:
    made = service.mem("keys", "create", "--name", "passing", "--format", "json")
    key = json.loads(made.stdout)
    assert service.mem("keys", "revoke", key["id"]).returncode == 0

    response = service.get("/memory/projects")
    assert response.status_code == 200
    with_revoked = service.mem_as(key["key"], "projects", "list")
    assert with_revoked.returncode == 4


@pytest.mark.parametrize(
    "command", ["query", "ingest", "projects", "keys", "up", "doctor", "demo", "migrate"]
)
def test_every_command_explains_itself(service: Service, command: str) -> None:
    done = service.mem(command, "--help")

    assert done.returncode == 0
    assert "mem " in done.stdout


def test_mem_query_filters_and_counts(service: Service) -> None:
    answer = asked(service, "-p", "poimen", "--filter", "kind=note", "-k", "50", QUESTION)

    assert {result["kind"] for result in answer["results"]} == {"note"}
    assert answer["facets"]["kinds"] == {"note": len(answer["results"])}
    done = service.mem("query", "-p", "poimen", "--filter", "kind=note", QUESTION)
    assert f"kinds     note {len(answer['results'])}" in done.stdout.splitlines()


def test_mem_query_names_a_filter_that_there_is_none_of(service: Service) -> None:
    done = service.mem("query", "-p", "poimen", "--filter", "source_patern=x", QUESTION)

    assert done.returncode != 0
    assert "filters.source_patern: is unknown; did you mean source_pattern?" in done.stderr
