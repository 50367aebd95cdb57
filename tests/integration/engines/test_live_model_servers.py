"""Against real servers: POIMEN_LIVE_EMBEDDING_URL and POIMEN_LIVE_RERANK_URL name them.

Their models, and what else they need, go by the names of the settings with LIVE after POIMEN.
"""

import os
from typing import Any, cast

import numpy as np
import pytest

from workers.deadline import Deadline
from workers.engines.http_embedder import HttpEmbedder
from workers.engines.http_reranker import Api, HttpReranker, Scale
from workers.model import Candidate, Encoding, Level, Question, Refused

pytestmark = pytest.mark.live

POD = "How do I restart a failed pod?"
POD_ANSWER = "Delete the failed pod and the controller starts a new one."
CAKE = "Beat the eggs with the sugar until the cake batter is pale."


def live(name: str, default: str | None = None) -> Any:
    value = os.environ.get(f"POIMEN_LIVE_{name}", default)
    if value is None:
        pytest.fail(f"set POIMEN_LIVE_{name}, or leave these tests out with -k")
    return value


@pytest.fixture
def embedder() -> HttpEmbedder:
    return HttpEmbedder(
        live("EMBEDDING_URL"),
        os.environ.get("POIMEN_LIVE_EMBEDDING_API_KEY"),
        live("EMBEDDING_MODEL", "nomic-ai/nomic-embed-text-v2-moe"),
        int(live("EMBEDDING_DIMENSION", "768")),
    )


@pytest.fixture
def reranker() -> HttpReranker:
    return HttpReranker(
        live("RERANK_URL"),
        os.environ.get("POIMEN_LIVE_RERANK_API_KEY"),
        live("RERANK_MODEL", "BAAI/bge-reranker-base"),
        api=cast(Api, live("RERANK_API", "tei")),
        scale=cast(Scale, live("RERANK_SCALE", "sigmoid")),
    )


def test_a_live_embedding_server_finds_the_passage_that_answers(embedder: HttpEmbedder) -> None:
    question = embedder.embed_query(POD, Deadline.after(30))
    passages = embedder.embed_passages([CAKE, POD_ANSWER, "word " * 5000, *["short"] * 60])

    vectors = [one for one in passages if not isinstance(one, Refused)]
    assert len(vectors) == len(passages)
    assert question @ vectors[1] > question @ vectors[0]


def test_a_live_rerank_server_puts_the_passage_that_answers_first(reranker: HttpReranker) -> None:
    texts = [CAKE, POD_ANSWER, "word " * 5000, *[f"{CAKE} {n}" for n in range(47)]]
    found = [Candidate(f"{n}", Level.L0, 0.5, len(text), text=text) for n, text in enumerate(texts)]
    question = Question(POD, Encoding(np.ones(1, np.float32), None))

    scores = reranker.score(question, found, Deadline.after(60))

    assert all(score is not None and 0 <= score <= 1 for score in scores)
    assert max(range(len(scores)), key=lambda n: scores[n] or 0) == 1
