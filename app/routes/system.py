"""Whether the service lives, whether it can work, and what it speaks."""

from http import HTTPStatus

from flask import Blueprint
from flask.typing import ResponseReturnValue

from app.openapi import document
from app.problems import describe
from app.routes import front_door, reply
from app.schemas import DependencyState, Health, Readiness
from app.wiring import check_dependencies
from workers.errors import RouteNotFound

bp = Blueprint("system", __name__)


@bp.get("/health")
def live() -> ResponseReturnValue:
    """This process answers."""
    return reply(Health(status="ok"))


@bp.get("/health/ready")
def ready() -> ResponseReturnValue:
    """Every dependency with its state; 503 while one has failed, 200 while one is degraded."""
    states, workers = check_dependencies(front_door())
    is_ready = all(state != "failed" for state, _ in states.values())
    body = Readiness(
        status="ready" if is_ready else "not_ready",
        dependencies={
            name: DependencyState(state=state, detail=detail)
            for name, (state, detail) in states.items()
        },
        workers=workers,
    )
    return reply(body, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)


@bp.get("/problems/<code>")
def problem(code: str) -> ResponseReturnValue:
    """What an error's `type` means."""
    said = describe(code)
    if said is None:
        raise RouteNotFound("No such problem; the codes are in the documentation of errors.")
    return said


@bp.get("/openapi.json")
def openapi() -> ResponseReturnValue:
    """This API, as OpenAPI 3.1."""
    return document()
