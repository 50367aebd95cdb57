"""Somebody with a key of the service, who submits questions and follows them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import requests

from app.wiring import create_key
from tests.integration.service import Service, until

JOBS = "/memory/query/jobs"
ENDED = {"completed", "partial", "failed", "cancelled"}
COUNTED = ("running", "successful", "partial", "timed_out", "failed", "skipped", "cancelled")

Document = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    id: int
    kind: str
    data: Document


@dataclass(frozen=True)
class Caller:
    """Requests that present one key. Every job document that comes back is checked."""

    service: Service
    key: str

    @classmethod
    def new(cls, service: Service, projects: list[str] | None = None) -> Self:
        """Somebody with a key of their own, for these projects or for all."""
        _, key = create_key(service.database_url, "a test", projects, can_write=True)
        return cls(service, key)

    def send(self, method: str, path: str, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.key}"} | options.pop("headers", {})
        url = self.service.url + path
        return requests.request(method, url, headers=headers, timeout=40, **options)

    def submit(
        self, query: str, idempotency_key: str | None = None, **body: Any
    ) -> requests.Response:
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        response = self.send("POST", JOBS, json={"query": query} | body, headers=headers)
        if response.ok:
            checked(response)
        return response

    def begin(self, query: str, **body: Any) -> Document:
        """A job that was accepted, as it is then."""
        response = self.submit(query, **body)
        assert response.status_code in (200, 202), response.text
        return checked(response)

    def look(self, job_id: str, **parameters: Any) -> requests.Response:
        return self.send("GET", f"{JOBS}/{job_id}", params=parameters)

    def show(self, job_id: str, **parameters: Any) -> Document:
        return checked(self.look(job_id, **parameters))

    def stop(self, job_id: str) -> Document:
        return checked(self.send("POST", f"{JOBS}/{job_id}/stop"))

    def cancel(self, job_id: str) -> Document:
        return checked(self.send("DELETE", f"{JOBS}/{job_id}", params={"if_running": "true"}))

    def ended(self, job_id: str, within_s: float = 20) -> Document:
        """The job once it has ended."""

        def look() -> Document | None:
            said = self.show(job_id, wait_seconds=5)
            return None if said["is_running"] else said

        return until(look, within_s)

    def completed(self, query: str, **body: Any) -> Document:
        """A job that was submitted and has ended as well as can be."""
        said = self.ended(self.begin(query, wait_seconds=20, **body)["id"])
        assert said["status"] == "completed", said
        return said

    def listed(self, **parameters: Any) -> list[Document]:
        response = self.send("GET", JOBS, params=parameters)
        assert response.status_code == 200, response.text
        found: list[Document] = response.json()["jobs"]
        return found

    def cancel_all(self) -> None:
        for job in self.listed(status="running", limit=100):
            self.cancel(job["id"])

    def watch(self, job_id: str, after: int | None = None) -> requests.Response:
        """An open stream of a job's events."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        return self.send("GET", f"{JOBS}/{job_id}/events", headers=headers, stream=True)

    def events(self, job_id: str, after: int | None = None) -> list[Event]:
        """All events of a stream, until the service closes it."""
        with self.watch(job_id, after) as response:
            return list(events_of(response))


def checked(response: requests.Response) -> Document:
    """A job's document, after a look at what every one of them must keep to."""
    assert response.status_code in (200, 202), response.text
    said: Document = response.json()
    assert said["query_id"] == said["id"]
    assert said["is_running"] == (said["status"] in ("queued", "running"))
    assert said["is_partial"] == (said["status"] != "completed")
    assert response.headers["ETag"] == f'"{said["id"]}-{said["revision"]}"'
    assert response.headers["Cache-Control"] == "private, no-cache"
    federation = said["federation"]
    assert sum(federation[status] for status in COUNTED) == federation["total"]
    assert len(federation["projects"]) == federation["total"] == said["progress"]["total"]
    answered = federation["successful"] + federation["partial"]
    assert federation["coverage"] == (answered / federation["total"] if federation["total"] else 1)
    assert len(said["projects_searched"]) == answered
    if said["is_running"]:
        assert int(response.headers["Retry-After"]) * 1000 >= said["poll_after_ms"] > 0
        assert (said["finished_at"], said["expires_at"], said["error"]) == (None, None, None)
        assert federation["finalized_by"] is None
    else:
        assert "Retry-After" not in response.headers
        assert said["poll_after_ms"] is None
        assert federation["running"] == 0
        assert federation["finalized_by"]
        assert said["expires_at"] > said["finished_at"] >= said["submitted_at"]
    assert (said["error"] is not None) == (said["status"] == "failed")
    return said


def events_of(response: requests.Response) -> Iterator[Event]:
    """The events of an open stream, as they come."""
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"].startswith("text/event-stream")
    fields: dict[str, str] = {}
    for line in response.iter_lines(chunk_size=1, decode_unicode=True):
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if "event" in fields:
            yield Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
        fields = {}


def found(said: Document) -> list[tuple[str, str, float]]:
    """What an answer found: project, id and score, in its order."""
    return [(hit["project"], hit["id"], hit["score"]) for hit in said["results"]]


def states(said: Document) -> dict[str, tuple[str, str | None]]:
    """The status and reason of each project."""
    return {
        one["project"]: (one["status"], one["reason"]) for one in said["federation"]["projects"]
    }
