"""Asking the memory."""

import time

from flask import Blueprint, g, request
from flask.typing import ResponseReturnValue

from app.parameters import QueryParameters, read_parameters
from app.routes import principal, reply, service
from app.schemas import QueryResponse

bp = Blueprint("query", __name__)


@bp.get("/memory/query")
def ask() -> ResponseReturnValue:
    """Answer a question from one project, or from all that the caller may read."""
    who = principal()
    parameters = read_parameters(QueryParameters, request.args)
    answer = service().ask(parameters, who, g.started_at)
    return reply(QueryResponse.of(parameters, answer, time.monotonic() - g.started_at))
