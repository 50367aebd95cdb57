"""Terms of nodes: finding those that are missing, and telling an index outside of them."""

import structlog
from celery import shared_task

from workers import wiring
from workers.contracts import ANALYSE_MISSING, INDEX_WORDS
from workers.deadline import Deadline
from workers.errors import DeadlineExceeded, LexicalEngineUnavailable
from workers.lexicon import fill

log = structlog.get_logger(__name__)

FILLED_FOR_S = 4.0  # then jobs get their turn again


@shared_task(name=ANALYSE_MISSING)
def analyse_missing() -> None:
    """Analyse the nodes that lexical search does not know yet, some seconds' worth.

    They were stored by processes that know of no terms, or were retitled.
    """
    count = fill(wiring.database(), wiring.search_text(), Deadline.after(FILLED_FOR_S))
    if count:
        log.info("missing_words_analysed", nodes=count)


@shared_task(name=INDEX_WORDS)
def index_words() -> None:
    """Tell the index outside, if there is one, of the nodes that changed, some seconds' worth."""
    follower = wiring.follower()
    if follower is None:
        return
    try:
        count = follower.follow(Deadline.after(FILLED_FOR_S), _tell_refused)
    except (DeadlineExceeded, LexicalEngineUnavailable) as error:  # the list is there next time
        log.warning("words_not_indexed", reason=str(error))
        return
    if count:
        log.info("words_indexed", nodes=count)


def _tell_refused(reason: str) -> None:
    log.error("nodes_not_indexed", reason=reason)
