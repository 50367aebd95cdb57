"""With servers for both models: whose order it is, and what becomes of a server that fails."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from tests.integration.model_stub import ModelStub, Reply, embeddings, reply, tei
from tests.integration.service import Service, running, until
from workers.engines.minilm import MiniLM

SLOTS = 2
QUESTION = "which bird is it?"
BIRDS = ("dunlin", "linnet", "kakapo", "avocet", "plover", "godwit")


class Embedding(ModelStub):
    """The real embedded model behind HTTP."""

    def __init__(self) -> None:
        self._model = MiniLM()
        super().__init__(self.honest)

    def honest(self, body: dict[str, Any]) -> Reply:
        return embeddings([self.vector(text) for text in body["input"]])

    def vector(self, text: str) -> list[float]:
        return [float(number) for number in self._model.read(text).vector]


def by_bird(body: dict[str, Any]) -> Reply:
    """The birds' scores, in an order that no embedding would give."""
    places = [next(i for i, bird in enumerate(BIRDS) if bird in t) for t in body["texts"]]
    return tei([0.9 - place / 10 for place in places])


@pytest.fixture(scope="module")
def embedding() -> Iterator[Embedding]:
    stub = Embedding()
    yield stub
    stub.close()


@pytest.fixture(scope="module")
def reranking() -> Iterator[ModelStub]:
    stub = ModelStub(by_bird)
    yield stub
    stub.close()


@pytest.fixture(scope="module")
def stack(embedding: Embedding, reranking: ModelStub) -> Iterator[Service]:
    with running(
        POIMEN_QUERY_WORKERS="2",
        POIMEN_EMBEDDING_URL=embedding.url,
        POIMEN_EMBEDDING_MODEL="all-MiniLM-L6-v2",
        POIMEN_EMBEDDING_DIMENSION="384",
        POIMEN_RERANK_URL=reranking.url,
        POIMEN_RERANK_MODEL="stub-cross-encoder",
        POIMEN_RERANK_CONCURRENCY=str(SLOTS),
    ) as service:
        yield service


@pytest.fixture
def service(stack: Service, embedding: Embedding, reranking: ModelStub) -> Service:
    """Both servers as they should be, no circuit open, nothing stored."""
    embedding.answer, reranking.answer = embedding.honest, by_bird
    stack.empty()
    for stub in (embedding, reranking):
        stub.requests.clear()
        stub.most_at_once = 0
    return stack


def turn(text: str, **more: Any) -> dict[str, Any]:
    return {"level": "L0", "kind": "turn", "source": "field-notes", "text": text, **more}


def stored_birds(service: Service, project: str = "birds") -> None:
    nodes = [turn(f"a {bird} was seen at the mud flats") for bird in BIRDS]
    assert service.ingest(nodes, project)["status"] == "completed"


def birds_of(answer: dict[str, Any]) -> list[str]:
    return [next(b for b in BIRDS if b in result["text"]) for result in answer["results"]]


def broken(body: dict[str, Any]) -> Reply:
    return reply({}, 500)


def dependency(service: Service, name: str) -> tuple[int, str, str]:
    response = service.get("/health/ready")
    said = response.json()["dependencies"][name]
    return response.status_code, said["state"], said["detail"]


def test_the_order_is_the_rerank_servers(service: Service, reranking: ModelStub) -> None:
    stored_birds(service)

    answer = service.ask(QUESTION, project="birds", level="L0", limit=6)

    assert birds_of(answer) == list(BIRDS)
    assert [result["rerank_score"] for result in answer["results"]] == pytest.approx(
        [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    )
    assert answer["metrics"]["reranker"] == "stub-cross-encoder"
    assert not answer["degraded"]
    assert {request["query"] for request in reranking.requests} == {QUESTION}


def test_fewer_candidates_are_scored_than_by_the_embedded_reranker(
    service: Service, reranking: ModelStub
) -> None:
    service.ingest([turn(f"dunlin number {n}") for n in range(40)], "birds")

    answer = service.ask(QUESTION, project="birds", level="L0", limit=6)

    (request,) = reranking.requests
    assert len(request["texts"]) == 18
    assert answer["federation"]["projects"][0]["reranked"] == 18


def test_no_token_vectors_are_made_for_a_cross_encoder(service: Service) -> None:
    stored_birds(service)

    with service.connect() as connection:
        tokens = connection.execute("SELECT count(*) FROM node_tokens").fetchone()
        vectors = connection.execute("SELECT count(*) FROM node_vector").fetchone()

    assert (tokens, vectors) == ((0,), (len(BIRDS),))


def test_readiness_names_the_models_and_shows_closed_circuits(service: Service) -> None:
    workers = [worker for worker in service.workers() if "query" in worker["queues"]]

    assert {(w["embedder"], w["reranker"]) for w in workers} == {
        ("all-MiniLM-L6-v2", "stub-cross-encoder")
    }
    assert dependency(service, "embedder") == (200, "ok", "circuit closed")
    assert dependency(service, "reranker") == (200, "ok", "circuit closed")


def test_a_rerank_server_that_fails_costs_the_order_and_no_hit(
    service: Service, reranking: ModelStub
) -> None:
    stored_birds(service)
    reranking.answer = broken

    answer = service.ask(QUESTION, project="birds", level="L0", limit=6)

    similarities = [result["query_score"] for result in answer["results"]]
    assert sorted(birds_of(answer)) == sorted(BIRDS)
    assert similarities == sorted(similarities, reverse=True)
    assert [result["rerank_score"] for result in answer["results"]] == [None] * 6
    assert answer["federation"]["projects"][0]["status"] == "partial"
    assert [warning["code"] for warning in answer["warning_details"]] == ["reranker_unavailable"]
    assert "HTTP 500" in answer["warnings"][0]
    assert (answer["degraded"], answer["metrics"]["reranker"]) == (True, None)


def test_a_rerank_server_that_goes_on_failing_is_left_alone_and_readiness_says_so(
    service: Service, reranking: ModelStub
) -> None:
    stored_birds(service)
    reranking.answer = broken
    for number in range(3):
        service.ask(f"{QUESTION} {number}", project="birds", level="L0")
    asked = len(reranking.requests)

    answer = service.ask(QUESTION, project="birds", level="L0")

    assert len(reranking.requests) == asked
    assert answer["degraded"]
    assert "left alone" in answer["warnings"][0]
    code, state, detail = dependency(service, "reranker")
    assert (code, state) == (200, "degraded")
    assert "open since 20" in detail
    assert "HTTP 500" in detail


def test_a_rerank_server_that_is_too_slow_is_said_to_be(
    service: Service, reranking: ModelStub
) -> None:
    stored_birds(service)
    with reranking.held():
        answer = service.ask(QUESTION, project="birds", level="L0", timeout_seconds=2)

    assert len(answer["results"]) == 5
    assert [warning["code"] for warning in answer["warning_details"]] == ["rerank_truncated"]


def test_an_embedding_server_that_goes_on_failing_makes_the_service_not_ready(
    service: Service, embedding: Embedding
) -> None:
    stored_birds(service)
    embedding.answer = broken
    said = [
        service.get(
            "/memory/query", query=f"not understood {number}", project="birds", method="semantic"
        )
        for number in range(4)
    ]

    assert [response.status_code for response in said] == [503] * 4
    assert {response.json()["error"] for response in said} == {"embedding_service_unavailable"}
    assert "left alone" in said[3].json()["detail"]
    code, state, detail = dependency(service, "embedder")
    assert (code, state) == (503, "failed")
    assert "HTTP 500" in detail
    with service.redis() as redis:
        assert all(redis.ttl(key) > 0 for key in redis.scan_iter("poimen:circuit:*"))


def test_a_circuit_closes_by_itself_once_the_server_is_back(
    service: Service, reranking: ModelStub
) -> None:
    stored_birds(service)
    reranking.answer = broken
    for number in range(3):
        service.ask(f"{QUESTION} {number}", project="birds", level="L0")
    reranking.answer = by_bird

    def reranked() -> bool:
        return not service.ask(QUESTION, project="birds", level="L0")["degraded"]

    assert until(reranked, within_s=20)
    assert dependency(service, "reranker") == (200, "ok", "circuit closed")


def test_two_workers_together_stay_within_the_slots(
    service: Service, embedding: Embedding, reranking: ModelStub
) -> None:
    stored_birds(service)
    embedding.requests.clear()

    def ask(number: int) -> dict[str, Any]:
        return service.ask(f"all at once {number}", project="birds", level="L0", timeout_seconds=20)

    with ThreadPoolExecutor(10) as pool:
        with reranking.held():
            answers = [pool.submit(ask, number) for number in range(10)]
            until(lambda: len(embedding.requests) == 10 and len(reranking.requests) >= SLOTS)
            threading.Event().wait(0.5)  # for more than there should be to come
        said = [answer.result() for answer in answers]

    assert len({outcome["pid"] for one in said for outcome in one["federation"]["projects"]}) == 2
    assert not any(one["degraded"] for one in said)
    assert reranking.most_at_once == SLOTS
    assert len(reranking.requests) == 10


def test_without_a_slot_in_time_hits_come_in_the_order_of_recall(
    service: Service, reranking: ModelStub
) -> None:
    stored_birds(service)

    def ask(number: int, seconds: int) -> dict[str, Any]:
        return service.ask(
            f"{QUESTION} {number}", project="birds", level="L0", timeout_seconds=seconds
        )

    with ThreadPoolExecutor(SLOTS) as pool, reranking.held():
        others = [pool.submit(ask, number, 20) for number in range(SLOTS)]
        until(lambda: len(reranking.requests) == SLOTS)
        answer = ask(99, 2)
        reranking.free()
        assert not any(other.result()["degraded"] for other in others)

    assert [warning["code"] for warning in answer["warning_details"]] == ["rerank_limited"]
    assert len(answer["results"]) == 5


def test_a_node_without_a_vector_is_refused_by_line_with_what_stands_on_it(
    service: Service, embedding: Embedding
) -> None:
    def odd(body: dict[str, Any]) -> Reply:
        nan, zero = [float("nan")] * 384, [0.0] * 384
        return embeddings(
            [
                nan if "linnet" in text else zero if "dunlin" in text else embedding.vector(text)
                for text in body["input"]
            ]
        )

    embedding.answer = odd
    nodes = [
        turn("a plover on the beach", id="plover"),
        turn("a linnet in the hedge", id="linnet"),
        turn("a dunlin in the surf"),
        {**turn("birds of the hedge", parents=["linnet"]), "level": "L1", "kind": "note"},
        {**turn("birds of the beach", parents=["plover"]), "level": "L1", "kind": "note"},
    ]

    ended = service.ingest(nodes, "birds")

    (file,) = ended["files"]
    assert (ended["status"], file["stored"]) == ("partial", 2)
    assert [refusal["line"] for refusal in file["skipped"]] == [2, 3, 4]
    assert "NaN" in file["skipped"][0]["reason"]
    assert "zero" in file["skipped"][1]["reason"]
    assert "line 2" in file["skipped"][2]["reason"]

    embedding.answer = embedding.honest
    again = service.ingest(nodes, "birds")
    assert (again["status"], again["files"][0]["stored"]) == ("completed", 3)


def test_a_server_of_another_dimension_ends_the_job_with_what_to_do(
    service: Service, embedding: Embedding
) -> None:
    embedding.answer = lambda body: embeddings([[1.0] * 768] * len(body["input"]))

    ended = service.ingest([turn("a plover"), turn("a linnet")], "birds")

    assert (ended["status"], ended["error"]["code"]) == ("failed", "model_mismatch")
    assert "dimension 768, the store has 384" in ended["error"]["message"]
    assert "POIMEN_EMBEDDING_MODEL" in ended["error"]["message"]


def test_a_job_whose_server_asks_for_an_hour_is_put_off_and_holds_no_worker(
    service: Service, embedding: Embedding
) -> None:
    def limiting(body: dict[str, Any]) -> Reply:
        if any("linnet" in text for text in body["input"]):
            return reply({}, 429, Retry_After="3600")
        return embedding.honest(body)

    embedding.answer = limiting
    put_off = service.post(
        "/memory/ingest", {"format": "nodes", "project": "birds", "nodes": [turn("a linnet")]}
    ).json()["id"]

    def said() -> dict[str, Any] | None:
        job: dict[str, Any] = service.get(f"/memory/ingest/{put_off}").json()
        return job if job["error"] else None

    job = until(said)
    assert job["status"] == "queued"
    assert "3600 s" in job["error"]["message"]
    assert service.ingest([turn("a plover")], "birds")["status"] == "completed"
    with service.connect() as connection:
        (due_s,) = connection.execute(
            "SELECT extract(epoch FROM due_at - now()) FROM ingest_job WHERE id = %s", [put_off]
        ).fetchone() or (0,)
    assert 3500 < due_s <= 4000


def test_a_short_limit_is_waited_for(service: Service, embedding: Embedding) -> None:
    waited = threading.Event()

    def limiting_once(body: dict[str, Any]) -> Reply:
        if not waited.is_set():
            waited.set()
            return reply({}, 429, Retry_After="1")
        return embedding.honest(body)

    embedding.answer = limiting_once

    ended = service.ingest([turn("a linnet")], "birds")

    assert (ended["status"], ended["attempts"]) == ("completed", 1)
    assert len(embedding.requests) == 2


def test_a_query_does_not_wait_for_a_limit_that_outlasts_it(
    service: Service, embedding: Embedding
) -> None:
    stored_birds(service)
    embedding.answer = lambda body: reply({}, 429, Retry_After="3600")

    response: requests.Response = service.get(
        "/memory/query", query="in vain", project="birds", method="semantic"
    )

    assert response.json()["error"] == "embedding_service_unavailable"
    assert response.elapsed.total_seconds() < 2
