"""Vectors for what was stored by processes that work with another model."""

import structlog
from celery import shared_task

from workers import wiring
from workers.contracts import EMBED_MISSING
from workers.deadline import Deadline
from workers.errors import EmbeddingServiceUnavailable
from workers.reindex import fill
from workers.store.vector_backlog import START

log = structlog.get_logger(__name__)

FILLED_FOR_S = 4.0  # then jobs get their turn again


@shared_task(name=EMBED_MISSING)
def embed_missing() -> None:
    """Make the vectors that this worker's model lacks, some seconds' worth."""
    end = Deadline.after(FILLED_FOR_S)
    work = wiring.ingest()
    made, after = 0, START
    try:
        while not end.passed():
            done = fill(wiring.patient_database(), work.encoder, work.model, after)
            if not done.taken:
                break
            made, after = made + done.encoded, done.last
            if done.refused:
                log.error("nodes_without_vector", nodes=done.refused, model=work.encoder.model.name)
    except EmbeddingServiceUnavailable as error:
        log.warning("missing_vectors_put_off", reason=str(error))
    if made:
        log.info("missing_vectors_made", nodes=made)
