"""What keeps the promises of a 202 when a queue forgets or a worker dies."""

import structlog
from celery import current_app, shared_task

from workers import wiring
from workers.contracts import INGEST_NODES, INGEST_QUEUE, REDISPATCH_INGEST

log = structlog.get_logger(__name__)


@shared_task(name=REDISPATCH_INGEST)
def redispatch_ingest() -> None:
    """Send accepted ingest work again that no message stands for any more.

    Only when nothing waits in the queue: jobs that merely wait their turn need no second message.
    Running this twice at once is harmless, since a job is claimed in PostgreSQL.
    """
    if wiring.redis().llen(INGEST_QUEUE):
        return
    forgotten = wiring.jobs().forgotten()
    for job_id in forgotten:
        current_app.send_task(INGEST_NODES, [str(job_id)], queue=INGEST_QUEUE, ignore_result=True)
    if forgotten:
        log.info("ingest_redispatched", jobs=len(forgotten))
