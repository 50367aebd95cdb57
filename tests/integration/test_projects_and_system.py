"""The projects of a memory and what they hold, and what the service says of itself."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate as validate_document

from tests.integration.service import Service, fixture_nodes, until


def listed(service: Service) -> dict[str, dict[str, Any]]:
    response = service.get("/memory/projects")
    assert response.status_code == 200, response.text
    return {project["project"]: project for project in response.json()["projects"]}


def counted(service: Service) -> dict[str, dict[str, int]]:
    """Nodes by project and level, as the rows themselves say."""
    with service.connect() as connection:
        rows = connection.execute(
            "SELECT project, level, count(*) FROM memory_node GROUP BY project, level"
        ).fetchall()
    found = {name: {"L0": 0, "L1": 0, "L2": 0} for name in listed(service)}
    for project, level, count in rows:
        found[project][level] = count
    return found


def told(service: Service) -> dict[str, dict[str, int]]:
    """Nodes by project and level, as the service says."""
    return {name: project["nodes"] for name, project in listed(service).items()}


def test_projects_are_listed_with_what_they_hold(service: Service) -> None:
    expected: dict[str, Counter[str]] = {}
    for node in fixture_nodes():
        expected.setdefault(node["project"], Counter())[node["level"]] += 1

    assert told(service) == expected
    assert list(listed(service)) == ["agent-rust", "poimen"]


def test_a_project_may_weigh_meaning_and_words_in_its_own_way(service: Service) -> None:
    question = "why did requests over 10KB fail?"

    def weights(**parameters: str) -> set[float]:
        answer = service.ask(question, project="poimen", method="hybrid", **parameters)
        return {hit["breakdown"]["semantic_weight"] for hit in answer["results"]}

    assert weights() == {0.6}
    added = service.mem("projects", "add", "poimen", "--semantic-weight", "0.25")
    assert added.returncode == 0, added.stderr

    assert listed(service)["poimen"]["semantic_weight"] == 0.25
    until(lambda: weights() == {0.25})  # workers remember for some seconds what it was
    assert weights(semantic_weight="1") == {1.0}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM memory_node WHERE level = 'L0' AND position > 40",
        "DELETE FROM memory_node WHERE project = 'poimen'",
        "DELETE FROM memory_node",
        "DELETE FROM memory_node WHERE false",
        "DELETE FROM project WHERE project = 'poimen'",
    ],
)
def test_the_counts_follow_whatever_is_deleted_by_sql(service: Service, statement: str) -> None:
    with service.connect() as connection:
        connection.execute(statement)

    assert told(service) == counted(service)
    if "DELETE FROM project" in statement:
        assert list(told(service)) == ["agent-rust"]


def test_the_counts_follow_what_is_stored_again_after_a_deletion(service: Service) -> None:
    with service.connect() as connection:
        connection.execute("DELETE FROM memory_node WHERE level = 'L2'")
    service.ingest(fixture_nodes())

    assert told(service) == counted(service)
    assert told(service)["poimen"]["L2"] > 0


def test_the_counts_of_a_deletion_that_was_rolled_back_do_not_move(service: Service) -> None:
    before = told(service)
    with service.connect() as connection, connection.transaction(force_rollback=True):
        connection.execute("DELETE FROM memory_node")

    assert told(service) == before == counted(service)


def test_an_empty_memory_lists_no_project_and_answers_with_a_hint(empty_service: Service) -> None:
    assert listed(empty_service) == {}
    answer = empty_service.ask("anything")
    assert (answer["results"], answer["projects_searched"]) == ([], [])
    assert (answer["degraded"], answer["federation"]["total"]) == (False, 0)
    assert "mem ingest" in answer["notes"]


def test_a_project_without_nodes_is_searched_and_empty(empty_service: Service) -> None:
    empty_service.post("/memory/projects", {"project": "bare"})

    answer = empty_service.ask("anything", project="bare")

    assert answer["results"] == []
    assert answer["federation"]["successful"] == 1
    assert answer["degraded"] is False


def test_a_project_is_created_once_and_then_added_to(empty_service: Service) -> None:
    first = empty_service.post("/memory/projects", {"project": "new", "roots": ["/b"]}).json()
    assert (first["title"], first["roots"]) == (None, ["/b"])
    assert first["nodes"] == {"L0": 0, "L1": 0, "L2": 0}

    body = {"project": "new", "title": "Größe 木", "roots": ["/a", "/b"]}
    second = empty_service.post("/memory/projects", body).json()
    third = empty_service.post("/memory/projects", {"project": "new"}).json()

    assert (second["title"], second["roots"]) == ("Größe 木", ["/a", "/b"])
    assert third == second
    assert second["created_at"] == first["created_at"]


def test_ingest_creates_the_projects_it_needs(empty_service: Service) -> None:
    node = {"level": "L0", "kind": "turn", "source": "s", "text": "t"}

    empty_service.ingest([node | {"project": "one"}, node | {"project": "other"}])

    assert told(empty_service) == {
        "one": {"L0": 1, "L1": 0, "L2": 0},
        "other": {"L0": 1, "L1": 0, "L2": 0},
    }


def test_a_refused_submission_creates_no_project(empty_service: Service) -> None:
    ended = empty_service.ingest([{"project": "ghost", "level": "L9"}])

    assert ended["status"] == "failed"
    assert listed(empty_service) == {}


def test_readiness_names_every_dependency_and_worker(service: Service) -> None:
    def ready() -> dict[str, Any] | None:
        response = service.get("/health/ready")
        return response.json() if response.status_code == 200 else None

    said = until(ready)

    assert said["status"] == "ready"
    assert set(said["dependencies"]) >= {"database", "redis", "query_worker", "merge_worker"}
    assert all(state["state"] == "ok" for state in said["dependencies"].values())
    assert "pgvector" in said["dependencies"]["database"]["detail"]
    queues = {queue for worker in said["workers"] for queue in worker["queues"]}
    starts = [datetime.fromisoformat(worker["started_at"]) for worker in said["workers"]]
    assert all(start.utcoffset() == timedelta(0) for start in starts)
    assert {"query", "merge", "ingest", "upkeep"} <= queues


def test_the_real_answers_are_what_the_document_describes(service: Service) -> None:
    document = service.get("/openapi.json").json()
    validate_document(document)
    asked = {
        "/memory/query": {"query": "why did requests fail?", "explain": "true", "limit": "50"},
        "/memory/projects": {},
        "/health": {},
        "/health/ready": {},
    }
    for path, parameters in asked.items():
        response = service.get(path, **parameters)
        described = document["paths"][path]["get"]["responses"][str(response.status_code)]
        schema = described["content"]["application/json"]["schema"]
        components = {"components": document["components"]}
        OAS31Validator(schema | components).validate(response.json())
