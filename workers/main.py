"""The entry point of worker processes: `celery -A workers.main worker -Q query`."""

from workers.engines.threads import limit_blas_threads

limit_blas_threads()  # before anything below imports numpy

import json  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import time  # noqa: E402
from datetime import UTC, datetime  # noqa: E402
from typing import Any  # noqa: E402

import structlog  # noqa: E402
from celery import signals  # noqa: E402
from redis.exceptions import RedisError  # noqa: E402

from config.logs import set_up_logging  # noqa: E402
from workers import wiring  # noqa: E402
from workers.celery_app import make_celery  # noqa: E402
from workers.contracts import (  # noqa: E402
    INGEST_QUEUE,
    JOBS_QUEUE,
    MERGE_QUEUE,
    QUERY_QUEUE,
    UPKEEP_QUEUE,
    worker_key,
)
from workers.errors import EmbeddingServiceUnavailable, PoimenError  # noqa: E402
from workers.ports import Encoder  # noqa: E402
from workers.timetable import LOOK_S, ReleaseJobs, Timetable, end_hung_processes  # noqa: E402

log = structlog.get_logger(__name__)

HEARTBEAT_S = 5.0
SKEW_WARNING_MS = 250.0
NICENESS = 5  # of a worker for jobs: whoever waits at a screen comes first

celery = make_celery(wiring.redis_url())
celery.steps["worker"].add(ReleaseJobs)


@signals.setup_logging.connect
def _set_up_logging(**_: Any) -> None:
    set_up_logging(wiring.settings().log_level)


@signals.celeryd_after_setup.connect
def _load_models(instance: Any, **_: Any) -> None:
    """Load and warm what the queues of this worker need, before it takes a task.

    A forking pool loads in its children instead, since a model session does not survive a fork; its
    parent only checks that the children will be able to. What cannot work ends here, with the
    reason in the log: Celery would swallow an exception and start a worker that fails every task.
    """
    queues = instance.app.amqp.queues.consume_from
    if QUERY_QUEUE not in queues and JOBS_QUEUE in queues:
        os.nice(NICENESS)
    try:
        if queues.keys() & {QUERY_QUEUE, JOBS_QUEUE}:
            _warm_up(wiring.search().encoder)
        if INGEST_QUEUE in queues:
            wiring.check_model()
    except PoimenError as error:
        log.critical("worker_cannot_start", error=error.code, reason=str(error))
        raise SystemExit(1) from error


@signals.worker_process_init.connect
def _load_models_in_child(**_: Any) -> None:
    _warm_up(wiring.ingest().encoder)


def _warm_up(encoder: Encoder) -> None:
    """A model server that is down now may be up when it is needed: that ends no worker."""
    try:
        encoder.warm_up()
    except EmbeddingServiceUnavailable as error:
        log.warning("embedding_server_not_ready", reason=str(error))


@signals.worker_ready.connect
def _register(sender: Any, **_: Any) -> None:
    """Say that this worker is there, and go on saying so from its own event loop.

    From the loop and not from a thread: a worker whose loop hangs then disappears from readiness.
    """
    says: dict[str, Any] = {
        "name": sender.hostname,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "queues": sorted(sender.app.amqp.queues.consume_from),
        "slots": sender.controller.concurrency,
        "started_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    if {QUERY_QUEUE, JOBS_QUEUE} & set(says["queues"]):
        search = wiring.search()
        says |= {"embedder": search.encoder.model.name, "reranker": search.reranker.name}
    if JOBS_QUEUE in says["queues"]:
        wiring.job_watch().start()
    sweeper = wiring.sweeper() if MERGE_QUEUE in says["queues"] else None
    if sweeper:
        sweeper.start()
    timetable = Timetable(sender) if UPKEEP_QUEUE in says["queues"] else None
    if INGEST_QUEUE in says["queues"]:
        stall_s = wiring.settings().ingest_stall_s
        sender.timer.call_repeatedly(LOOK_S, end_hung_processes, (stall_s,))

    def beat() -> None:
        try:
            upkeep = timetable.says() if timetable else {}
            sweep = sweeper.says() if sweeper else {}
            now = {"skew_ms": _clock_skew_ms(), "task_s": wiring.task_length().average_s}
            value = json.dumps(says | upkeep | sweep | now)
            wiring.redis().set(worker_key(sender.hostname), value, ex=int(3 * HEARTBEAT_S))
        except RedisError as error:
            log.warning("heartbeat_failed", error=type(error).__name__)

    beat()
    sender.timer.call_repeatedly(HEARTBEAT_S, beat)


@signals.worker_shutdown.connect
def _sign_off(sender: Any, **_: Any) -> None:
    wiring.redis().delete(worker_key(sender.hostname))


def _clock_skew_ms() -> float:
    """How far this host's clock is certainly ahead of Redis's, which messages are told in."""
    before = time.time()
    seconds, microseconds = wiring.redis().time()
    skew = wiring.clock().learn(before, seconds + microseconds / 1e6) * 1000
    if abs(skew) > SKEW_WARNING_MS:
        log.warning("clock_skew", skew_ms=round(skew, 1), mend="synchronise this host's clock")
    return round(skew, 1) + 0.0  # adding 0 makes -0.0 a plain 0
