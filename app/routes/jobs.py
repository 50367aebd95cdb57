"""Submitted queries: heavy ones, followed by their id."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus

from flask import Blueprint, Response, request, url_for
from flask.typing import ResponseReturnValue

from app.job_service import Event, JobView
from app.parameters import (
    JobListParameters,
    JobParameters,
    NoParameters,
    PollParameters,
    RemoveParameters,
    read_parameters,
    validate,
)
from app.routes import front_door, job_service, json_body, principal, reply
from app.schemas import JobBody, JobEvent, JobList, JobSummary
from workers.errors import InvalidParameters, Overloaded, PoimenError, QueueUnavailable

bp = Blueprint("jobs", __name__)


@bp.post("/memory/query/jobs")
def submit_job() -> ResponseReturnValue:
    """Accept a question, durably, and say where its answer will be."""
    who = principal()
    read_parameters(NoParameters, request.args)
    parameters = validate(JobParameters, json_body())
    key = request.headers.get("Idempotency-Key")
    view, is_replayed = job_service().submit(parameters, who, key)
    job_id = view.job.id
    if parameters.wait_s > 0 and not view.job.has_ended:
        # Accepted all the same, if the queue goes away while it is waited for.
        with suppress(QueueUnavailable), front_door().waits.take() as has_seat:
            if has_seat:
                view = job_service().wait(job_id, who, None, parameters.wait_s)
    headers = {"Idempotency-Replayed": "true"} if is_replayed else {}
    headers["Location"] = url_for("jobs.show_job", job_id=job_id)
    status = HTTPStatus.OK if view.job.has_ended else HTTPStatus.ACCEPTED
    return _told(view, status, **headers)


@bp.get("/memory/query/jobs")
def list_jobs() -> ResponseReturnValue:
    """One's own submitted queries, newest first."""
    who = principal()
    parameters = read_parameters(JobListParameters, request.args)
    views, cursor = job_service().list_jobs(parameters, who)
    return reply(JobList(jobs=[JobSummary.of(view) for view in views], next_cursor=cursor))


@bp.get("/memory/query/jobs/<job_id>")
def show_job(job_id: str) -> ResponseReturnValue:
    """A submitted query with what has been found so far; waits for news where asked to."""
    who = principal()
    parameters = read_parameters(PollParameters, request.args)
    if parameters.wait_s == 0:
        if request.if_none_match:
            revision = job_service().revision(job_id, who)
            # Weakly: a proxy that compresses an answer says so by making its tag a weak one.
            if request.if_none_match.contains_weak(_tag(job_id, revision)):
                return _unchanged(job_id, revision)
        return _told(job_service().show(job_id, who))
    # All seats taken: whoever polls is answered at once, and may come again.
    with front_door().waits.take() as has_seat:
        wait_s = parameters.wait_s if has_seat else 0
        return _told(job_service().wait(job_id, who, parameters.since, wait_s))


@bp.get("/memory/query/jobs/<job_id>/events")
def watch_job(job_id: str) -> ResponseReturnValue:
    """What happens to a submitted query, as server-sent events."""
    who = principal()
    read_parameters(NoParameters, request.args)
    since = _last_event_id()
    job_service().show(job_id, who)  # what is wrong is said before the stream begins
    if request.method == "HEAD":
        return Response(mimetype="text/event-stream")
    seat = ExitStack()
    if not seat.enter_context(front_door().streams.take()):
        raise Overloaded("Too many streams are open; poll with wait_seconds, or try again.")
    events = job_service().events(job_id, who, since)

    def lines() -> Iterator[str]:
        yield "retry: 1000\n\n"
        with suppress(PoimenError):  # it is told to who comes back: the status has been sent
            yield from map(_line, events)

    response = Response(lines(), mimetype="text/event-stream")
    response.call_on_close(seat.close)
    response.headers["X-Accel-Buffering"] = "no"
    return response


@bp.post("/memory/query/jobs/<job_id>/stop")
def stop_job(job_id: str) -> ResponseReturnValue:
    """End a submitted query now, and keep what was found."""
    who = principal()
    read_parameters(NoParameters, request.args)
    return _told(job_service().stop(job_id, who))


@bp.delete("/memory/query/jobs/<job_id>")
def remove_job(job_id: str) -> ResponseReturnValue:
    """Cancel a submitted query that runs; remove the result of one that has ended."""
    who = principal()
    parameters = read_parameters(RemoveParameters, request.args)
    view = job_service().remove(job_id, who, parameters.if_running)
    return ("", HTTPStatus.NO_CONTENT) if view is None else _told(view)


def _told(view: JobView, status: HTTPStatus = HTTPStatus.OK, **headers: str) -> ResponseReturnValue:
    body = JobBody.of_view(view)
    if body.poll_after_ms is not None:
        headers["Retry-After"] = str(math.ceil(body.poll_after_ms / 1000))
    headers |= {"ETag": f'"{_tag(view.job.id, view.revision)}"', "Cache-Control": _CACHING}
    return reply(body, status, **headers)


_CACHING = "private, no-cache"


def _unchanged(job_id: str, revision: int) -> ResponseReturnValue:
    headers = {"ETag": f'"{_tag(job_id, revision)}"', "Cache-Control": _CACHING}
    return "", HTTPStatus.NOT_MODIFIED, headers


def _tag(job_id: str, revision: int) -> str:
    return f"{job_id}-{revision}"


def _last_event_id() -> int:
    said = request.headers.get("Last-Event-ID", "0")
    if not (said.isascii() and said.isdigit() and len(said) < 19):
        raise InvalidParameters.of("Last-Event-ID", "is not the id of an event of this stream")
    return int(said)


def _line(event: Event | None) -> str:
    if event is None:
        return ": still running\n\n"
    change = event.change
    body = JobEvent.of(event.view, change) if change else JobBody.of_view(event.view)
    return f"id: {event.revision}\nevent: {event.kind}\ndata: {body.model_dump_json()}\n\n"
