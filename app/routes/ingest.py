"""Taking memories in."""

from http import HTTPStatus

from flask import Blueprint, url_for
from flask.typing import ResponseReturnValue

from app.parameters import IngestParameters, check_submission, validate
from app.routes import front_door, json_body, principal, reply, service
from app.schemas import IngestAccepted, IngestStatus

bp = Blueprint("ingest", __name__)


@bp.post("/memory/ingest")
def submit_ingest() -> ResponseReturnValue:
    """Accept nodes, durably, and say where their status is."""
    who = principal()
    parameters = validate(IngestParameters, json_body())
    check_submission(parameters.nodes, front_door().max_nodes)
    job_id = str(service().submit_ingest(parameters, who))
    location = url_for("ingest.show_ingest", job_id=job_id)
    accepted = IngestAccepted(id=job_id, status="queued")
    return reply(accepted, HTTPStatus.ACCEPTED, Location=location)


@bp.get("/memory/ingest/<job_id>")
def show_ingest(job_id: str) -> ResponseReturnValue:
    """How far a submission is, and what became of each node that was refused."""
    return reply(IngestStatus.of(service().load_ingest(job_id, principal())))
