"""The document says what the application does."""

import re
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate as validate_document

from app.openapi import OPERATIONS, document
from app.parameters import QueryParameters
from tests.unit.app.app_fakes import Door

METHODS = {"GET", "POST", "PUT", "DELETE", "PATCH"}


def served(door: Door) -> set[tuple[str, str]]:
    """Every method and address of the application, spelled as the document does."""
    return {
        (method.lower(), re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule))
        for rule in door.client.application.url_map.iter_rules()
        for method in (rule.methods or set()) & METHODS
    }


def check(path: str, method: str, response: Any) -> None:
    """Whether a response is one that the document describes."""
    described = document()["paths"][path][method]["responses"][str(response.status_code)]
    content = described["content"][response.mimetype]["schema"]
    schema = content | {"components": document()["components"]}
    OAS31Validator(schema).validate(response.get_json())


def test_the_document_is_valid_openapi() -> None:
    validate_document(document())
    assert document()["openapi"] == "3.1.0"


def test_the_document_covers_exactly_what_is_served(door: Door) -> None:
    described = {
        (method, path) for path, methods in document()["paths"].items() for method in methods
    }

    assert described == served(door)


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [
        operation["operationId"]
        for methods in document()["paths"].values()
        for operation in methods.values()
    ]

    assert len(set(names)) == len(names) == len(OPERATIONS)


def test_what_excludes_each_other_is_said() -> None:
    query = document()["paths"]["/memory/query"]["get"]
    said = {parameter["name"]: parameter["description"] for parameter in query["parameters"]}

    assert "`projects`" in said["project"]
    assert "`project`" in said["projects"]
    assert "X-API-Key" in query["responses"]["400"]["description"]
    assert "414" in query["responses"]


def test_the_served_document_is_this_one(door: Door) -> None:
    assert door.get("/openapi.json", key=None).get_json() == document()


def test_every_parameter_of_a_query_is_described() -> None:
    parameters = document()["paths"]["/memory/query"]["get"]["parameters"]

    assert [parameter["name"] for parameter in parameters] == list(QueryParameters.model_fields)
    assert all(parameter["description"] for parameter in parameters)
    assert [p["name"] for p in parameters if p["required"]] == ["query"]


@pytest.mark.parametrize("name", ["level", "projects"])
def test_a_list_is_described_as_one_value_with_commas(name: str) -> None:
    parameters = document()["paths"]["/memory/query"]["get"]["parameters"]
    (parameter,) = [one for one in parameters if one["name"] == name]

    assert (parameter["style"], parameter["explode"]) == ("form", False)


def test_only_the_system_s_addresses_are_open() -> None:
    is_open = {operation.path for operation in OPERATIONS if operation.is_public}

    assert is_open == {"/health", "/health/ready", "/problems/{code}", "/openapi.json"}
    for operation in OPERATIONS:
        security = document()["paths"][operation.path][operation.method]["security"]
        assert (security == []) is operation.is_public


@pytest.mark.parametrize(
    "path",
    [
        "/memory/query?query=why",
        "/memory/query?query=why&project=poimen&explain=true",
        "/memory/query?query=",
        "/memory/query?query=why&project=nope",
        "/memory/query/with-context?query=why&max_tokens=3",
        "/memory/projects",
        "/health",
        "/health/ready",
    ],
)
def test_what_is_answered_is_what_is_described(door: Door, path: str) -> None:
    check(path.partition("?")[0], "get", door.get(path))


def test_an_accepted_job_and_its_status_are_what_is_described(door: Door) -> None:
    accepted = door.post("/memory/ingest", {"format": "nodes", "nodes": [{}]})

    check("/memory/ingest", "post", accepted)
    check("/memory/ingest/{job_id}", "get", door.get(accepted.headers["Location"]))


def test_every_address_that_needs_a_key_describes_the_refusal(door: Door) -> None:
    for operation in OPERATIONS:
        if not operation.is_public:
            path = operation.path.format(job_id="x", project="x", sha256="x")
            response = door.client.open(path, method=operation.method.upper())
            assert response.status_code == 401
            check(operation.path, operation.method, response)
