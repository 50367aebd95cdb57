"""Composition root of a worker process: what its tasks need, built once, on first use.

Built in the process that uses it: neither connections nor model sessions survive a fork.
"""

import contextvars
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import Any

from psycopg import Connection
from pydantic import SecretStr
from redis import Redis

from config.settings import Settings
from workers.celery_app import make_celery
from workers.clock import Average, SharedClock
from workers.dispatch import Dispatcher
from workers.engines.build import (
    build_cached_encoder,
    build_client,
    build_encoder,
    build_reranker,
    build_word_index,
    build_words,
    embedding_identity,
)
from workers.engines.query_cache import CachedEncoder
from workers.engines.search_text import SearchText
from workers.errors import QueueUnavailable, StoreUnavailable
from workers.ingest.drafts import Mask, ToolOutput
from workers.job_watch import JobWatch
from workers.jobs import Jobs, Sweep
from workers.masking import build_mask
from workers.model import ProjectName
from workers.pipeline.engines import Beside, T
from workers.ports import Encoder, LexicalIndex, Reranker
from workers.retrieval import Retrieval
from workers.store.database import Database
from workers.store.ingest_jobs import PostgresIngestJobs
from workers.store.models import use_model
from workers.store.nodes import PostgresNodes
from workers.store.projects import ProjectWeights
from workers.store.query_jobs import JobLimits, PostgresQueryJobs
from workers.store.query_runs import JobRuns, QueryRuns
from workers.store.redis import connect
from workers.store.vector_indexes import IndexedProjects, VectorIndexes
from workers.sweeper import Sweeper
from workers.tasks.lanes import Lanes
from workers.word_index import Follower

_PATIENT_S = 300.0  # for a transaction in which a model server is called
_INDEX_CALL_S = 10.0  # of one call to write to OpenSearch, while ingest waits for this process


@dataclass(frozen=True, slots=True)
class Search:
    """What searching a project takes."""

    encoder: CachedEncoder
    reranker: Reranker
    retrieval: Retrieval


@dataclass(frozen=True, slots=True)
class Ingest:
    """What working through an ingest job takes."""

    encoder: Encoder
    database: Database
    jobs: PostgresIngestJobs
    model: int
    mask: Mask
    tool_output: ToolOutput
    keeps_thinking: bool
    most_bytes: int  # of a file once it is expanded
    search_text: SearchText

    def nodes(self, connection: Connection[dict[str, Any]]) -> PostgresNodes:
        return PostgresNodes(connection, self.model, self.encoder.token_model, self.search_text)


@cache
def settings() -> Settings:
    return Settings()


def redis_url() -> str:
    url = settings().redis_url
    if url is None:
        raise QueueUnavailable("A worker needs POIMEN_REDIS_URL; `mem up` sets it for its own.")
    return url.get_secret_value()


@cache
def redis() -> Redis:
    return connect(redis_url())


@cache
def lanes() -> Lanes:
    return Lanes(settings().query_concurrency)


@cache
def clock() -> SharedClock:
    return SharedClock()


@cache
def task_length() -> Average:
    """Of searches, from when a task begins until it is done."""
    return Average()


@cache
def runs() -> QueryRuns:
    return QueryRuns(redis())


@cache
def job_runs() -> JobRuns:
    return JobRuns(redis())


@cache
def job_watch() -> JobWatch:
    return JobWatch(job_runs())


@cache
def _query_job_store() -> PostgresQueryJobs:
    limits = JobLimits(
        at_once=settings().jobs_at_once,
        open=settings().jobs_open,
        open_of_key=settings().jobs_open_of_key,
        tasks_of_key=settings().jobs_tasks_of_key,
        tasks_per_query=settings().tasks_per_query,
    )
    return PostgresQueryJobs(database(), limits)


@cache
def query_jobs() -> Jobs:
    dispatcher = Dispatcher(make_celery(redis_url()), settings().tasks_per_query)
    return Jobs(_query_job_store(), job_runs(), dispatcher)


def sweeper() -> Sweeper:
    store = _query_job_store()
    sweep = Sweep(query_jobs(), store, job_runs(), settings().job_attempts)
    return Sweeper(sweep, store)


def database_url() -> str:
    url = settings().database_url
    if url is None:
        raise StoreUnavailable("A worker needs POIMEN_DATABASE_URL; `mem up` sets it for its own.")
    return url.get_secret_value()


@cache
def database() -> Database:
    return Database(database_url(), settings().database_connections)


@cache
def patient_database() -> Database:
    """For transactions that last as long as a model server takes for some texts."""
    return Database(database_url(), 1, _PATIENT_S)


@cache
def search_text() -> SearchText:
    return SearchText(settings().search_language)


def _words() -> Callable[[ProjectName], LexicalIndex] | None:
    where = settings().opensearch()
    if where is None:
        return None
    connections = settings().database_connections  # as many search beside each other
    return build_words(**where, search_text=search_text(), connections=connections, client=_guard())


@cache
def follower() -> Follower | None:
    """What tells OpenSearch of changed nodes; None where PostgreSQL searches by words."""
    where = settings().opensearch()
    if where is None:
        return None
    index = build_word_index(**where, client=_guard(), call_s=_INDEX_CALL_S)
    return Follower(database(), index)


@cache
def jobs() -> PostgresIngestJobs:
    return PostgresIngestJobs(database())


def _embedding_options() -> dict[str, Any]:
    return {
        "url": settings().embedding_url,
        "model": settings().embedding_model,
        "dimension": settings().embedding_dimension,
        # A cross-encoder reads text; only the embedded reranker compares token vectors.
        "has_tokens": settings().rerank_url is None,
    }


@cache
def _guard() -> Redis:
    """What calls to model servers share with those of other workers."""
    return build_client(redis_url())


@cache
def _encoder() -> Encoder:
    return build_encoder(
        **_embedding_options(),
        api_key=_secret(settings().embedding_api_key),
        batch=settings().embedding_batch,
        max_tokens=settings().embedding_max_tokens,
        concurrency=settings().embedding_concurrency,
        client=_guard(),
    )


def _reranker() -> Reranker:
    return build_reranker(
        settings().rerank_depth,
        url=settings().rerank_url,
        api_key=_secret(settings().rerank_api_key),
        model=settings().rerank_model,
        api=settings().rerank_api,
        scale=settings().rerank_scale,
        batch=settings().rerank_batch,
        max_tokens=settings().rerank_max_tokens,
        concurrency=settings().rerank_concurrency,
        client=_guard(),
    )


def _secret(key: SecretStr | None) -> str | None:
    return key.get_secret_value() if key else None


def check_model() -> None:
    """Register the configured model, switch to it, or check that stored vectors were made by it.

    On a connection of its own, so that a process may still fork afterwards.

    Raises:
        ModelMismatch: stored vectors were made by another model.
        StoreUnavailable: the database does not answer.
    """
    with closing(Database(database_url(), 1)) as short_lived:
        use_model(short_lived, *embedding_identity(**_embedding_options()))


def release_jobs(pids: Sequence[int]) -> int:
    """Give back the ingest jobs of these processes; on a connection of its own, for their parent.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    with closing(Database(database_url(), 1)) as short_lived:
        return PostgresIngestJobs(short_lived).release(pids)


@cache
def search() -> Search:
    encoder = _encoder()
    cached = build_cached_encoder(
        encoder,
        redis_url=redis_url(),
        entries=settings().embedding_cache_entries,
        lifetime_s=settings().embedding_cache_s,
    )
    model = use_model(database(), encoder.model, encoder.token_model)
    return Search(
        encoder=cached,
        reranker=_reranker(),
        retrieval=Retrieval(
            database=database(),
            model=model,
            token_model=encoder.token_model,
            indexed=IndexedProjects(database(), model, time.monotonic),
            weights=ProjectWeights(database(), time.monotonic),
            exact_rows=settings().exact_rows,
            search_text=search_text(),
            beside=_beside(),
            words_of=_words(),
        ),
    )


def _beside() -> Beside:
    """Threads for words and counts of searches: no more than could be reading at once."""
    threads = ThreadPoolExecutor(settings().database_connections, thread_name_prefix="beside")

    def begin(work: Callable[[], T], /) -> "Future[T]":
        return threads.submit(contextvars.copy_context().run, work)

    return begin


@cache
def vector_indexes() -> VectorIndexes:
    """For upkeep, which has no model loaded and needs only to know which one it is."""
    model, token_model = embedding_identity(**_embedding_options())
    number = use_model(database(), model, token_model)
    return VectorIndexes(database(), number, model.dimension)


@cache
def ingest() -> Ingest:
    encoder = _encoder()
    return Ingest(
        encoder=encoder,
        database=database(),
        jobs=jobs(),
        model=use_model(database(), encoder.model, encoder.token_model),
        mask=build_mask(settings().data_dir, is_wanted=settings().ingest_redact),
        tool_output=settings().ingest_tools,
        keeps_thinking=settings().ingest_thinking,
        most_bytes=int(settings().ingest_max_mb * 1_000_000),
        search_text=search_text(),
    )
