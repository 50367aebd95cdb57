"""The projects of this memory."""

from http import HTTPStatus

from flask import Blueprint
from flask.typing import ResponseReturnValue

from app.parameters import ProjectParameters, validate
from app.routes import json_body, principal, reply, service
from app.schemas import ProjectBody, ProjectList

bp = Blueprint("projects", __name__)


@bp.get("/memory/projects")
def list_projects() -> ResponseReturnValue:
    """The projects the caller may read, with what they hold."""
    rows = service().list_projects(principal())
    return reply(ProjectList(projects=[ProjectBody.of(row) for row in rows]))


@bp.post("/memory/projects")
def save_project() -> ResponseReturnValue:
    """Create a project, or add a title and root folders to it."""
    who = principal()
    parameters = validate(ProjectParameters, json_body())
    return reply(ProjectBody.of(service().save_project(parameters, who)), HTTPStatus.OK)
