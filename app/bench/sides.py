"""The two sides of a comparison: the service over HTTP, and the same work by direct calls."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import psycopg

from app.bench.errors import BenchError
from app.bench.scratch import client_of
from app.client import Client
from app.local.stack import StackInfo
from config.settings import Settings
from workers.deadline import Deadline
from workers.engines.build import build_embedded_encoder, build_reranker
from workers.engines.search_text import SearchText
from workers.model import Encoding, Frozen, Outcome, Query, Status
from workers.pipeline.answer import answer
from workers.pipeline.engines import T
from workers.pipeline.merge import merge_outcomes
from workers.ports import Encoder
from workers.retrieval import Retrieval
from workers.store.database import Database
from workers.store.models import use_model
from workers.store.projects import ProjectWeights
from workers.store.vector_indexes import IndexedProjects

TIMEOUT_S = 30
CONNECTIONS = 8
STAGES = ("queue_ms", "embed_ms", "recall_ms", "rerank_ms", "walk_ms", "merge_ms")

Stages = Mapping[str, float]


class Product:
    """The whole service, asked over HTTP by one client that keeps its connection."""

    def __init__(self, stack: StackInfo) -> None:
        self._stack = stack
        self._client = client_of(stack)

    def another(self) -> "Product":
        """The same service for another thread."""
        return Product(self._stack)

    @property
    def client(self) -> Client:
        return self._client

    def ask(self, question: str, projects: Sequence[str]) -> Stages:
        """One question that every project must answer; what the service says of its stages.

        Raises:
            BenchError: a project did not answer, or not in full.
        """
        body = self._client.query(question, projects=projects, timeout_seconds=TIMEOUT_S)
        if body["degraded"] or not body["results"]:
            raise BenchError(f"The service did not answer in full: {body['notes']}")
        return _stages(body)


def _stages(body: Mapping[str, Any]) -> Stages:
    said = {name: body["metrics"].get(name) for name in STAGES}
    said["latency_ms"] = body["latency_ms"]
    return {name: float(value) for name, value in said.items() if value is not None}


class Direct:
    """The least that an answer takes: one process, no queue, one embedding, projects in sequence.

    No encoding is remembered, and nothing is said over HTTP.
    """

    def __init__(self, database_url: str, settings: Settings) -> None:
        self._url = database_url
        self._database = Database(database_url, CONNECTIONS)
        self._encoder = build_embedded_encoder()
        self._reranker = build_reranker(settings.rerank_depth)
        self._retrieval = retrieval_of(self._database, self._encoder, settings)

    def close(self) -> None:
        self._database.close()

    def ask(self, question: str, projects: Sequence[str]) -> Stages:
        query = Query(question)
        encoding = self._encoder.encode_query(question, Deadline.after(TIMEOUT_S))
        depth = self._reranker.depth(query.limit)
        outcomes = {project: self._search(query, encoding, project, depth) for project in projects}
        frozen = Frozen(tuple(projects), query.limit, "bench", outcomes)
        merged = merge_outcomes("bench", frozen)
        if merged.count(Status.SUCCESSFUL) != len(projects):
            raise BenchError("A project did not answer the direct call in full.")
        return {}

    def rerank_ms(self, question: str, project: str, depth: int) -> float:
        """What reranking adds to one answer: reading the prepared tokens, and comparing them."""
        query = Query(question, limit=depth // 10)  # recall looks for ten times the limit
        encoding = self._encoder.encode_query(question, Deadline.after(TIMEOUT_S))
        plain, reranked = (
            sum(self._search(query, encoding, project, how_many).stages_ms.values())
            for how_many in (0, depth)
        )
        return reranked - plain

    def sessions(self) -> frozenset[int]:
        """The process ids of this side's database sessions, warmed up to their full number."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'poimen-%%-' || %s",
                [str(os.getpid())],
            ).fetchall()
        return frozenset(pid for (pid,) in rows)

    def _search(self, query: Query, encoding: Encoding, project: str, depth: int) -> Outcome:
        engines = self._retrieval.engines_of(
            project, lambda _text, _deadline: (encoding, "given"), self._reranker, depth
        )
        return answer(query, project, engines, Deadline.after(TIMEOUT_S))


def retrieval_of(database: Database, encoder: Encoder, settings: Settings) -> Retrieval:
    """What workers with these settings search with; here nothing goes on beside something else."""
    model = use_model(database, encoder.model, encoder.token_model)
    return Retrieval(
        database=database,
        model=model,
        token_model=encoder.token_model,
        indexed=IndexedProjects(database, model, time.monotonic),
        weights=ProjectWeights(database, time.monotonic),
        exact_rows=settings.exact_rows,
        search_text=SearchText(settings.search_language),
        beside=at_once,
    )


def at_once(work: Callable[[], T], /) -> "Future[T]":
    """In sequence."""
    done: Future[T] = Future()
    done.set_result(work())
    return done
