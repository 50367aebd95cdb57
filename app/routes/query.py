"""Asking the memory."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from flask import Blueprint, g, request
from flask.typing import ResponseReturnValue

from app.parameters import ContextParameters, QueryParameters, read_parameters
from app.routes import context_service, front_door, principal, reply, service
from app.schemas import ContextResponse, QueryResponse
from workers.errors import Overloaded

bp = Blueprint("query", __name__)


@bp.get("/memory/query")
def ask() -> ResponseReturnValue:
    """Answer a question from one project, or from all that the caller may read."""
    who = principal()
    parameters = read_parameters(QueryParameters, request.args)
    with _seat():
        answer = service().ask(parameters, who, g.started_at)
    return reply(QueryResponse.of(parameters, answer, time.monotonic() - g.started_at))


@bp.get("/memory/query/with-context")
def ask_with_context() -> ResponseReturnValue:
    """The same, and what stands beside each result in its source."""
    who = principal()
    parameters = read_parameters(ContextParameters, request.args)
    with _seat():
        answer, arranged = context_service().ask(parameters, who, g.started_at)
    took_s = time.monotonic() - g.started_at
    return reply(ContextResponse.within(parameters, answer, arranged, took_s))


@contextmanager
def _seat() -> Iterator[None]:
    """A place among the questions that are answered at the same time.

    Raises:
        Overloaded: all are taken.
    """
    with front_door().queries.take() as has_seat:
        if not has_seat:
            raise Overloaded("Too many questions are being answered here; ask again.")
        yield
