"""The resources, one module each. Parse, call one use case, format."""

from typing import Any, cast

from flask import current_app, request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel

from app.auth import authenticate
from app.context_service import ContextService
from app.feedback_service import FeedbackService
from app.ingest_service import IngestService
from app.job_service import JobService
from app.record_service import RecordService
from app.service import Service
from app.wiring import FrontDoor
from workers.errors import UnsupportedMediaType
from workers.model import Principal


def front_door() -> FrontDoor:
    return cast(FrontDoor, current_app.extensions["front_door"])


def service() -> Service:
    return front_door().service


def context_service() -> ContextService:
    return front_door().context_service


def feedback_service() -> FeedbackService:
    return front_door().feedback_service


def job_service() -> JobService:
    return front_door().job_service


def ingest_service() -> IngestService:
    return front_door().ingest_service


def record_service() -> RecordService:
    return front_door().record_service


def principal() -> Principal:
    """Who sent this request.

    Raises:
        NotAuthenticated, InvalidParameters: no usable credential.
    """
    return authenticate(request, front_door().keys)


def json_body() -> Any:
    """The request's JSON. Its faults become problems in `app.problems`."""
    check_not_encoded()
    return request.get_json()


def check_not_encoded() -> None:
    """
    Raises:
        UnsupportedMediaType: the body is compressed as a whole; a small one could become any size.
    """
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType(
            "Send the body without Content-Encoding; files in it may be compressed by gzip or zstd."
        )


def reply(body: BaseModel, status: int = 200, **headers: str) -> ResponseReturnValue:
    """A model as JSON."""
    kind = {"Content-Type": "application/json"}
    return body.model_dump_json(), status, kind | headers
