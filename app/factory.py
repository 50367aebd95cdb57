"""Making the Flask application."""

import re
import time
from uuid import uuid4

import structlog
from flask import Flask, Response, g, request

from app import problems
from app.routes import feedback, ingest, jobs, projects, query, records, system
from app.wiring import FrontDoor

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def create_app(front: FrontDoor) -> Flask:
    """The front door over its dependencies: blueprints, request ids, error handlers."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = front.max_body_bytes
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.extensions["front_door"] = front

    @app.before_request
    def _begin() -> None:
        given = request.headers.get("X-Request-Id", "")
        # A caller's id is taken over only where it cannot smuggle anything into a log or a header.
        g.request_id = given if _REQUEST_ID.fullmatch(given) else uuid4().hex
        g.started_at = time.monotonic()
        structlog.contextvars.bind_contextvars(request_id=g.request_id)

    @app.after_request
    def _end(response: Response) -> Response:
        response.headers["X-Request-Id"] = g.request_id
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers.setdefault("Cache-Control", "no-store")
        if request.method == "OPTIONS":  # the framework calls its empty answer HTML
            response.headers.pop("Content-Type", None)
        return response

    @app.teardown_request
    def _forget(_: BaseException | None) -> None:
        structlog.contextvars.clear_contextvars()

    for resource in (query, feedback, jobs, projects, records, ingest, system):
        app.register_blueprint(resource.bp)
    problems.register(app)
    return app
