"""Who may ask and store, and what a key gives away: nothing."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from tests.integration.service import Service
from tests.integration.snapshot import Snapshot

QUESTION = "why did requests over 10KB fail?"
TURN = {"level": "L0", "kind": "turn", "source": "test", "text": "a turn of a test"}
OPEN = ["/health", "/health/ready", "/openapi.json"]
CLOSED = ["/memory/query?query=why", "/memory/projects", "/memory/ingest/nope"]


@dataclass(frozen=True)
class Key:
    """A key as `mem keys create` made it, and requests that present it."""

    service: Service
    id: str
    key: str

    def send(self, method: str, path: str, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        url = self.service.url + path
        return requests.request(method, url, headers=headers, timeout=40, **options)

    def get(self, path: str) -> requests.Response:
        return self.send("GET", path)

    def ingest(self, project: str | None) -> requests.Response:
        body = {"format": "nodes", "project": project, "nodes": [TURN]}
        return self.send("POST", "/memory/ingest", json=body)

    def revoke(self) -> None:
        assert self.service.mem("keys", "revoke", self.id).returncode == 0


def create(service: Service, *options: str) -> Key:
    made = service.mem("keys", "create", "--name", "a test", "--format", "json", *options)
    assert made.returncode == 0, made.stderr
    said = json.loads(made.stdout)
    return Key(service, said["id"], said["key"])


@pytest.fixture(scope="module")
def memory(session_service: Service, fixture_memory: Snapshot) -> Service:
    session_service.empty()
    fixture_memory.restore()
    return session_service


@pytest.fixture(scope="module")
def poimen_key(memory: Service) -> Key:
    return create(memory, "--project", "poimen")


@pytest.fixture(scope="module")
def reading_key(memory: Service) -> Key:
    return create(memory, "--read-only")


def refused(response: requests.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    said: dict[str, Any] = response.json()
    assert said["error"] == code
    return said


@pytest.mark.parametrize("path", OPEN)
def test_the_system_s_addresses_are_open(memory: Service, path: str) -> None:
    assert requests.get(memory.url + path, timeout=10).status_code == 200


@pytest.mark.parametrize("path", CLOSED)
def test_the_memory_is_not(memory: Service, path: str) -> None:
    response = requests.get(memory.url + path, timeout=10)

    refused(response, 401, "not_authenticated")
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="poimen-memory"'


@pytest.mark.parametrize("path", ["/memory/ingest", "/memory/projects"])
def test_nothing_is_read_of_a_body_without_a_key(memory: Service, path: str) -> None:
    refused(requests.post(memory.url + path, data="{", timeout=10), 401, "not_authenticated")


def test_a_key_is_taken_from_either_header(memory: Service) -> None:
    for headers in (
        {"Authorization": f"Bearer {memory.key}"},
        {"Authorization": f"bearer {memory.key}"},
        {"X-API-Key": memory.key},
    ):
        url = f"{memory.url}/memory/projects"
        assert requests.get(url, headers=headers, timeout=10).status_code == 200


def test_two_credentials_are_a_400(memory: Service) -> None:
    headers = {"Authorization": f"Bearer {memory.key}", "X-API-Key": memory.key}

    response = requests.get(f"{memory.url}/memory/projects", headers=headers, timeout=10)

    said = refused(response, 400, "invalid_parameters")
    assert said["errors"][0]["parameter"] == "X-API-Key"


def test_a_key_that_differs_anywhere_is_unknown(memory: Service) -> None:
    key = memory.key
    other = "A" if key[-1] != "A" else "B"
    prefix, key_id, secret = key.split("_", 2)
    wrong = [
        "x",
        "pmk",
        "pmk__",
        f"pmk_{key_id}",
        f"pmk_{key_id}_",
        key[:-1],
        key[:-1] + other,
        key + "x",
        key.upper(),
        f"{prefix}_{key_id}_{secret[::-1]}",
        f"{prefix}_ffffffffffff_{secret}",
        f"{prefix}_{'a' * 100}_{secret}",
        "x" * 3000,
        "pmk_é_x",
        "' OR 1=1 --",
    ]
    for given in wrong:
        headers = {"Authorization": f"Bearer {given}".encode()}
        response = requests.get(f"{memory.url}/memory/projects", headers=headers, timeout=10)
        refused(response, 401, "not_authenticated")


def test_a_revoked_key_is_unknown_at_once(memory: Service) -> None:
    key = create(memory)
    assert key.get("/memory/projects").status_code == 200

    key.revoke()

    refused(key.get("/memory/projects"), 401, "not_authenticated")
    assert memory.mem("keys", "revoke", key.id).returncode == 1


def test_a_reading_key_asks_and_does_not_store(memory: Service, reading_key: Key) -> None:
    assert reading_key.get(f"/memory/query?query={QUESTION}").json()["results"]
    refused(reading_key.ingest("poimen"), 403, "not_permitted")
    created = reading_key.send("POST", "/memory/projects", json={"project": "new"})
    refused(created, 403, "not_permitted")


def test_a_key_of_one_project_finds_nothing_of_another(memory: Service, poimen_key: Key) -> None:
    answer = poimen_key.get(f"/memory/query?query={QUESTION}&limit=50&explain=true").json()

    assert answer["projects_searched"] == ["poimen"]
    assert answer["federation"]["total"] == 1
    assert {result["project"] for result in answer["results"]} == {"poimen"}
    assert "agent-rust" not in json.dumps(answer["federation"] | answer["explain"])


def test_a_key_of_one_project_sees_no_other_in_the_list(poimen_key: Key) -> None:
    listed = poimen_key.get("/memory/projects").json()["projects"]

    assert [project["project"] for project in listed] == ["poimen"]


@pytest.mark.parametrize("query", ["project=agent-rust", "projects=poimen,agent-rust"])
def test_another_project_is_as_unknown_as_one_that_is_not_there(
    poimen_key: Key, query: str
) -> None:
    there = poimen_key.get(f"/memory/query?query=why&{query}")
    absent = poimen_key.get(f"/memory/query?query=why&{query.replace('rust', 'ruby')}")

    said = [refused(response, 404, "project_not_found") for response in (there, absent)]
    assert said[0]["detail"].replace("rust", "ruby") == said[1]["detail"]
    assert said[0].keys() == said[1].keys()


def test_a_key_of_one_project_stores_there_and_nowhere_else(
    memory: Service, poimen_key: Key
) -> None:
    for project in ("agent-rust", "new-project"):
        refused(poimen_key.ingest(project), 403, "not_permitted")
    nodes = [TURN | {"project": "agent-rust"}, TURN | {"project": "new-project"}]
    body = {"format": "nodes", "nodes": nodes}
    job = poimen_key.send("POST", "/memory/ingest", json=body).json()["id"]

    ended = memory.ended(job)

    assert ended["status"] == "failed"
    reasons = [skipped["reason"] for skipped in ended["files"][0]["skipped"]]
    assert reasons == [
        "this key may not write to project 'agent-rust'",
        "this key may not write to project 'new-project'",
    ]
    names = [p["project"] for p in memory.get("/memory/projects").json()["projects"]]
    assert names == ["agent-rust", "poimen"]


def test_a_job_is_its_own_key_s_and_every_project_s(memory: Service, poimen_key: Key) -> None:
    job = poimen_key.ingest("poimen").json()["id"]
    ended = memory.ended(job)  # with the key of everything
    stranger = create(memory, "--project", "poimen")

    assert ended["status"] == "completed"
    assert poimen_key.get(f"/memory/ingest/{job}").json() == ended
    refused(stranger.get(f"/memory/ingest/{job}"), 404, "ingest_not_found")


def test_keys_are_listed_without_their_secret(memory: Service, poimen_key: Key) -> None:
    listed = memory.mem("keys", "list", "--format", "json").stdout

    assert poimen_key.id in listed
    for key in (memory.key, poimen_key.key):
        assert key.split("_", 2)[2] not in listed


def test_neither_keys_nor_questions_nor_texts_are_in_any_log_or_table(memory: Service) -> None:
    key = create(memory)
    question = "zebrafish-question-of-nobody-else"
    answer = key.get(f"/memory/query?query={question}").json()
    assert answer["query"] == question
    key.get(f"/memory/query?query={question}&limit=odd")
    node = TURN | {"text": "zebrafish-text-of-nobody-else", "kind": "odd"}
    memory.ingest([node, node | {"kind": "turn"}], "poimen")

    secret = key.key.split("_", 2)[2]
    logs = [path for path in (memory.data_dir / "logs").rglob("*") if path.is_file()]
    assert {"web.log", "background.log"} <= {path.name for path in logs}
    for path in [*logs, memory.data_dir / "up.log"]:
        written = path.read_text(errors="replace")
        for hidden in (secret, memory.key.split("_", 2)[2], "zebrafish"):
            assert hidden not in written, path.name
    with memory.connect() as connection:
        rows = connection.execute("SELECT api_key::text FROM api_key").fetchall()
    assert rows
    assert not any(secret in row for (row,) in rows)
