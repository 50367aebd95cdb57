"""A whole service whose lexical engine is OpenSearch, in whose place osmem-server stands."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.lexical_memory import standing_in
from tests.integration.model_stub import reply
from tests.integration.search_stub import SearchStub
from tests.integration.service import MEM, Service, clean_environment, running, until

NOTE = {"level": "L1", "kind": "note", "source": "notes/ports.md", "parents": ["turn"]}
TURN = {"id": "turn", "level": "L0", "kind": "turn", "source": "s"}


def nodes(word: str) -> list[dict[str, Any]]:
    """A note on a turn, both with this word."""
    return [TURN | {"text": f"talk of the {word}"}, NOTE | {"text": f"the {word} uses port 8443"}]


@dataclass(frozen=True)
class Searched:
    service: Service
    opensearch: SearchStub
    environment: dict[str, str]

    def opensearch_says(self) -> dict[str, str]:
        ready = self.service.get("/health/ready")
        assert ready.status_code == 200
        found: dict[str, str] = ready.json()["dependencies"]["opensearch"]
        return found

    def found(self, query: str, **parameters: Any) -> list[str]:
        answer = self.service.ask(query, **{"project": "ops", "method": "lexical"} | parameters)
        assert answer["metrics"]["lexical_engine"] == "opensearch"
        return [result["text"] for result in answer["results"]]

    def mem(self, *arguments: str) -> tuple[int, str]:
        done = self.run_mem(*arguments)
        return done.returncode, done.stdout + done.stderr

    def run_mem(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """The command line with the settings of the service."""
        return subprocess.run(
            [str(MEM), *arguments],
            env=clean_environment()
            | {"POIMEN_DATA_DIR": str(self.service.data_dir)}
            | self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture(scope="module")
def whole() -> Iterator[Searched]:
    with ExitStack() as stack:
        stub = SearchStub(stack.enter_context(standing_in()))
        stack.callback(stub.close)
        environment = {
            "POIMEN_LEXICAL_ENGINE": "opensearch",
            "POIMEN_OPENSEARCH_URL": stub.url,
            "POIMEN_OPENSEARCH_USER": "poimen",
            "POIMEN_OPENSEARCH_PASSWORD": "hunter2",
        }
        service = stack.enter_context(running(**environment))
        yield Searched(service, stub, environment)


@pytest.fixture
def searched(whole: Searched) -> Iterator[Searched]:
    """Empty, and with an index that is read."""
    whole.service.empty()
    until(lambda: whole.opensearch_says()["state"] == "ok", within_s=40)
    yield whole
    whole.opensearch.instead = lambda _: None


def test_what_is_stored_is_found_by_its_words_and_what_is_forgotten_is_not(
    searched: Searched,
) -> None:
    assert searched.service.ingest(nodes("tunnel"), "ops")["status"] == "completed"
    until(lambda: searched.found("tunnel"))

    assert searched.found("tunnel") == ["the tunnel uses port 8443"]
    assert searched.found("tunnel", level="L0,L1", filters='{"kind": "turn"}') == [
        "talk of the tunnel"
    ]
    hybrid = searched.service.ask("which port has the tunnel", project="ops", explain="true")
    assert hybrid["metrics"]["lexical_engine"] == "opensearch"
    assert hybrid["results"][0]["breakdown"]["lexical"] > 0
    counted = searched.service.ask("tunnel", project="ops", method="lexical", facets="true")
    assert counted["facets"]["levels"] == {"L1": 1}

    done = searched.service.mem("forget", "--project", "ops", "--source", "s", "--yes")
    assert done.returncode == 0, done.stderr
    until(lambda: not searched.found("tunnel"))


def test_a_search_by_words_alone_fails_while_the_server_is_away(searched: Searched) -> None:
    searched.service.ingest(nodes("bridge"), "ops")
    until(lambda: searched.found("bridge"))
    searched.opensearch.instead = lambda _: reply({}, 503)

    answer = searched.service.get("/memory/query", query="bridge", project="ops", method="lexical")

    assert (answer.status_code, answer.json()["error"]) == (503, "lexical_engine_unavailable")
    assert "HTTP 503" in answer.json()["detail"]
    assert "hunter2" not in answer.text
    hybrid = searched.service.ask("what uses the bridge here", project="ops", method="hybrid")
    assert hybrid["degraded"]
    assert [one["code"] for one in hybrid["warning_details"]] == ["lexical_engine_unavailable"]
    assert hybrid["results"][0]["text"] == "the bridge uses port 8443"
    assert searched.opensearch_says()["state"] == "degraded"
    code, said = searched.mem("doctor")
    assert code == 5
    assert "opensearch: OpenSearch at 127.0.0.1" in said


def test_the_index_is_made_anew_by_command(searched: Searched) -> None:
    searched.service.ingest(nodes("harbour"), "ops")
    until(lambda: searched.found("harbour"))

    done = searched.run_mem("lexical", "rebuild", "--format", "json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["nodes"], said["indexed"]) == (0, 2)
    assert searched.found("harbour") == ["the harbour uses port 8443"]

    code, said = searched.mem("lexical", "rebuild", "--project", "ops")
    assert (code, "2 nodes written to OpenSearch" in said) == (0, True), said
    code, said = searched.mem("doctor")
    assert "opensearch: OpenSearch 3." in said
    assert "hunter2" not in said
