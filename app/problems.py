"""The only module that knows both our errors and HTTP."""

import math
from http import HTTPStatus
from inspect import cleandoc
from typing import Any

import structlog
from flask import Flask, Response, g, jsonify
from werkzeug.exceptions import HTTPException

from workers import errors
from workers.errors import PoimenError

log = structlog.get_logger(__name__)

STATUS: dict[type[PoimenError], HTTPStatus] = {
    errors.InvalidParameters: HTTPStatus.BAD_REQUEST,
    errors.NotAuthenticated: HTTPStatus.UNAUTHORIZED,
    errors.NotPermitted: HTTPStatus.FORBIDDEN,
    errors.ProjectNotFound: HTTPStatus.NOT_FOUND,
    errors.NodeNotFound: HTTPStatus.NOT_FOUND,
    errors.SourceNotFound: HTTPStatus.NOT_FOUND,
    errors.IngestNotFound: HTTPStatus.NOT_FOUND,
    errors.JobNotFound: HTTPStatus.NOT_FOUND,
    errors.QueryNotFound: HTTPStatus.NOT_FOUND,
    errors.RouteNotFound: HTTPStatus.NOT_FOUND,
    errors.MethodNotAllowed: HTTPStatus.METHOD_NOT_ALLOWED,
    errors.IdempotencyInProgress: HTTPStatus.CONFLICT,
    errors.StoppedByUser: HTTPStatus.CONFLICT,
    errors.NothingToRetry: HTTPStatus.CONFLICT,
    errors.JobExpired: HTTPStatus.GONE,
    errors.IdempotencyConflict: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.TooManyJobs: HTTPStatus.TOO_MANY_REQUESTS,
    errors.BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.UnsupportedMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.AllProjectsFailed: HTTPStatus.BAD_GATEWAY,
    errors.AttemptsExhausted: HTTPStatus.BAD_GATEWAY,
    errors.IncompleteAnswer: HTTPStatus.BAD_GATEWAY,
    errors.Overloaded: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.EmbeddingServiceUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.LexicalEngineUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.QueueUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ModelMismatch: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.DeadlineExceeded: HTTPStatus.GATEWAY_TIMEOUT,
    errors.QueueDeadline: HTTPStatus.GATEWAY_TIMEOUT,
    errors.InternalError: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def as_problem(error: PoimenError) -> Response:
    """Render an error as an RFC 9457 problem."""
    status = STATUS[type(error)]
    response = jsonify(problem_of(error) | {"request_id": g.get("request_id")})
    response.status_code = status
    response.content_type = "application/problem+json"
    if status is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="poimen-memory"'
    if status in _COME_BACK:
        pause_s = getattr(error, "retry_after_s", None) or 1.0
        response.headers["Retry-After"] = str(math.ceil(pause_s))
    return response


_COME_BACK = (
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.CONFLICT,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.GATEWAY_TIMEOUT,
)


def problem_of(error: PoimenError) -> dict[str, Any]:
    """An error as the members of a problem; its attributes become extension members."""
    facts = {name: value for name, value in vars(error).items() if name != "retry_after_s"}
    said = {"type": f"/problems/{error.code}", "error": error.code, "title": error.title}
    return {**facts, **said, "status": STATUS[type(error)], "detail": str(error)}


def describe(code: str) -> dict[str, Any] | None:
    """What a problem's `type` leads to; None for a code that does not exist."""
    for kind, status in STATUS.items():
        if kind.code == code:
            said = cleandoc(kind.__doc__ or "")
            return {"code": code, "title": kind.title, "status": status, "description": said}
    return None


def _as_ours(error: HTTPException) -> PoimenError:
    """What the framework raises by itself, in our own words."""
    match error.code:
        case HTTPStatus.NOT_FOUND:
            return errors.RouteNotFound("Nothing is here; GET /openapi.json lists every address.")
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = ", ".join(getattr(error, "valid_methods", None) or ())
            return errors.MethodNotAllowed(f"This address takes {allowed or 'another method'}.")
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return errors.BodyTooLarge("Send less at once, or raise POIMEN_INGEST_MAX_MB.")
        case HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
            return errors.UnsupportedMediaType("Send Content-Type: application/json.")
        case HTTPStatus.BAD_REQUEST:
            return errors.InvalidParameters.of("body", "is not valid JSON")
    return errors.InternalError("The log has this request's id.")


def register(app: Flask) -> None:
    """Make every error of the application a problem."""

    @app.errorhandler(PoimenError)
    def _ours(error: PoimenError) -> Response:
        return as_problem(error)

    @app.errorhandler(HTTPException)
    def _framework(error: HTTPException) -> Response:
        response = as_problem(_as_ours(error))
        response.allow.update(getattr(error, "valid_methods", None) or ())
        return response

    @app.errorhandler(RecursionError)
    def _too_deep(_: RecursionError) -> Response:
        # Nothing here recurses but over what a caller sent.
        return as_problem(errors.InvalidParameters.of("body", "is nested too deeply"))

    @app.errorhandler(Exception)
    def _unforeseen(error: Exception) -> Response:
        # The text of an unforeseen error may quote what a user sent; where it happened may not.
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else "unknown"
        log.error("request_failed", error=type(error).__name__, place=place)
        log.debug("request_failed_trace", exc_info=error)
        return as_problem(errors.InternalError("Something broke here; the log has the request id."))
