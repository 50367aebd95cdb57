"""Asking the memory."""

import time

from flask import Blueprint, g, request
from flask.typing import ResponseReturnValue

from app.parameters import QueryParameters, read_parameters
from app.routes import front_door, principal, reply, service
from app.schemas import QueryResponse
from workers.errors import Overloaded

bp = Blueprint("query", __name__)


@bp.get("/memory/query")
def ask() -> ResponseReturnValue:
    """Answer a question from one project, or from all that the caller may read."""
    who = principal()
    parameters = read_parameters(QueryParameters, request.args)
    with front_door().queries.take() as has_seat:
        if not has_seat:
            raise Overloaded("Too many questions are being answered here; ask again.")
        answer = service().ask(parameters, who, g.started_at)
    return reply(QueryResponse.of(parameters, answer, time.monotonic() - g.started_at))
