"""When a chord's callback is sent."""

from typing import Any

import structlog
from celery.backends.base import DisabledBackend
from celery.canvas import maybe_signature
from kombu.exceptions import OperationalError

log = structlog.get_logger(__name__)


class Chords(DisabledBackend):  # type: ignore[misc]  # celery has no types
    """A result backend that keeps no results and counts no parts; it only sends the callback.

    Celery's own counts a chord's parts in Redis, right after the part's task has recorded its
    outcome there. Whoever records a query's last outcome is told so in the same step, so the task
    returns it, and there is nothing left to count.
    """

    def on_chord_part_return(self, request: Any, _state: str, result: Any, **_: Any) -> None:
        """Celery calls this after each task of a chord.

        Args:
            result: what the task returned: whether it recorded the last outcome. A part that
                expired or failed has an error here and no outcome, so its chord has no last one.
        """
        if result is not True:
            return
        try:
            maybe_signature(request.chord, app=self.app).delay([])
        except OperationalError as error:
            # Whoever waits ends the query at its deadline.
            log.error("callback_not_sent", reason=type(error).__name__)
