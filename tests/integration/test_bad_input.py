"""Whatever is sent, the answer is the stated status and a problem that names what is wrong."""

import gzip
import json
import socket
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import requests

from tests.integration.service import Service, fixture_nodes
from tests.integration.snapshot import Snapshot

LONG = "x" * 3900
NOT_A_NUMBER = ["", "%00", LONG, "five", "5.0", "1e1", "NaN", "[5]"]
REFUSED = {
    "query": ["", "%20%09", "%00", "a%00b", "x" * 4001],
    "project": [""],
    "projects": ["", "%2C", "poimen,,agent-rust"],
    "level": ["", "%00", LONG, "1", "L3", "l1", '["L1"]', "L1;L2"],
    "limit": NOT_A_NUMBER,
    "timeout_seconds": NOT_A_NUMBER,
    "method": ["", "%00", LONG, "1", "fuzzy", "HYBRID"],
    "semantic_weight": ["", "%00", LONG, "heavy", "2", "-0.1", "1e-1", "nan"],
    "filters": ["", "%00", LONG, "[]", "{", "5", "null"],
    "facets": ["", "%00", LONG, "2", "null"],
    "explain": ["", "%00", LONG, "2", "yes", "null"],
}
UNKNOWN_PROJECTS = ["%00", LONG, "7", "[]", "POIMEN", "../poimen", "%F0%9F%92%A9", "poimen%20x"]
CUT = [
    ("limit", "0", 1),
    ("limit", "-1", 1),
    ("limit", "51", 50),
    ("limit", "99999999999999999999", 50),
    ("timeout_seconds", "0", 1),
    ("timeout_seconds", "-5", 1),
    ("timeout_seconds", "31", 30),
    ("timeout_seconds", "99999999999999999999", 30),
]


@pytest.fixture(scope="module")
def memory(session_service: Service, fixture_memory: Snapshot) -> Service:
    """The fixture's memory, set up once: nothing here may change it."""
    session_service.empty()
    fixture_memory.restore()
    return session_service


def problem(response: requests.Response, status: int, code: str) -> dict[str, Any]:
    """A response as the problem it must be."""
    assert response.status_code == status, response.text[:300]
    assert response.headers["Content-Type"] == "application/problem+json"
    said: dict[str, Any] = response.json()
    assert (said["status"], said["error"]) == (status, code)
    assert said["request_id"] == response.headers["X-Request-Id"]
    return said


def blamed(said: dict[str, Any]) -> list[str]:
    return [error["parameter"] for error in said["errors"]]


def query_with(name: str, value: str) -> str:
    """An otherwise good query string, its values percent-encoded already."""
    question = "" if name == "query" else "query=why%20did%20requests%20fail&"
    return f"/memory/query?{question}{name}={value}"


def cases(values: dict[str, list[str]]) -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}={value[:12]}")
        for name, listed in values.items()
        for value in listed
    ]


@pytest.mark.parametrize(("name", "value"), cases(REFUSED))
def test_a_parameter_that_cannot_be_used_is_a_400_naming_it(
    memory: Service, name: str, value: str
) -> None:
    said = problem(memory.get(query_with(name, value)), 400, "invalid_parameters")

    assert blamed(said) == [name]


@pytest.mark.parametrize(
    ("name", "value"),
    cases(
        {
            "project": UNKNOWN_PROJECTS,
            "projects": [*UNKNOWN_PROJECTS, "poimen,nope"],
        }
    ),
)
def test_a_project_that_is_not_there_is_a_404_naming_the_parameter(
    memory: Service, name: str, value: str
) -> None:
    said = problem(memory.get(query_with(name, value)), 404, "project_not_found")

    assert blamed(said) == [name]
    assert len(said["detail"]) < 500


@pytest.mark.parametrize("name", REFUSED)
def test_a_parameter_given_twice_is_a_400(memory: Service, name: str) -> None:
    values = {"limit": "5", "level": "L1", "explain": "true"}
    response = memory.get(f"{query_with(name, values.get(name, 'x'))}&{name}=x")

    said = problem(response, 400, "invalid_parameters")

    assert said["errors"] == [{"parameter": name, "reason": "was given twice"}]


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "query"])
def test_only_the_question_is_required(memory: Service, name: str) -> None:
    good = {"limit": "1", "level": "L1", "explain": "true", "project": "poimen"}
    good |= {"timeout_seconds": "5", "method": "auto"}
    rest = "".join(f"&{other}={value}" for other, value in good.items() if other != name)

    assert memory.get(f"/memory/query?query=why{rest}").status_code == 200


def test_a_missing_question_is_a_400(memory: Service) -> None:
    said = problem(memory.get("/memory/query?limit=3"), 400, "invalid_parameters")

    assert said["errors"] == [{"parameter": "query", "reason": "is required"}]


@pytest.mark.parametrize(("name", "value", "used"), CUT)
def test_a_number_out_of_range_is_cut_and_the_answer_says_so(
    memory: Service, name: str, value: str, used: int
) -> None:
    answer = memory.get(query_with(name, value) + "&project=poimen").json()

    assert f"{name} {value} was cut to {used}" in answer["notes"]
    if name == "limit":
        assert 1 <= len(answer["results"]) <= used


@pytest.mark.parametrize(
    ("given", "meant"), [("quary", "query"), ("projekt", "project"), ("levels", "level")]
)
def test_an_unknown_parameter_is_a_400_with_the_nearest_known_one(
    memory: Service, given: str, meant: str
) -> None:
    said = problem(memory.get(query_with(given, "x")), 400, "invalid_parameters")

    assert said["errors"] == [{"parameter": given, "reason": f"is unknown; did you mean {meant}?"}]


@pytest.mark.parametrize("path", ["query=why&%ff=1", "query=why&=1", "query=why&" + LONG + "=1"])
def test_an_odd_name_of_a_parameter_is_a_400(memory: Service, path: str) -> None:
    problem(memory.get(f"/memory/query?{path}"), 400, "invalid_parameters")


def test_everything_that_is_wrong_is_said_at_once(memory: Service) -> None:
    response = memory.get("/memory/query?query=&limit=many&explain=maybe&nope=1")

    said = problem(response, 400, "invalid_parameters")

    assert set(blamed(said)) == {"query", "limit", "explain", "nope"}


@pytest.mark.parametrize(
    "question",
    [
        "?",
        "a",
        "木",
        "为什么大于10KB的请求失败",
        "لماذا فشلت الطلبات",
        "👩‍💻🔥",
        "\u202egnorw",
        "é\u0301",
        "\x01\x02\x1b[31m",
        "a\nb\r\tc",
        "\u200b",
        "\ufeff",
        "'; DROP TABLE memory_node; --",
        '"unbalanced',
        "%",
        "\\",
        "{{7*7}}",
        "<script>alert(1)</script>",
        "x " * 1000,
    ],
)
def test_any_text_is_a_question(memory: Service, question: str) -> None:
    answer = memory.ask(question, project="poimen", limit=1)

    assert answer["query"] == question.strip()
    assert answer["degraded"] is False


@pytest.mark.parametrize("encoded", ["%ff%fe", "%ed%a0%80", "%c3", "%", "%zz", "%u0041", "+%20+a"])
def test_bytes_that_are_not_utf_8_are_a_question_too(memory: Service, encoded: str) -> None:
    assert memory.get(f"/memory/query?query={encoded}").status_code == 200


def post(memory: Service, path: str, data: bytes, kind: str = "application/json") -> Any:
    headers = {"Authorization": f"Bearer {memory.key}", "Content-Type": kind}
    return requests.post(memory.url + path, data=data, headers=headers, timeout=40)


WRITES = ["/memory/ingest", "/memory/projects"]


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not valid JSON"),
        (b"{", "is not valid JSON"),
        (b"nodes=1", "is not valid JSON"),
        (b'{"a": "\xff"}', "is not valid JSON"),
        (b"[]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b'"text"', "is not a JSON object"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "is nested too deeply"),
        (b'{"nodes":' * 100_000, "is nested too deeply"),
    ],
    ids=lambda value: str(value[:12]),
)
def test_a_body_that_is_no_json_object_is_a_400(
    memory: Service, path: str, data: bytes, reason: str
) -> None:
    said = problem(post(memory, path, data), 400, "invalid_parameters")

    assert said["errors"] == [{"parameter": "body", "reason": reason}]


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_content_type_is_a_415(memory: Service, path: str, kind: str) -> None:
    problem(post(memory, path, b"{}", kind), 415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("path", "body", "parameter"),
    [
        ("/memory/ingest", {"nodes": [{}]}, "format"),
        ("/memory/ingest", {"format": "rtf", "nodes": [{}]}, "format"),
        ("/memory/ingest", {"format": "markdown", "nodes": [{}]}, "files"),
        ("/memory/ingest", {"format": "nodes"}, "nodes"),
        ("/memory/ingest", {"format": "nodes", "nodes": []}, "nodes"),
        ("/memory/ingest", {"format": "nodes", "nodes": {"0": {}}}, "nodes"),
        ("/memory/ingest", {"format": "nodes", "nodes": "[]"}, "nodes"),
        ("/memory/ingest", {"format": "nodes", "nodes": None}, "nodes"),
        ("/memory/ingest", {"format": "nodes", "nodes": [{}], "project": "Not A Name"}, "project"),
        ("/memory/ingest", {"format": "nodes", "nodes": [{}], "project": 7}, "project"),
        ("/memory/ingest", {"format": "nodes", "nodes": [{}], "nodez": []}, "nodez"),
        ("/memory/projects", {}, "project"),
        ("/memory/projects", {"project": ""}, "project"),
        ("/memory/projects", {"project": "-x"}, "project"),
        ("/memory/projects", {"project": "x" * 65}, "project"),
        ("/memory/projects", {"project": ["x"]}, "project"),
        ("/memory/projects", {"project": "x", "title": "a\0"}, "title"),
        ("/memory/projects", {"project": "x", "title": ""}, "title"),
        ("/memory/projects", {"project": "x", "title": "\ud83d"}, "title"),
        ("/memory/projects", {"project": "x", "roots": "/src"}, "roots"),
        ("/memory/projects", {"project": "x", "roots": ["src"]}, "roots[0]"),
        ("/memory/projects", {"project": "x", "roots": ["/a\0"]}, "roots[0]"),
        ("/memory/projects", {"project": "x", "roots": ["/" + "a" * 5000]}, "roots[0]"),
        ("/memory/projects", {"project": "x", "owner": "me"}, "owner"),
    ],
)
def test_a_member_that_cannot_be_used_is_a_400_naming_it(
    memory: Service, path: str, body: dict[str, Any], parameter: str
) -> None:
    said = problem(post(memory, path, json.dumps(body).encode()), 400, "invalid_parameters")

    assert blamed(said) == [parameter]


def test_a_body_over_the_limit_is_a_413_before_it_is_read(memory: Service) -> None:
    address = urlsplit(memory.url)
    head = (
        "POST /memory/ingest HTTP/1.1",
        f"Host: {address.netloc}",
        f"Authorization: Bearer {memory.key}",
        "Content-Type: application/json",
        "Content-Length: 70000000",
    )
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
        said = connection.recv(4096).decode()

    assert said.startswith("HTTP/1.1 413 ")
    assert "application/problem+json" in said


@pytest.mark.parametrize(
    "path",
    ["/", "/memory", "/memory/nowhere", "/memory/query/", "/memory/%ff", "/health/", "/..%2fetc"],
)
def test_an_unknown_address_is_a_404(memory: Service, path: str) -> None:
    problem(memory.get(path), 404, "route_not_found")


@pytest.mark.parametrize("job", ["nope", "%00", "%ff", "x" * 3000, quote("' OR 1=1 --"), "-1"])
def test_a_malformed_job_id_is_a_404(memory: Service, job: str) -> None:
    problem(memory.get(f"/memory/ingest/{job}"), 404, "ingest_not_found")


ODD_NAMES = ["a%00b", "%00", "%ff", "%0a", "x" * 300, "%F0%9F%92%A9", "p%20", "A"]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_can_be_no_node_is_a_404(memory: Service, method: str, name: str) -> None:
    headers = {"Authorization": f"Bearer {memory.key}"}
    path = f"{memory.url}/memory/nodes/poimen/{name}"

    problem(requests.request(method, path, headers=headers, timeout=10), 404, "node_not_found")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_what_can_be_no_project_is_told_whatever_is_done_with_it(
    memory: Service, name: str
) -> None:
    headers = {"Authorization": f"Bearer {memory.key}"}
    path = f"{memory.url}/memory/projects/{name}"
    for method, more in (("GET", "/export"), ("GET", "/sources"), ("DELETE", "")):
        answer = requests.request(method, path + more, headers=headers, timeout=10)
        problem(answer, 404, "project_not_found")

    said = problem(
        requests.post(f"{path}/import", data=b"{}", headers=headers, timeout=10),
        400,
        "invalid_parameters",
    )
    assert blamed(said) == ["project"]


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br", "GZIP"])
def test_a_body_that_is_compressed_as_a_whole_is_a_415_before_it_is_read(
    memory: Service, encoding: str
) -> None:
    kind = {"Authorization": f"Bearer {memory.key}", "Content-Encoding": encoding}
    for sent in (
        {
            "data": gzip.compress(bytes(1000)),
            "headers": kind | {"Content-Type": "application/json"},
        },
        {"files": {"files": ("a.md", b"text")}, "headers": kind},
    ):
        answer = requests.post(f"{memory.url}/memory/ingest", timeout=10, **sent)
        assert "Content-Encoding" in problem(answer, 415, "unsupported_media_type")["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/memory/query", "GET"),
        ("DELETE", "/memory/query", "GET"),
        ("PUT", "/memory/ingest", "POST"),
        ("PUT", "/memory/projects", "POST"),
        ("POST", "/health", "GET"),
        ("PATCH", "/openapi.json", "GET"),
    ],
)
def test_a_wrong_method_is_a_405_that_names_the_right_one(
    memory: Service, method: str, path: str, allowed: str
) -> None:
    response = requests.request(method, memory.url + path, timeout=10)

    problem(response, 405, "method_not_allowed")
    assert allowed in response.headers["Allow"]


def test_a_caller_s_request_id_is_echoed_and_an_odd_one_replaced(memory: Service) -> None:
    given = {"ok-1.A_b": True, "a b": False, "x" * 65: False, "<script>": False}
    for request_id, is_kept in given.items():
        headers = {"X-Request-Id": request_id}
        response = requests.get(f"{memory.url}/health", headers=headers, timeout=10)
        assert (response.headers["X-Request-Id"] == request_id) is is_kept


def test_nothing_of_all_this_changed_the_memory(memory: Service) -> None:
    projects = {
        project["project"]: project for project in memory.get("/memory/projects").json()["projects"]
    }

    assert set(projects) == {"poimen", "agent-rust"}
    counted = sum(sum(project["nodes"].values()) for project in projects.values())
    assert counted == len(fixture_nodes())
    with memory.connect() as connection:
        assert connection.execute("SELECT count(*) FROM ingest_job").fetchone() == (0,)
