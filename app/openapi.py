"""The OpenAPI 3.1 document, from the same classes that validate requests and render responses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app import parameters, schemas
from workers.contracts import NodeBody

_SCHEMAS = "#/components/schemas/"
_TWO_CREDENTIALS = "A parameter is wrong, or both Authorization and X-API-Key were sent."
_TOO_LONG = "From something in front of the service that takes no address this long, in its words."


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address."""

    method: str
    path: str
    id: str
    summary: str
    responses: Mapping[int, type[BaseModel] | None]
    problems: tuple[int, ...] = ()
    parameters: type[BaseModel] | None = None
    path_parameters: tuple[str, ...] = ()
    body: type[BaseModel] | None = None
    headers: tuple[dict[str, Any], ...] = ()
    is_public: bool = False
    takes: str | None = None  # the content type of a body that is no JSON object
    streams: str | None = None  # the content type of an answer in pieces
    tags: tuple[str, ...] = field(default=("memory",))


def _header(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    said = {"name": name, "in": "header", "required": False}
    return {**said, "description": description, "schema": schema}


_IDEMPOTENCY_KEY = _header(
    "Idempotency-Key",
    "the same key again gives the same job",
    {"type": "string", "minLength": 1, "maxLength": 255},
)
_LAST_EVENT_ID = _header(
    "Last-Event-ID", "go on after this event", {"type": "string", "pattern": "^[0-9]{1,18}$"}
)

OPERATIONS = (
    Operation(
        "get",
        "/memory/query",
        "ask",
        "Ask one project, or all that you may read",
        {200: schemas.QueryResponse},
        problems=(400, 401, 404, 502, 503, 504),
        parameters=parameters.QueryParameters,
    ),
    Operation(
        "get",
        "/memory/query/with-context",
        "askWithContext",
        "Ask, and get what stands beside each result in its source",
        {200: schemas.ContextResponse},
        problems=(400, 401, 404, 502, 503, 504),
        parameters=parameters.ContextParameters,
    ),
    Operation(
        "post",
        "/memory/query/feedback",
        "giveFeedback",
        "Say how good a result is; the last word of a key counts",
        {201: schemas.FeedbackRecorded},
        problems=(400, 401, 403, 404, 413, 415, 503, 504),
        body=parameters.FeedbackParameters,
    ),
    Operation(
        "get",
        "/memory/query/feedback",
        "reportFeedback",
        "Results that several keys called irrelevant, or that are not there any more",
        {200: schemas.FeedbackReport},
        problems=(400, 401, 404, 503, 504),
        parameters=parameters.FeedbackReportParameters,
    ),
    Operation(
        "get",
        "/memory/query/feedback/judgements",
        "listJudgements",
        "What was said of results that are still there, one by one",
        {200: schemas.JudgementList},
        problems=(400, 401, 404, 503, 504),
        parameters=parameters.JudgementParameters,
    ),
    Operation(
        "post",
        "/memory/query/jobs",
        "submitJob",
        "Submit a question; it is kept before this answers, and asked when its turn comes",
        {200: schemas.JobBody, 202: schemas.JobBody},
        problems=(400, 401, 404, 409, 410, 413, 415, 422, 429, 503, 504),
        body=parameters.JobParameters,
        headers=(_IDEMPOTENCY_KEY,),
    ),
    Operation(
        "get",
        "/memory/query/jobs",
        "listJobs",
        "List the questions you submitted",
        {200: schemas.JobList},
        problems=(400, 401, 503, 504),
        parameters=parameters.JobListParameters,
    ),
    Operation(
        "get",
        "/memory/query/jobs/{job_id}",
        "showJob",
        "Follow a submitted question; what has been found so far",
        {200: schemas.JobBody, 304: None},
        problems=(400, 401, 404, 410, 503, 504),
        parameters=parameters.PollParameters,
        path_parameters=("job_id",),
    ),
    Operation(
        "delete",
        "/memory/query/jobs/{job_id}",
        "removeJob",
        "Cancel a submitted question that runs, or remove the result of one that has ended",
        {200: schemas.JobBody, 204: None},
        problems=(400, 401, 404, 410, 503, 504),
        parameters=parameters.RemoveParameters,
        path_parameters=("job_id",),
    ),
    Operation(
        "post",
        "/memory/query/jobs/{job_id}/stop",
        "stopJob",
        "End a submitted question now and keep what was found",
        {200: schemas.JobBody},
        problems=(400, 401, 404, 410, 503, 504),
        path_parameters=("job_id",),
    ),
    Operation(
        "get",
        "/memory/query/jobs/{job_id}/events",
        "watchJob",
        "What happens to a submitted question, as server-sent events",
        {200: None},
        problems=(400, 401, 404, 410, 503, 504),
        path_parameters=("job_id",),
        headers=(_LAST_EVENT_ID,),
        streams="text/event-stream",
    ),
    Operation(
        "get",
        "/memory/projects",
        "listProjects",
        "List the projects you may read",
        {200: schemas.ProjectList},
        problems=(400, 401, 503, 504),
    ),
    Operation(
        "post",
        "/memory/projects",
        "saveProject",
        "Create a project, or add a title and root folders to it",
        {200: schemas.ProjectBody},
        problems=(400, 401, 403, 413, 415, 503, 504),
        body=parameters.ProjectParameters,
    ),
    Operation(
        "post",
        "/memory/ingest",
        "submitIngest",
        "Submit nodes or files; they are kept before this answers, searchable when the job ends",
        {202: schemas.IngestAccepted},
        problems=(400, 401, 403, 409, 413, 415, 422, 503),
        body=parameters.IngestParameters,
        headers=(_IDEMPOTENCY_KEY,),
    ),
    Operation(
        "get",
        "/memory/ingest",
        "listIngest",
        "List your submissions",
        {200: schemas.IngestList},
        problems=(400, 401, 503, 504),
        parameters=parameters.IngestListParameters,
    ),
    Operation(
        "delete",
        "/memory/ingest/{job_id}",
        "cancelIngest",
        "End a submission that has not ended",
        {200: schemas.IngestStatus},
        problems=(400, 401, 403, 404, 503, 504),
        path_parameters=("job_id",),
    ),
    Operation(
        "post",
        "/memory/ingest/{job_id}/retry",
        "retryIngest",
        "Try again what failed of a submission",
        {202: schemas.IngestStatus},
        problems=(400, 401, 403, 404, 409, 503, 504),
        path_parameters=("job_id",),
    ),
    Operation(
        "get",
        "/memory/ingest/{job_id}",
        "showIngest",
        "Follow an ingest job",
        {200: schemas.IngestStatus},
        problems=(400, 401, 404, 503),
        path_parameters=("job_id",),
    ),
    Operation(
        "delete",
        "/memory/projects/{project}",
        "forgetProject",
        "Forget a project with everything in it",
        {200: schemas.Forgotten},
        problems=(400, 401, 403, 404, 503, 504),
        path_parameters=("project",),
    ),
    Operation(
        "get",
        "/memory/projects/{project}/sources",
        "listSources",
        "List the sessions and documents of a project",
        {200: schemas.SourceList},
        problems=(400, 401, 404, 503, 504),
        parameters=parameters.SourceListParameters,
        path_parameters=("project",),
    ),
    Operation(
        "delete",
        "/memory/projects/{project}/sources",
        "forgetSource",
        "Forget what a session or document brought",
        {200: schemas.Forgotten},
        problems=(400, 401, 403, 404, 503, 504),
        parameters=parameters.ForgetSourceParameters,
        path_parameters=("project",),
    ),
    Operation(
        "get",
        "/memory/projects/{project}/export",
        "exportProject",
        "A project as JSON lines",
        {200: None},
        problems=(400, 401, 404, 503, 504),
        path_parameters=("project",),
        streams="application/x-ndjson",
    ),
    Operation(
        "post",
        "/memory/projects/{project}/import",
        "importProject",
        "Take in the lines of an export",
        {202: schemas.IngestAccepted},
        problems=(400, 401, 403, 409, 413, 422, 503),
        path_parameters=("project",),
        headers=(_IDEMPOTENCY_KEY,),
        takes="application/x-ndjson",
    ),
    Operation(
        "get",
        "/memory/nodes/{project}",
        "listNodes",
        "The nodes whose sha256 begins so",
        {200: schemas.NodeList},
        problems=(400, 401, 404, 503, 504),
        parameters=parameters.NodeListParameters,
        path_parameters=("project",),
    ),
    Operation(
        "get",
        "/memory/nodes/{project}/{sha256}",
        "showNode",
        "One node whole",
        {200: schemas.NodeRecord},
        problems=(400, 401, 404, 503, 504),
        path_parameters=("project", "sha256"),
    ),
    Operation(
        "delete",
        "/memory/nodes/{project}/{sha256}",
        "forgetNode",
        "Forget a node, and the notes that rested on it alone",
        {200: schemas.Forgotten},
        problems=(400, 401, 403, 404, 503, 504),
        path_parameters=("project", "sha256"),
    ),
    Operation(
        "get",
        "/health",
        "live",
        "Live",
        {200: schemas.Health},
        is_public=True,
        tags=("system",),
    ),
    Operation(
        "get",
        "/health/ready",
        "ready",
        "Ready: every dependency with its state",
        {200: schemas.Readiness, 503: schemas.Readiness},
        is_public=True,
        tags=("system",),
    ),
    Operation(
        "get",
        "/problems/{code}",
        "explainProblem",
        "What the type of a problem means",
        {200: None},
        problems=(404,),
        path_parameters=("code",),
        is_public=True,
        tags=("system",),
    ),
    Operation(
        "get",
        "/openapi.json",
        "describe",
        "This document",
        {200: None},
        is_public=True,
        tags=("system",),
    ),
)


@cache
def document() -> dict[str, Any]:
    """The whole document; made once per process."""
    definitions = _definitions()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "poimen-memory",
            "version": version("poimen-memory"),
            "description": "Ask a memory questions; every answer is traceable to its source.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _definitions() -> dict[str, Any]:
    inputs = [o.body for o in OPERATIONS if o.body] + [NodeBody]
    outputs = [model for o in OPERATIONS for model in o.responses.values() if model]
    modes: list[Any] = [(model, "validation") for model in inputs]
    modes += [(model, "serialization") for model in (*outputs, schemas.Problem)]
    _, schema = models_json_schema(modes, ref_template=f"{_SCHEMAS}{{model}}")
    definitions: dict[str, Any] = schema["$defs"]
    return definitions


def _operation(operation: Operation) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": list(operation.tags),
    }
    parameters = [_path_parameter(name) for name in operation.path_parameters]
    if operation.parameters:
        parameters += _query_parameters(operation.parameters)
    parameters += operation.headers
    if parameters:
        said["parameters"] = parameters
    if operation.body:
        said["requestBody"] = {"required": True, "content": _content(operation.body)}
    if operation.takes:
        said["requestBody"] = {"required": True, "content": _text(operation.takes)}
    said["responses"] = {
        str(status): _response(operation, status, model)
        for status, model in operation.responses.items()
    }
    for status in operation.problems:
        problem = _content(schemas.Problem, "application/problem+json")
        why = _TWO_CREDENTIALS if status == 400 and not operation.is_public else ""
        said["responses"][str(status)] = {"description": why, "content": problem}
    if operation.parameters:
        said["responses"]["414"] = {"description": _TOO_LONG}
    said["security"] = [] if operation.is_public else [{"bearer": []}, {"key": []}]
    return said


def _response(operation: Operation, status: int, model: type[BaseModel] | None) -> dict[str, Any]:
    if status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        return {"description": HTTPStatus(status).phrase}
    if operation.streams:
        return {"description": "", "content": _text(operation.streams)}
    untold = {"application/json": {"schema": {"type": "object"}}}
    return {"description": "", "content": _content(model) if model else untold}


def _text(kind: str) -> dict[str, Any]:
    return {kind: {"schema": {"type": "string"}}}


def _content(model: type[BaseModel], kind: str = "application/json") -> dict[str, Any]:
    return {kind: {"schema": {"$ref": f"{_SCHEMAS}{model.__name__}"}}}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema()
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": part.pop("description", ""),
            "schema": part,
            # A list is one comma-separated value.
            **({"style": "form", "explode": False} if _is_list(part) else {}),
        }
        for name, part in schema["properties"].items()
    ]


def _is_list(part: Mapping[str, Any]) -> bool:
    return any(kind.get("type") == "array" for kind in part.get("anyOf", [part]))
