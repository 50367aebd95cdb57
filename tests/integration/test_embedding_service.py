"""With an embedding server: what it is asked, and what becomes of a question it does not answer."""

import threading
from collections.abc import Iterator

import pytest

from tests.integration.embedding_server import EmbeddingServer
from tests.integration.service import Service, fixture_nodes, running

QUESTION = "why did requests over 10KB fail?"


@pytest.fixture(scope="module")
def embedding_server() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def http_service(embedding_server: EmbeddingServer) -> Iterator[Service]:
    settings = {
        "POIMEN_QUERY_WORKERS": "2",
        "POIMEN_EMBEDDING_URL": embedding_server.url,
        "POIMEN_EMBEDDING_MODEL": "all-MiniLM-L6-v2",
        "POIMEN_EMBEDDING_DIMENSION": "384",
    }
    with running(**settings) as service:
        for n in range(10):
            nodes = [node for node in fixture_nodes() if node["project"] == "agent-rust"][:6]
            evidence = [n | {"level": "L0", "parents": []} for n in nodes]
            moved = [{k: v for k, v in node.items() if k != "project"} for node in evidence]
            assert service.ingest(moved, f"project-{n}")["status"] == "completed"
        yield service


@pytest.fixture
def server(http_service: Service, embedding_server: EmbeddingServer) -> EmbeddingServer:
    with http_service.redis() as redis:
        redis.flushall()
    embedding_server.questions.clear()
    return embedding_server


def test_query_a9_a_slow_embedding_service_is_a_503_in_time(
    http_service: Service, server: EmbeddingServer
) -> None:
    with server.held():
        response = http_service.get(
            "/memory/query", query="never seen before", project="project-1", timeout_seconds=1
        )

    assert response.status_code == 503
    assert response.json()["error"] == "embedding_service_unavailable"
    assert response.elapsed.total_seconds() < 1.5


def test_a_federated_question_that_cannot_be_embedded_is_a_503_too(
    http_service: Service, server: EmbeddingServer
) -> None:
    with server.held():
        response = http_service.get("/memory/query", query="another new one", timeout_seconds=1)

    assert response.status_code == 503
    assert response.json()["error"] == "embedding_service_unavailable"


def test_ten_projects_on_two_workers_cost_one_embedding(
    http_service: Service, server: EmbeddingServer
) -> None:
    answer = http_service.ask("a question for all ten", level="L0", explain="true")

    assert len(answer["projects_searched"]) == 10
    assert len({outcome["pid"] for outcome in answer["federation"]["projects"]}) == 2
    assert len(server.questions) == 1


def test_the_same_question_twice_costs_one_embedding(
    http_service: Service, server: EmbeddingServer
) -> None:
    first = http_service.ask("asked twice", level="L0")
    second = http_service.ask("asked twice", level="L0")

    assert first["metrics"]["cache"]["embedding"] == "miss"
    assert second["metrics"]["cache"]["embedding"] == "hit"
    assert [r["id"] for r in first["results"]] == [r["id"] for r in second["results"]]
    assert len(server.questions) == 1


def test_a_slow_embedding_is_waited_for_by_packs_too(
    http_service: Service, server: EmbeddingServer
) -> None:
    """Projects that share a task have shares of its time; the one encoding has all of it."""
    evidence = {"level": "L0", "kind": "turn", "source": "s", "text": "Bodies over 10 KB fail."}
    names = [f"packed-{n:02d}" for n in range(40)]
    nodes = [evidence | {"project": name} for name in names]
    assert http_service.ingest(nodes)["status"] == "completed"
    server.questions.clear()

    with server.held():
        release = threading.Timer(1.2, server.release)
        release.start()
        answer = http_service.ask(
            "a slow question for forty", projects=",".join(names), level="L0", timeout_seconds=4
        )

    assert answer["projects_searched"] == names
    assert server.questions == ["a slow question for forty"]


def test_a_failed_embedding_is_not_remembered(
    http_service: Service, server: EmbeddingServer
) -> None:
    with server.held():
        http_service.get("/memory/query", query="first in vain", timeout_seconds=1)

    assert http_service.ask("first in vain", level="L0")["results"]
