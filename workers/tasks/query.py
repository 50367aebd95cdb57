"""The tasks of a query. Thin: unwrap a message, call the pipeline, record what came of it."""

import os
import socket
import time
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import structlog
from celery import shared_task

from workers import wiring
from workers.contracts import (
    CANARY,
    MERGE_RESULTS,
    SEARCH_PROJECT,
    CanaryMessage,
    SearchMessage,
)
from workers.deadline import Deadline
from workers.errors import InternalError, PoimenError, QueueUnavailable
from workers.model import Encoding, Level, Outcome, ProjectName, Query, Status
from workers.pipeline.answer import answer
from workers.pipeline.merge import finalize
from workers.store.query_runs import Recorded

log = structlog.get_logger(__name__)


@shared_task(name=SEARCH_PROJECT, bind=True, acks_late=True)
def search_project(task: Any, message: SearchMessage) -> None:
    """Search the projects of a message, nearly always one, and record each outcome at once.

    Never raises: that would end the whole chord. A query of a single project is also finalized
    here; a federated one is finalized by the chord's callback.
    """
    query = Query(
        text=message["text"],
        levels=tuple(Level(level) for level in message["levels"]),
        limit=message["limit"],
        is_explained=message["is_explained"],
    )
    deadline = Deadline.at(message["deadline_at"])
    task_id = task.request.id  # read here: a lane's thread has no current request

    def search(project: ProjectName, until: Deadline) -> bool:
        started_at = time.time()
        found = _search(query, project, until, deadline)
        if found.status is Status.TIMED_OUT and until is not deadline and not deadline.passed():
            return False  # it gets the rest of the time once the others have had theirs
        outcome = replace(
            found,
            task_id=task_id,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=datetime.fromtimestamp(started_at, UTC),
            took_ms=(time.time() - started_at) * 1000,
            queue_ms=max(0.0, started_at - message["sent_at"]) * 1000,
        )
        _record(message["query_id"], outcome)
        return True

    wiring.lanes().run(message["projects"], search, deadline)
    if not message["is_federated"]:
        try:
            finalize(wiring.runs(), message["query_id"], "task")
        except QueueUnavailable as error:
            log.error("finalize_failed", reason=str(error))


def _record(query_id: str, outcome: Outcome) -> None:
    try:
        recorded = wiring.runs().record(query_id, outcome)
    except QueueUnavailable as error:
        # Nobody can be told; whoever waits ends the query at its deadline.
        log.error("outcome_lost", project=outcome.project, reason=str(error))
        return
    if recorded is Recorded.TOO_LATE:
        log.warning("late_outcome_dropped", project=outcome.project)


def _search(query: Query, project: ProjectName, until: Deadline, deadline: Deadline) -> Outcome:
    try:
        search = wiring.search()

        def encode(text: str, _until: Deadline) -> tuple[Encoding, str]:
            # The encoding is the whole query's, so it has the query's time and not a project's.
            return search.encoder.encode_query_with_origin(text, deadline)

        return answer(
            query,
            project,
            encode,
            search.nodes_of(project),
            search.reranker,
            search.reranker.depth(query.limit),
            until,
        )
    except PoimenError as error:  # this worker cannot search at all
        return Outcome(project, Status.FAILED, reason=error.code, message=str(error))
    except Exception as error:  # noqa: BLE001  # a fault of one project must not end the chord
        # The exception's text may quote the question; its type and place may not.
        place = traceback.format_tb(error.__traceback__)[-3:]
        log.error("search_failed", project=project, error=type(error).__name__, place=place)
        said = f"a fault of this service ({type(error).__name__}); its log says where"
        return Outcome(project, Status.FAILED, reason=InternalError.code, message=said)


@shared_task(name=MERGE_RESULTS, acks_late=True)
def merge_results(_parts: list[None], query_id: str) -> None:
    """The chord's callback: every project has answered, merge them."""
    finalize(wiring.runs(), query_id, "callback")


@shared_task(name=CANARY)
def canary(message: CanaryMessage) -> None:
    """Show that this queue is worked on."""
    with wiring.redis().pipeline(transaction=True) as pipe:
        pipe.lpush(message["key"], os.getpid())
        pipe.expire(message["key"], message["lifetime_s"])
        pipe.execute()
