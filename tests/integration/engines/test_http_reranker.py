"""Rerank servers as they differ, and what is made of their scores."""

import json
import math
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import fakeredis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.model_stub import ModelStub, Reply, reply, tei
from workers.deadline import Deadline
from workers.engines.build import build_reranker
from workers.engines.http_reranker import _SCALES, HttpReranker, Scale, endpoint_of
from workers.errors import NotReranked
from workers.model import Candidate, Encoding, Level, Question
from workers.pipeline.rerank import rerank

KEY, TEXT = "sk-not-to-be-shown", "a text not to be shown"
QUESTION = Question("why does it fail", Encoding(np.ones(1, np.float32), None))

TEI = [{"index": 2, "score": 0.98}, {"index": 0, "score": 0.4}, {"index": 1, "score": 0.01}]
COHERE = [{"index": row["index"], "relevance_score": row["score"]} for row in TEI]


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    stub = ModelStub(lambda body: tei([0.5] * len(body["texts"])))
    yield stub
    stub.close()


def engine(stub: ModelStub, **options: Any) -> HttpReranker:
    return HttpReranker(stub.url, KEY, "some-cross-encoder", **options)


def candidates(*texts: str) -> list[Candidate]:
    return [
        Candidate(f"c{place}", Level.L0, place / 100, len(text), text=text)
        for place, text in enumerate(texts)
    ]


def scores(reranker: HttpReranker, *texts: str, within_s: float = 30.0) -> list[float | None]:
    return reranker.score(QUESTION, candidates(*texts), Deadline.after(within_s))


def order(reranker: HttpReranker, *texts: str) -> list[str]:
    found = candidates(*texts)
    ranked = rerank(QUESTION, found, reranker, len(found), Deadline.after(30), reranker.batch)
    return [one.sha256 for one in ranked.ranking]


def failure(reranker: HttpReranker, *texts: str) -> NotReranked:
    with pytest.raises(NotReranked) as caught:
        scores(reranker, *texts)
    said = str(caught.value)
    assert "; " in said, "says what to do next"
    assert KEY not in said
    assert TEXT not in said
    return caught.value


@pytest.mark.parametrize(
    "answer", [TEI, {"results": COHERE}, {"data": COHERE}, {"data": TEI}, {"id": 1, "results": TEI}]
)
def test_every_shape_of_answer_gives_the_same_order(stub: ModelStub, answer: object) -> None:
    stub.answer = lambda body: reply(answer)

    assert scores(engine(stub), "a", "b", "c") == [0.4, 0.01, 0.98]
    assert order(engine(stub), "a", "b", "c") == ["c2", "c0", "c1"]


def test_tei_is_asked_as_it_wants_to_be(stub: ModelStub) -> None:
    scores(engine(stub), "a", "b")

    (request,) = stub.requests
    assert request == {
        "path": "/rerank",
        "query": QUESTION.text,
        "texts": ["a", "b"],
        "raw_scores": False,
        "truncate": True,
    }


def test_cohere_is_asked_as_it_wants_to_be(stub: ModelStub) -> None:
    stub.answer = lambda body: reply({"results": COHERE})

    scores(engine(stub, api="cohere"), "a", "b", "c")

    (request,) = stub.requests
    assert request == {
        "path": "/v1/rerank",
        "model": "some-cross-encoder",
        "query": QUESTION.text,
        "documents": ["a", "b", "c"],
    }


@pytest.mark.parametrize(
    ("url", "tei_path", "cohere_path"),
    [
        ("http://h", "/rerank", "/v1/rerank"),
        ("http://h/", "/rerank", "/v1/rerank"),
        ("http://h/v1", "/v1/rerank", "/v1/rerank"),
        ("http://h/v2/rerank", "/v2/rerank", "/v2/rerank"),
    ],
)
def test_the_address_may_hold_a_part_of_the_path(url: str, tei_path: str, cohere_path: str) -> None:
    assert endpoint_of(url, "tei") == "http://h" + tei_path
    assert endpoint_of(url, "cohere") == "http://h" + cohere_path


def test_the_best_of_them_are_scored_and_the_rest_follow_in_their_order(stub: ModelStub) -> None:
    rows = [{"index": index, "score": score} for index, score in ((1, 0.9), (9, 0.8), (4, 0.7))]
    stub.answer = lambda body: reply(rows)

    ranked = order(engine(stub), *["text"] * 10)

    assert ranked == ["c1", "c9", "c4", "c0", "c2", "c3", "c5", "c6", "c7", "c8"]


def test_the_last_candidate_may_become_the_first(stub: ModelStub) -> None:
    stub.answer = lambda body: tei([n / 100 for n in range(len(body["texts"]))])

    assert order(engine(stub), *["text"] * 10) == [f"c{n}" for n in range(9, -1, -1)]


def test_logits_keep_their_order_and_become_scores(stub: ModelStub) -> None:
    stub.answer = lambda body: tei([7.45, -2.3, -8.1])

    found = scores(engine(stub, scale="logit"), "a", "b", "c")

    assert order(engine(stub, scale="logit"), "a", "b", "c") == ["c0", "c1", "c2"]
    assert found == pytest.approx([1 / (1 + math.exp(-x)) for x in (7.45, -2.3, -8.1)])
    assert found[0] > 0.5 > found[2]


def test_percents_become_scores(stub: ModelStub) -> None:
    stub.answer = lambda body: tei([100.0, 12.5, 0.0])

    assert scores(engine(stub, scale="percent"), "a", "b", "c") == [1.0, 0.125, 0.0]


@pytest.mark.parametrize(
    ("scale", "value"),
    [("sigmoid", 7.45), ("sigmoid", -0.1), ("percent", 100.5), ("logit", 88.0), ("logit", -88.0)],
)
def test_a_score_outside_of_its_scale_names_the_setting(
    stub: ModelStub, scale: Scale, value: float
) -> None:
    stub.answer = lambda body: tei([0.5, value])

    error = failure(engine(stub, scale=scale), "a", "b")

    assert error.reason == "reranker_unavailable"
    assert "POIMEN_RERANK_SCALE" in str(error)


@given(st.sampled_from(sorted(_SCALES)), st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_scaling_keeps_the_order_and_the_bounds(scale: Scale, shares: list[float]) -> None:
    low, high, scaled = _SCALES[scale]
    # As a model in float32 tells scores apart, over the range that models use.
    low, high = max(low, -16.0), min(high, 16.0) if scale == "logit" else high
    values = sorted({float(np.float32(low + share * (high - low))) for share in shares})

    found = [scaled(value) for value in values]

    assert all(0 <= score <= 1 for score in found)
    assert all(lower < higher for lower, higher in pairwise(found))


@pytest.mark.parametrize(
    "content",
    [
        b"null",
        b"[]",
        b"{}",
        b"<html>",
        b'{"results": {}}',
        b'{"scores": [0.1, 0.2]}',
        b"[0.1, 0.2]",
        b'[{"score": 0.1}]',
        b'[{"index": 0}]',
        b'[{"index": 0, "score": "high"}]',
        b'[{"index": 0, "score": null}]',
        b'[{"index": 0, "score": NaN}]',
        b'[{"index": 0, "score": Infinity}]',
        b'[{"index": 5, "score": 0.1}]',
        b'[{"index": -1, "score": 0.1}]',
        b'[{"index": 0, "score": 0.1}, {"index": 0, "score": 0.2}]',
    ],
)
def test_anything_but_scores_by_index_is_refused(stub: ModelStub, content: bytes) -> None:
    stub.answer = lambda body: Reply(content)

    assert failure(engine(stub), TEXT, "b").reason == "reranker_unavailable"


def limited_to(most: int, status: int) -> Any:
    def answer(body: dict[str, Any]) -> Reply:
        texts: Sequence[str] = body["texts"]
        if len(texts) > most:
            return reply({"error": "batch size"}, status)
        return tei([int(text) / 1000 for text in texts])

    return answer


@pytest.mark.parametrize("status", [413, 422])
@pytest.mark.parametrize("count", [50, 200])
def test_a_server_that_takes_fewer_texts_gets_fewer(
    stub: ModelStub, status: int, count: int
) -> None:
    stub.answer = limited_to(32, status)
    texts = [str(number) for number in range(count)]

    found = scores(engine(stub, batch=64), *texts)

    assert found == [number / 1000 for number in range(count)]


def test_texts_are_cut_before_they_are_sent(stub: ModelStub) -> None:
    def strict(body: dict[str, Any]) -> Reply:
        if any(len(text) > 2000 for text in body["texts"]):
            return reply({}, 400)
        return tei([len(text) / 5000 for text in body["texts"]])

    stub.answer = strict
    found = scores(engine(stub), "0f3a" * 12_500, *["short"] * 5)

    assert None not in found
    assert max(len(text) for request in stub.requests for text in request["texts"]) <= 2048


def test_a_long_question_leaves_room_for_the_texts(stub: ModelStub) -> None:
    question = Question("trace " * 5000, QUESTION.encoding)

    engine(stub).score(question, candidates("text " * 5000), Deadline.after(30))

    (request,) = stub.requests
    assert len(request["query"]) == 1024
    assert len(request["texts"][0]) == 1024


def test_text_that_utf8_cannot_carry_is_still_sent(stub: ModelStub) -> None:
    scores(engine(stub), "a\ud800b")

    assert stub.requests[0]["texts"] == ["a\ufffdb"]


def test_a_candidate_without_text_is_not_sent(stub: ModelStub) -> None:
    found = scores(engine(stub), "a", " ", "b")

    assert stub.requests[0]["texts"] == ["a", "b"]
    assert found == [0.5, None, 0.5]


@pytest.mark.parametrize("status", [400, 401, 404, 500, 503])
def test_a_server_that_fails_leaves_the_order_as_it_was(stub: ModelStub, status: int) -> None:
    stub.answer = lambda body: reply({}, status)
    found = candidates("a", "b", "c")

    ranked = rerank(QUESTION, found, engine(stub), 3, Deadline.after(30))

    assert [one.sha256 for one in ranked.ranking] == ["c0", "c1", "c2"]
    assert all(one.rerank_score is None for one in ranked.ranking)
    assert (ranked.reason, ranked.scored) == ("reranker_unavailable", 0)
    assert f"HTTP {status}" in (ranked.message or "")


def test_a_server_that_is_gone_leaves_the_order_as_it_was(stub: ModelStub) -> None:
    gone = engine(stub)
    stub.close()

    assert "POIMEN_RERANK_URL" in str(failure(gone, "a", "b"))
    assert order(gone, "a", "b") == ["c0", "c1"]


def test_a_failure_in_the_second_batch_takes_the_first_batch_s_scores_back(
    stub: ModelStub,
) -> None:
    def failing_later(body: dict[str, Any]) -> Reply:
        return tei([0.9]) if body["texts"] == ["b"] else reply({}, 404)

    stub.answer = failing_later
    ranked = rerank(QUESTION, candidates("b", "a"), engine(stub, batch=1), 2, Deadline.after(9), 1)

    assert [one.rerank_score for one in ranked.ranking] == [None, None]
    assert ranked.reason == "reranker_unavailable"


def test_a_server_that_allows_no_more_calls_is_a_limit(stub: ModelStub) -> None:
    stub.answer = lambda body: reply({}, 429, Retry_After="3600")

    assert failure(engine(stub), "a").reason == "rerank_limited"


def test_without_a_slot_in_time_it_is_a_limit(stub: ModelStub) -> None:
    redis = fakeredis.FakeRedis()
    one = engine(stub, concurrency=1, client=redis)
    other = threading.Thread(target=lambda: scores(one, "a"))
    with stub.held():
        other.start()
        stub.arrived.wait(30)
        with pytest.raises(NotReranked) as caught:
            scores(one, "a", within_s=0.2)
    other.join(30)

    assert caught.value.reason == "rerank_limited"
    assert "POIMEN_RERANK_CONCURRENCY" in str(caught.value)


def test_a_silent_server_is_out_of_time(stub: ModelStub) -> None:
    with stub.held():
        ranked = rerank(QUESTION, candidates("a", "b"), engine(stub), 2, Deadline.after(0.2))

    assert (ranked.reason, ranked.scored) == ("rerank_truncated", 0)
    assert [one.sha256 for one in ranked.ranking] == ["c0", "c1"]


def test_an_open_circuit_fails_at_once(stub: ModelStub) -> None:
    redis = fakeredis.FakeRedis()
    stub.answer = lambda body: Reply(b"<html>")
    for _ in range(3):
        failure(engine(stub, client=redis), "a")

    error = failure(engine(stub, client=redis), "a")

    assert error.reason == "reranker_unavailable"
    assert "left alone" in str(error)
    assert len(stub.requests) == 3


@pytest.mark.parametrize(
    ("limit", "depth"), [(1, 15), (5, 15), (6, 18), (10, 30), (16, 48), (17, 50), (50, 50)]
)
def test_three_times_what_is_shown_is_scored(limit: int, depth: int) -> None:
    built = build_reranker(100, url="http://h", model="m")

    assert (built.depth(limit), built.needs_text, built.name) == (depth, True, "m")


def test_the_setting_bounds_the_depth_and_zero_turns_it_off() -> None:
    assert build_reranker(20, url="http://h").depth(50) == 20
    assert build_reranker(0, url="http://h").depth(5) == 0
    assert build_reranker(100).depth(10) == 100


def test_the_key_is_a_bearer_token(stub: ModelStub) -> None:
    seen = []
    original = stub.RequestHandlerClass

    class Listening(original):  # type: ignore[misc,valid-type]
        def do_POST(self) -> None:
            seen.append(self.headers["Authorization"])
            super().do_POST()

    stub.RequestHandlerClass = Listening
    scores(engine(stub), "a")

    assert seen == [f"Bearer {KEY}"]
    assert KEY not in json.dumps(stub.requests)
