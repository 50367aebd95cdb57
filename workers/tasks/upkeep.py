"""What keeps the promises of a 202 when a queue forgets or a worker dies."""

import time
from datetime import datetime

import psutil
import structlog
from celery import current_app, shared_task

from workers import wiring
from workers.contracts import (
    INDEX_LARGE_PROJECTS,
    INGEST_NODES,
    INGEST_QUEUE,
    REDISPATCH_INGEST,
    UPKEEP_KEPT_S,
    UPKEEP_KEY,
)

log = structlog.get_logger(__name__)


@shared_task(name=INDEX_LARGE_PROJECTS)
def index_large_projects() -> None:
    """Build vector indexes for projects that outgrew exact recall; drop those without a project.

    One build at a time in the whole database; another worker's attempt ends at once.
    """
    indexes = wiring.vector_indexes()
    for name in indexes.drop_orphans():
        log.info("vector_index_dropped", name=name)
    for project in indexes.projects_to_index(wiring.settings().exact_rows):
        started_at = time.monotonic()
        if not indexes.build(project):
            return
        took_s = round(time.monotonic() - started_at, 1)
        log.info("vector_index_built", project=project, took_s=took_s)


@shared_task(name=REDISPATCH_INGEST)
def redispatch_ingest() -> None:
    """Take jobs from processes that have ended, and send again what no message stands for any more.

    The latter only when nothing waits in the queue: jobs that merely wait their turn need no second
    message. Running this twice at once is harmless, since a job is claimed in PostgreSQL.
    """
    redis, jobs = wiring.redis(), wiring.jobs()
    lost = jobs.requeue_lost(_has_ended)
    if lost:
        log.warning("ingest_process_lost", jobs=len(lost))
    forgotten = [] if redis.llen(INGEST_QUEUE) else jobs.forgotten()
    for job_id in dict.fromkeys((*lost, *forgotten)):
        current_app.send_task(INGEST_NODES, [str(job_id)], queue=INGEST_QUEUE, ignore_result=True)
    if forgotten:
        log.info("ingest_redispatched", jobs=len(forgotten))
    redis.set(UPKEEP_KEY, time.time(), ex=UPKEEP_KEPT_S)


def _has_ended(pid: int, worked_at: datetime) -> bool:
    """Whether a process of this host is no more, even if another one has its number now."""
    try:
        process = psutil.Process(pid)
        return (
            process.status() == psutil.STATUS_ZOMBIE
            or process.create_time() > worked_at.timestamp()
        )
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
