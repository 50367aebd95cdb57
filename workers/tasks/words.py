"""Terms for what was stored by processes that know of none, and for nodes that were retitled."""

import structlog
from celery import shared_task

from workers import wiring
from workers.contracts import ANALYSE_MISSING
from workers.deadline import Deadline
from workers.lexicon import fill

log = structlog.get_logger(__name__)

FILLED_FOR_S = 4.0  # then jobs get their turn again


@shared_task(name=ANALYSE_MISSING)
def analyse_missing() -> None:
    """Analyse the nodes that lexical search does not know yet, some seconds' worth."""
    count = fill(wiring.database(), wiring.search_text(), Deadline.after(FILLED_FOR_S))
    if count:
        log.info("missing_words_analysed", nodes=count)
