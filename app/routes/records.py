"""What is stored, one by one: looked at, forgotten, carried elsewhere."""

from flask import Blueprint, Response, request
from flask.typing import ResponseReturnValue

from app.parameters import (
    ForgetSourceParameters,
    NodeListParameters,
    NoParameters,
    ProjectParameters,
    SourceListParameters,
    read_parameters,
    validate,
)
from app.routes import ingest_service, principal, record_service, reply
from app.routes.ingest import reply_accepted
from app.schemas import Forgotten, NodeList, NodeName, NodeRecord, SourceList, SourceRecord
from workers.errors import InvalidParameters

bp = Blueprint("records", __name__)

JSON_LINES = "application/x-ndjson"


@bp.get("/memory/nodes/<project>")
def list_nodes(project: str) -> ResponseReturnValue:
    """The nodes that a short name can mean."""
    who = principal()
    parameters = read_parameters(NodeListParameters, request.args)
    rows, has_more = record_service().list_nodes(project, parameters.prefix, who)
    return reply(NodeList(nodes=[NodeName.model_validate(row) for row in rows], has_more=has_more))


@bp.get("/memory/nodes/<project>/<sha256>")
def show_node(project: str, sha256: str) -> ResponseReturnValue:
    """One node whole, with what it was made from and what was made from it."""
    who = principal()
    read_parameters(NoParameters, request.args)
    return reply(NodeRecord.model_validate(record_service().load_node(project, sha256, who)))


@bp.delete("/memory/nodes/<project>/<sha256>")
def forget_node(project: str, sha256: str) -> ResponseReturnValue:
    """Forget a node, and the notes that rested on it alone."""
    who = principal()
    read_parameters(NoParameters, request.args)
    return reply(Forgotten(nodes=record_service().forget_node(project, sha256, who)))


@bp.get("/memory/projects/<project>/sources")
def list_sources(project: str) -> ResponseReturnValue:
    """The sessions and documents of a project."""
    who = principal()
    parameters = read_parameters(SourceListParameters, request.args)
    rows, after = record_service().list_sources(project, parameters.after, who)
    sources = [SourceRecord.model_validate(row) for row in rows]
    return reply(SourceList(sources=sources, next_after=after))


@bp.delete("/memory/projects/<project>/sources")
def forget_source(project: str) -> ResponseReturnValue:
    """Forget what a source brought, and the notes that rested on it alone."""
    who = principal()
    parameters = read_parameters(ForgetSourceParameters, request.args)
    count = record_service().forget_source(project, parameters.source, who)
    return reply(Forgotten(nodes=count))


@bp.delete("/memory/projects/<project>")
def forget_project(project: str) -> ResponseReturnValue:
    """Forget a project with everything in it."""
    who = principal()
    read_parameters(NoParameters, request.args)
    return reply(Forgotten(nodes=record_service().forget_project(project, who)))


@bp.get("/memory/projects/<project>/export")
def export_project(project: str) -> ResponseReturnValue:
    """A project as JSON lines, vectors included."""
    who = principal()
    read_parameters(NoParameters, request.args)
    lines = record_service().export(project, who)
    return Response(lines, mimetype=JSON_LINES)


@bp.post("/memory/projects/<project>/import")
def import_project(project: str) -> ResponseReturnValue:
    """Take in what an export gave, under this project's name; followed like any submission."""
    who = principal()
    read_parameters(NoParameters, request.args)
    validate(ProjectParameters, {"project": project})  # it is made if it is missing
    data = request.get_data()
    if not data.strip():
        raise InvalidParameters.of("body", "is empty: send the lines of an export")
    key = request.headers.get("Idempotency-Key")
    files = [(f"{project}.jsonl", data)]
    accepted = ingest_service().submit_files(files, "export", project, who, key)
    return reply_accepted(accepted, who)
