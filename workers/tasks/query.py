"""The tasks of a query. Thin: unwrap a message, call the pipeline, record what came of it."""

import os
import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
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
    load_query,
)
from workers.deadline import Cut, Deadline
from workers.errors import InternalError, PoimenError, QueueUnavailable, StoreUnavailable
from workers.model import Encoding, Outcome, ProjectName, Query, Status
from workers.pipeline.answer import answer
from workers.pipeline.merge import finalize
from workers.store.query_runs import Recorded

log = structlog.get_logger(__name__)

RECORD_PAUSE_S = 0.2
STORE_PAUSE_S = 0.5


@shared_task(name=SEARCH_PROJECT, bind=True, acks_late=True)
def search_project(task: Any, message: SearchMessage) -> bool:
    """Search the projects of a message, nearly always one, and record each outcome at once.

    Never raises: that would end the whole chord. A query of a single project is also finalized
    here; a federated one is finalized by the chord's callback.

    Returns:
        Whether this recorded the query's last outcome; the chord's callback is sent then.
    """
    clock = wiring.clock()
    if clock.now() >= message["deadline_at"]:
        return False  # whoever waited has ended the query
    query = load_query(message["query"])
    task_id = task.request.id  # read here: a lane's thread has no current request
    recorded: set[Recorded | None] = set()

    def search(project: ProjectName, until: Deadline) -> bool:
        started_at = clock.now()
        found = _search(query, project, until, deadline)
        # A job that has the time waits for a database that is away, without which it cannot end.
        while message["is_job"] and found.reason == StoreUnavailable.code and not until.passed():
            time.sleep(min(STORE_PAUSE_S, until.remaining()))
            found = _search(query, project, until, deadline)
        if found.status is Status.TIMED_OUT and until is not deadline and not deadline.passed():
            return False  # it gets the rest of the time once the others have had theirs
        outcome = replace(
            found,
            task_id=task_id,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=datetime.fromtimestamp(started_at, UTC),
            took_ms=max(0.0, clock.now() - started_at) * 1000,
            queue_ms=max(0.0, started_at - message["sent_at"]) * 1000,
        )
        recorded.add(_record(message, outcome, deadline))
        return True

    began_at = time.monotonic()
    with _still_wanted(message) as (projects, cut):
        deadline = Deadline.at(message["deadline_at"], clock.now, cut=cut)
        wiring.lanes().run(projects, search, deadline)
    wiring.task_length().add(time.monotonic() - began_at)
    if not message["is_federated"]:
        try:
            _end(message["query_id"], message["is_job"], "task")
        except PoimenError as error:
            log.error("finalize_failed", reason=str(error))
    return Recorded.COMPLETED in recorded


@contextmanager
def _still_wanted(message: SearchMessage) -> Iterator[tuple[list[ProjectName], Cut | None]]:
    """The projects of a message that nobody has searched yet, and how a job ends early."""
    if not message["is_job"]:
        yield message["projects"], None
        return
    watch = wiring.job_watch()
    with watch.over(message["query_id"]) as cut:
        try:
            projects = wiring.job_runs().begin(
                message["query_id"], message["projects"], watch.worker
            )
        except QueueUnavailable as error:  # its outcome may yet be wanted
            log.warning("job_begin_not_told", reason=str(error))
            projects = message["projects"]
        yield projects, cut


def _end(query_id: str, is_job: bool, by: str) -> None:
    if is_job:
        wiring.query_jobs().end_complete(query_id, by)
    else:
        finalize(wiring.runs(), query_id, by)


def _record(message: SearchMessage, outcome: Outcome, deadline: Deadline) -> Recorded | None:
    """Tell what was found; a Redis that is away for a moment costs no outcome."""
    runs = wiring.job_runs() if message["is_job"] else wiring.runs()
    while True:
        try:
            recorded = runs.record(message["query_id"], outcome)
            break
        except QueueUnavailable as error:
            if deadline.passed():
                # Nobody can be told; whoever waits ends the query at its deadline.
                log.error("outcome_lost", project=outcome.project, reason=str(error))
                return None
            time.sleep(min(RECORD_PAUSE_S, deadline.remaining()))
    if recorded is Recorded.TOO_LATE:
        log.warning("late_outcome_dropped", project=outcome.project)
    return recorded


def _search(query: Query, project: ProjectName, until: Deadline, deadline: Deadline) -> Outcome:
    try:
        search = wiring.search()

        def encode(text: str, _until: Deadline) -> tuple[Encoding, str]:
            # The encoding is the whole query's, so it has the query's time and not a project's.
            return search.encoder.encode_query_with_origin(text, deadline)

        engines = search.retrieval.engines_of(
            project, encode, search.reranker, search.reranker.depth(query.limit)
        )
        found = answer(query, project, engines, until)
        return replace(found, embedder=search.encoder.model.name)
    except PoimenError as error:  # this worker cannot search at all
        return Outcome(project, Status.FAILED, reason=error.code, message=str(error))
    except Exception as error:  # noqa: BLE001  # a fault of one project must not end the chord
        # The exception's text may quote the question; its type and place may not.
        place = traceback.format_tb(error.__traceback__)[-3:]
        log.error("search_failed", project=project, error=type(error).__name__, place=place)
        said = f"a fault of this service ({type(error).__name__}); its log says where"
        return Outcome(project, Status.FAILED, reason=InternalError.code, message=said)


@shared_task(name=MERGE_RESULTS, acks_late=True)
def merge_results(_parts: list[None], query_id: str, is_job: bool) -> None:
    """The chord's callback: every project has answered, merge them."""
    _end(query_id, is_job, "callback")


@shared_task(name=CANARY)
def canary(message: CanaryMessage) -> None:
    """Show that this queue is worked on."""
    with wiring.redis().pipeline(transaction=True) as pipe:
        pipe.lpush(message["key"], os.getpid())
        pipe.expire(message["key"], message["lifetime_s"])
        pipe.execute()
