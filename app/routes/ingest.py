"""Taking memories in."""

from http import HTTPStatus

from flask import Blueprint, request, url_for
from flask.typing import ResponseReturnValue

from app.parameters import (
    IngestListParameters,
    IngestParameters,
    NoParameters,
    UploadParameters,
    check_file_names,
    check_submission,
    read_parameters,
    validate,
)
from app.routes import (
    check_not_encoded,
    front_door,
    ingest_service,
    json_body,
    principal,
    reply,
)
from app.schemas import IngestAccepted, IngestList, IngestStatus
from workers.errors import InvalidParameters
from workers.model import Principal
from workers.ports import Accepted

bp = Blueprint("ingest", __name__)

_MULTIPART = "multipart/form-data"


@bp.post("/memory/ingest")
def submit_ingest() -> ResponseReturnValue:
    """Accept nodes or files, durably, and say where their status is."""
    who = principal()
    accepted = _uploaded(who) if request.mimetype == _MULTIPART else _sent(who)
    return reply_accepted(accepted, who)


def reply_accepted(accepted: Accepted, who: Principal) -> ResponseReturnValue:
    """A 202 that says where the job of a submission is."""
    job_id = str(accepted.id)
    headers = {"Location": url_for("ingest.show_ingest", job_id=job_id)}
    if accepted.is_replayed:
        headers["Idempotency-Replayed"] = "true"
    status = "queued"
    if accepted.is_duplicate:
        status = ingest_service().load(job_id, who)["status"]
    body = IngestAccepted(id=job_id, status=status, duplicate=accepted.is_duplicate)
    return reply(body, HTTPStatus.ACCEPTED, **headers)


@bp.get("/memory/ingest")
def list_ingest() -> ResponseReturnValue:
    """One's submissions, newest first."""
    who = principal()
    parameters = read_parameters(IngestListParameters, request.args)
    rows, cursor = ingest_service().list_jobs(parameters, who)
    return reply(IngestList(jobs=[IngestStatus.of(row) for row in rows], next_cursor=cursor))


@bp.get("/memory/ingest/<job_id>")
def show_ingest(job_id: str) -> ResponseReturnValue:
    """How far a submission is, and what became of each part that was refused."""
    return reply(IngestStatus.of(ingest_service().load(job_id, principal())))


@bp.delete("/memory/ingest/<job_id>")
def cancel_ingest(job_id: str) -> ResponseReturnValue:
    """End a submission that has not ended; what is stored of it stays."""
    who = principal()
    read_parameters(NoParameters, request.args)
    return reply(IngestStatus.of(ingest_service().cancel(job_id, who)))


@bp.post("/memory/ingest/<job_id>/retry")
def retry_ingest(job_id: str) -> ResponseReturnValue:
    """Try again what failed of a submission."""
    who = principal()
    read_parameters(NoParameters, request.args)
    row = ingest_service().retry(job_id, who)
    return reply(IngestStatus.of(row), HTTPStatus.ACCEPTED)


def _sent(who: Principal) -> Accepted:
    parameters = validate(IngestParameters, json_body())
    key = request.headers.get("Idempotency-Key")
    if parameters.nodes is not None:
        check_submission(parameters.nodes, front_door().max_nodes)
        return ingest_service().submit_nodes(parameters.nodes, parameters.project, who, key)
    bodies = enumerate(parameters.files or ())
    files = [(file.name, file.content(place)) for place, file in bodies]
    return ingest_service().submit_files(files, parameters.format, parameters.project, who, key)


def _uploaded(who: Principal) -> Accepted:
    check_not_encoded()
    parameters = read_parameters(UploadParameters, request.form)
    files = [
        (file.filename or name, file.stream.read())
        for name, file in request.files.items(multi=True)
    ]
    if not files:
        raise InvalidParameters.of("files", "are missing: send each as a part with a file name")
    check_file_names([name for name, _ in files])
    key = request.headers.get("Idempotency-Key")
    return ingest_service().submit_files(files, parameters.format, parameters.project, who, key)
