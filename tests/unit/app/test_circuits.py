"""What readiness says of the servers of models."""

from datetime import UTC, datetime

import fakeredis
import pytest

from app import wiring
from tests.unit.app.app_fakes import make_door
from workers.engines.breaker import Circuit

SINCE = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
WHY = "The server answered HTTP 500; see its log."
CLOSED = Circuit("closed")
OPEN = Circuit("open", SINCE, 4.2, WHY)
HALF_OPEN = Circuit("half_open", SINCE, 0.0, WHY)


@pytest.mark.parametrize(
    ("embedder", "reranker", "states", "is_ready"),
    [
        (CLOSED, CLOSED, ("ok", "ok"), True),
        (OPEN, CLOSED, ("failed", "ok"), False),
        (HALF_OPEN, CLOSED, ("degraded", "ok"), True),
        (CLOSED, OPEN, ("ok", "degraded"), True),
        (CLOSED, HALF_OPEN, ("ok", "degraded"), True),
    ],
)
def test_only_an_embedder_that_may_not_be_tried_makes_the_service_not_ready(
    monkeypatch: pytest.MonkeyPatch,
    embedder: Circuit,
    reranker: Circuit,
    states: tuple[str, str],
    is_ready: bool,
) -> None:
    circuits = {"embedder": embedder, "reranker": reranker}
    said = {name: wiring.circuit_state(name, circuit) for name, circuit in circuits.items()}
    monkeypatch.setattr("app.routes.system.check_dependencies", lambda _: (said | REDIS, []))

    response = make_door(lambda project: None).get("/health/ready", key=None)

    found = response.json["dependencies"]
    assert (found["embedder"]["state"], found["reranker"]["state"]) == states
    assert response.status_code == (200 if is_ready else 503)


REDIS = {"redis": ("ok", "Valkey")}


def test_an_open_circuit_says_since_when_until_when_and_why() -> None:
    _, detail = wiring.circuit_state("embedder", OPEN)

    assert detail == f"circuit open since 2026-11-30T12:00:00Z, tried again in 5 s. {WHY}"


def test_servers_that_are_not_configured_are_no_dependency() -> None:
    from workers.engines.build import find_circuits

    redis = fakeredis.FakeRedis()

    assert find_circuits(redis, embedding_url=None, rerank_url=None, rerank_api="tei") == {}
    found = find_circuits(
        redis,
        embedding_url="http://a",
        rerank_url="http://b",
        rerank_api="tei",
        opensearch_url="http://c",
    )
    assert found == {"embedder": CLOSED, "reranker": CLOSED, "opensearch": CLOSED}
