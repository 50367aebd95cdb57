"""Composition root of the front door, and what the command line does on the database directly."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from json import loads
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from celery import Celery
from redis import Redis

from app.admission import Seats, Tempo
from app.context_service import ContextService
from app.feedback_service import FeedbackService
from app.ingest_service import IngestService
from app.job_service import JobService
from app.readiness import (
    BACKLOG_PATIENCE_S,
    MOST_COUNTED,
    State,
    backlog_state,
    content,
    sweep_state,
    upkeep_state,
    vectors_state,
    word_index_state,
    words_state,
)
from app.record_service import RecordService
from app.service import Service
from config.settings import Settings
from workers.celery_app import make_celery
from workers.contracts import (
    CANARY,
    INGEST_QUEUE,
    JOBS_QUEUE,
    MERGE_QUEUE,
    PREFIX,
    QUERY_QUEUE,
    CanaryMessage,
    worker_key,
)
from workers.deadline import Deadline
from workers.dispatch import Dispatcher
from workers.engines.build import (
    build_encoder,
    build_word_index,
    check_opensearch,
    find_circuits,
)
from workers.errors import PoimenError, QueueUnavailable, StoreUnavailable
from workers.jobs import Jobs
from workers.lexicon import Progress, renew
from workers.masking import Mask, build_mask
from workers.model import Missing, Principal, ProjectName, StoredModel
from workers.pipeline.context import arrange
from workers.pipeline.merge import finalize, fold
from workers.reindex import Reindex, drop
from workers.store.context import PostgresContexts
from workers.store.database import Database, check_database
from workers.store.feedback import PostgresFeedback
from workers.store.ingest_jobs import PostgresIngestJobs
from workers.store.keys import PostgresKeys
from workers.store.migrations import migrate
from workers.store.models import PostgresModels
from workers.store.projects import PostgresProjects
from workers.store.query_jobs import JobLimits, PostgresQueryJobs
from workers.store.query_runs import JobRuns, QueryRuns
from workers.store.records import PostgresRecords
from workers.store.redis import check_redis, check_writes, connect, reachable, wait_for
from workers.store.served import RedisServed
from workers.store.word_backlog import count_listed
from workers.verification import Verified, verify
from workers.word_index import Follower, stop_following

if TYPE_CHECKING:
    from workers.engines.breaker import Circuit

__all__ = ["check_database", "check_redis", "migrate"]

_CANARY_LIFETIME_S = 60
_LOOK_S = 2.0
_WRITE_TIMEOUT_S = 5.0  # nobody waits longer for a 202
_REINDEX_TIMEOUT_S = 3600.0  # for a statement over every node of a large memory

FindCircuits = Callable[[Redis], "dict[str, Circuit]"]
"""The circuits of the servers that workers call: `embedder`, `reranker`, `opensearch`."""
WordIndexState = Callable[[], tuple[State, str]]


@dataclass(frozen=True, slots=True)
class FrontDoor:
    """Everything a request needs."""

    service: Service
    context_service: ContextService
    feedback_service: FeedbackService
    job_service: JobService
    ingest_service: IngestService
    record_service: RecordService
    keys: PostgresKeys
    database_url: str
    redis_url: str
    max_body_bytes: int
    max_nodes: int
    jobs: PostgresIngestJobs
    projects: PostgresProjects
    models: PostgresModels
    queries: Seats
    waits: Seats
    streams: Seats
    find_circuits: FindCircuits = lambda _: {}
    find_word_index: WordIndexState | None = None  # None: PostgreSQL searches by words


def build_front_door(settings: Settings) -> FrontDoor:
    """
    Raises:
        StoreUnavailable, QueueUnavailable: no address is configured.
    """
    if settings.database_url is None or settings.redis_url is None:
        missing = StoreUnavailable if settings.database_url is None else QueueUnavailable
        raise missing("Set POIMEN_DATABASE_URL and POIMEN_REDIS_URL, or start with `mem up`.")
    database_url = settings.database_url.get_secret_value()
    redis_url = settings.redis_url.get_secret_value()
    database = Database(database_url, settings.database_connections, _WRITE_TIMEOUT_S)
    redis = connect(redis_url)
    runs, job_runs = QueryRuns(redis), JobRuns(redis)
    jobs, projects = PostgresIngestJobs(database), PostgresProjects(database)
    dispatcher = Dispatcher(make_celery(redis_url), settings.tasks_per_query)
    served = RedisServed(redis, settings.feedback_answers)
    service = Service(
        projects=projects,
        states=runs,
        finalize=partial(finalize, runs),
        searches=dispatcher,
        expected_wait_s=Tempo(QUERY_QUEUE, partial(live_workers, redis_url)).wait_s,
        served=served,
    )
    limits = JobLimits(
        at_once=settings.jobs_at_once,
        open=settings.jobs_open,
        open_of_key=settings.jobs_open_of_key,
        tasks_of_key=settings.jobs_tasks_of_key,
        tasks_per_query=settings.tasks_per_query,
    )
    query_jobs = PostgresQueryJobs(database, limits)
    job_service = JobService(projects, query_jobs, job_runs, Jobs(query_jobs, job_runs, dispatcher))
    threads, where = settings.web_threads, settings.opensearch()

    @cache
    def mask() -> Mask:  # made for the first who needs it: its rules take time and memory
        return build_mask(settings.data_dir, is_wanted=settings.ingest_redact)

    return FrontDoor(
        service=service,
        context_service=ContextService(service.ask, PostgresContexts(database), fold, arrange),
        feedback_service=FeedbackService(
            projects,
            served,
            query_jobs,
            PostgresFeedback(database),
            masked=lambda text: mask()(text)[0],
        ),
        job_service=job_service,
        ingest_service=IngestService(jobs, dispatcher.ingest),
        record_service=RecordService(projects, PostgresRecords(database)),
        # An eighth is left for what takes no time.
        queries=Seats(max(1, threads // 2)),
        waits=Seats(max(1, threads // 4)),
        streams=Seats(max(1, threads // 8)),
        keys=PostgresKeys(database),
        database_url=database_url,
        redis_url=redis_url,
        max_body_bytes=int(settings.ingest_max_mb * 1_000_000),
        jobs=jobs,
        projects=projects,
        models=PostgresModels(database, _LOOK_S),
        max_nodes=settings.ingest_max_nodes,
        find_circuits=partial(
            find_circuits,
            embedding_url=settings.embedding_url,
            rerank_url=settings.rerank_url,
            rerank_api=settings.rerank_api,
            opensearch_url=where["url"] if where else None,
        ),
        find_word_index=partial(_word_index_state, where, database) if where else None,
    )


def check_dependencies(
    front: FrontDoor,
) -> tuple[dict[str, tuple[State, str]], list[dict[str, Any]]]:
    """Each dependency's name -> its state, and its version or what is wrong; the live workers.

    Degraded: questions are answered, and worse or later than they might be.
    """
    states: dict[str, tuple[State, str]] = {}
    for name, check, url in (
        ("database", check_database, front.database_url),
        ("redis", _check_redis_takes_writes, front.redis_url),
    ):
        try:
            states[name] = ("ok", check(url))
        except PoimenError as error:
            states[name] = ("failed", str(error))
    has_redis = states["redis"][0] == "ok"
    workers = live_workers(front.redis_url) if has_redis else []
    for queue in (QUERY_QUEUE, JOBS_QUEUE, MERGE_QUEUE, INGEST_QUEUE):
        count = sum(queue in worker["queues"] for worker in workers)
        said = f"{count} live" if count else "no live worker; start one: mem up, or docs/running.md"
        states[f"{queue}_worker"] = ("ok" if count else "failed", said)
    skewed = [w["name"] for w in workers if abs(w["skew_ms"]) > 250]
    said = f"clocks differ by over 250 ms: {', '.join(skewed)}" if skewed else "clocks agree"
    states["clocks"] = ("degraded" if skewed else "ok", said)
    if has_redis:
        states["upkeep"] = upkeep_state(workers, datetime.now(UTC))
        states["sweep"] = sweep_state(workers, datetime.now(UTC))
    if states["database"][0] == "ok":
        states["memory"] = _content_state(front.projects)
        states["ingest_backlog"] = _backlog_state(front.jobs)
        states["vectors"] = _vectors_state(front.models, workers)
        states["words"] = _words_state(front.projects)
    if has_redis:
        states |= _circuits(front)
    # What an open circuit says is older, and says more.
    if front.find_word_index and states.get("opensearch", ("ok",))[0] == "ok":
        states["opensearch"] = front.find_word_index()
    return states, workers


def _check_redis_takes_writes(url: str) -> str:
    version = check_redis(url)
    check_writes(url)
    return version


def _content_state(projects: PostgresProjects) -> tuple[State, str]:
    try:
        return "ok", content(*projects.count_content(Deadline.after(_LOOK_S)))
    except PoimenError as error:
        return "degraded", f"not known: {error}"


def tell_content(database_url: str) -> str:
    """How many projects and nodes a database holds."""
    with _opened(database_url) as database:
        return content(*PostgresProjects(database).count_content(Deadline.after(_LOOK_S)))


def _backlog_state(jobs: PostgresIngestJobs) -> tuple[State, str]:
    try:
        backlog = jobs.backlog(BACKLOG_PATIENCE_S, Deadline.after(_LOOK_S))
    except PoimenError as error:
        return "degraded", f"not known: {error}"
    return backlog_state(backlog.jobs, backlog.oldest_s)


def _vectors_state(models: PostgresModels, workers: list[dict[str, Any]]) -> tuple[State, str]:
    try:
        known = models.list_models()
        wanted = [one.number for one in known if one.is_wanted]
        missing = {number: models.count_missing(number, MOST_COUNTED) for number in wanted}
    except PoimenError as error:
        return "degraded", f"not known: {error}"
    return vectors_state(known, missing, workers)


def _words_state(projects: PostgresProjects) -> tuple[State, str]:
    try:
        return words_state(projects.count_wordless(Deadline.after(_LOOK_S)))
    except PoimenError as error:
        return "degraded", f"not known: {error}"


def _word_index_state(where: dict[str, Any], database: Database) -> tuple[State, str]:
    """Without it, questions are answered by meaning alone."""
    try:
        version, is_read = check_opensearch(**where, seconds=_LOOK_S)
        waiting = count_listed(database, Deadline.after(_LOOK_S))
    except PoimenError as error:
        return "degraded", str(error)
    return word_index_state(version, is_read, waiting)


def _circuits(front: FrontDoor) -> dict[str, tuple[State, str]]:
    with reachable(), connect(front.redis_url) as client:
        circuits = front.find_circuits(client)
    return {name: circuit_state(name, circuit) for name, circuit in circuits.items()}


def circuit_state(name: str, circuit: "Circuit") -> tuple[State, str]:
    """Without an embedder no question is understood; without a reranker the order is worse.

    One that may be tried again is not called failed: a service that gets no questions because it
    is not ready would never find out that it is.
    """
    if circuit.since is None:
        return "ok", "circuit closed"
    since = f"{circuit.since:%Y-%m-%dT%H:%M:%SZ}"
    if circuit.state == "half_open":
        said = f"circuit half open, opened at {since}; the next call tries it"
        return "degraded", f"{said}. {circuit.reason}"
    said = f"circuit open since {since}, tried again in {ceil(circuit.retry_after_s)} s"
    return "failed" if name == "embedder" else "degraded", f"{said}. {circuit.reason}"


def live_workers(redis_url: str) -> list[dict[str, Any]]:
    """What each worker with a fresh heartbeat says of itself: name, pid, host, queues, skew_ms.

    Raises:
        QueueUnavailable: Redis does not answer.
    """
    with reachable(), connect(redis_url) as client:
        names = list(client.scan_iter(worker_key("*"), count=1000))
        values = client.mget(names) if names else []
    return sorted((loads(value) for value in values if value), key=lambda said: said["name"])


def canary(redis_url: str, queue: str, timeout_s: float) -> bool:
    """Whether a worker of this queue took a task and did it within the timeout.

    Raises:
        QueueUnavailable: Redis does not answer.
    """
    celery: Celery = make_celery(redis_url)
    message: CanaryMessage = {
        "key": f"{PREFIX}:canary:{uuid4().hex}",
        "lifetime_s": _CANARY_LIFETIME_S,
    }
    with reachable(), connect(redis_url) as client:
        celery.send_task(CANARY, [message], queue=queue, expires=timeout_s, ignore_result=True)
        return wait_for(client, message["key"], timeout_s) is not None


def ensure_local_key(database_url: str, key_file: Path) -> None:
    """Leave a key in `key_file` that this database knows and that may do everything."""
    with _keys(database_url) as keys:
        if key_file.exists():
            known = keys.find_principal(key_file.read_text().strip(), Deadline.after(10.0))
            if known is not None and known.can_write and known.projects is None:
                return
        _, key = keys.create_key("local", None, can_write=True)
    draft = key_file.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(key + "\n")
    draft.rename(key_file)


def create_key(
    database_url: str, name: str, projects: list[str] | None, can_write: bool
) -> tuple[str, str]:
    """A new key: its id, and the key itself."""
    with _keys(database_url) as keys:
        return keys.create_key(name, projects, can_write)


def list_keys(database_url: str) -> list[dict[str, Any]]:
    """id, name, can_write, projects, created_at and revoked_at of every key."""
    with _keys(database_url) as keys:
        return keys.list_keys()


def revoke_key(database_url: str, key_id: str) -> bool:
    """Whether there was such a key to revoke."""
    with _keys(database_url) as keys:
        return keys.revoke_key(key_id)


def known_projects(database_url: str) -> set[ProjectName]:
    """The name of every project."""
    everyone = Principal("", "mem", can_write=False, projects=None)
    with _opened(database_url) as database:
        return set(PostgresProjects(database).find_projects(everyone, (), Deadline.after(10.0)))


def reindex(
    database_url: str,
    settings: Settings,
    *,
    url: str | None,
    model: str,
    dimension: int,
    told: Callable[[Missing], None],
    troubled: Callable[[str], None],
) -> tuple[StoredModel, Missing, int]:
    """Make vectors of another model: which it is now, what it lacks, how many were made here.

    url: of its server; None: the embedded model. told: how far it is. troubled: why it waits.

    Raises:
        CannotReindex: the memory has no vectors, or the model was given up meanwhile.
        EmbeddingServiceUnavailable, ModelMismatch: the server fails, or its vectors do not fit.
    """
    key = settings.embedding_api_key
    encoder = build_encoder(
        url=url,
        api_key=key.get_secret_value() if key else None,
        model=model,
        dimension=dimension,
        has_tokens=settings.rerank_url is None,
        batch=settings.embedding_batch,
        max_tokens=settings.embedding_max_tokens,
    )
    encoder.warm_up()  # a mistake in an address or a name shows here, before anything is stored
    with _opened(database_url, _REINDEX_TIMEOUT_S) as database:
        work = Reindex(database, encoder, settings.exact_rows, told, troubled)
        target = work.run()
        missing = PostgresModels(database).count_missing(target.number)
        return target, missing, work.encoded


def renew_terms(
    database_url: str,
    settings: Settings,
    project: ProjectName | None,
    told: Callable[[Progress], None],
    *,
    is_all: bool,
) -> int:
    """Analyse nodes for lexical search, those that were analysed otherwise or all; how many.

    told: how far it is.
    """
    with _opened(database_url, _REINDEX_TIMEOUT_S) as database:
        return renew(database, settings.search_language, project, told, is_all=is_all)


def verify_memory(
    database_url: str,
    project: ProjectName | None,
    most_findings: int,
    told: Callable[[int, int], None],
) -> Verified:
    """Look at every name, edge and citation; told: how many of how many nodes are done."""
    with _opened(database_url, _REINDEX_TIMEOUT_S) as database:
        return verify(database, project, most_findings, told)


def renew_word_index(
    database_url: str,
    settings: Settings,
    project: ProjectName | None,
    told: Callable[[Progress], None],
    troubled: Callable[[str], None],
) -> int | None:
    """Write nodes anew to OpenSearch; how many. None: PostgreSQL searches by words.

    told: how far it is. troubled: why it waits.

    Raises:
        LexicalEngineUnavailable, DeadlineExceeded: OpenSearch does not take them.
    """
    with _opened(database_url, _REINDEX_TIMEOUT_S) as database:
        where = settings.opensearch()
        if where is not None:
            return Follower(database, build_word_index(**where)).rebuild(project, told, troubled)
        if project is None:
            stop_following(database)
        return None


def find_opensearch(settings: Settings) -> str | None:
    """The version of OpenSearch; None: PostgreSQL searches by words.

    Raises:
        LexicalEngineUnavailable, DeadlineExceeded: it does not answer, or is too old.
    """
    where = settings.opensearch()
    return check_opensearch(**where, seconds=_LOOK_S)[0] if where else None


def list_refused(database_url: str, number: int, limit: int) -> list[dict[str, Any]]:
    """project, sha256 and reason of nodes that a model makes no vector of."""
    with _opened(database_url) as database:
        return PostgresModels(database).list_refused(number, limit)


def list_models(database_url: str) -> tuple[list[StoredModel], list[StoredModel]]:
    """The models that the memory knows; and those no longer wanted that have vectors left."""
    with _opened(database_url) as database:
        models = PostgresModels(database)
        return models.list_models(), models.to_drop()


def give_up_model(database_url: str, number: int) -> None:
    """No vectors are made for it any more; those there are can be dropped."""
    with _opened(database_url) as database:
        PostgresModels(database).give_up(number)


def drop_model(database_url: str, model: StoredModel, told: Callable[[int], None]) -> int:
    """Remove the vectors, token vectors and indexes of one that is not wanted; how many vectors.

    told: how many are gone, now and then.
    """
    with _opened(database_url, _REINDEX_TIMEOUT_S) as database:
        return drop(database, model, told)


@contextmanager
def _keys(database_url: str) -> Iterator[PostgresKeys]:
    with _opened(database_url) as database:
        yield PostgresKeys(database)


@contextmanager
def _opened(database_url: str, write_timeout_s: float = 60.0) -> Iterator[Database]:
    database = Database(database_url, 1, write_timeout_s)
    try:
        yield database
    finally:
        database.close()


def check_models() -> list[tuple[str, str, Path]]:
    """Name, sha256 and path of each embedded model file.

    Raises:
        ModelMismatch: a file is missing, or not the pinned one.
    """
    from workers.engines.build import embedded_files

    return embedded_files()
