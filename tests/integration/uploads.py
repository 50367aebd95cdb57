"""Session files and documents that are handed over to a service, and what became of them."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import requests

from tests.integration.callers import Caller
from tests.integration.service import Service
from tests.unit.ingest.session_files import (
    AGENTS,
    Record,
    cc_model,
    cc_user,
    cx_item,
    cx_meta,
    file_of,
    pi_header,
    pi_message,
    said,
)

INGEST = "/memory/ingest"
NAMES = [agent.format for agent in AGENTS]
Files = Mapping[str, bytes]
Report = dict[str, Any]


def submit_files(
    service: Service, files: Files, *, key: str | None = None, **body: Any
) -> requests.Response:
    """Hand files over as JSON, under an idempotency key of their own."""
    sent = [{"name": n, "base64": base64.b64encode(data).decode()} for n, data in files.items()]
    return Caller(service, key or service.key).send(
        "POST",
        INGEST,
        json={"format": "auto", "files": sent} | body,
        headers={"Idempotency-Key": uuid4().hex},
    )


def begin(service: Service, files: Files, **body: Any) -> str:
    response = submit_files(service, files, **body)
    assert response.status_code == 202, response.text
    job_id: str = response.json()["id"]
    return job_id


def take(service: Service, files: Files, **body: Any) -> dict[str, Any]:
    """The job of these files, once it has ended."""
    return service.ended(begin(service, files, **body))


def take_one(service: Service, data: bytes, name: str = "a.jsonl", **body: Any) -> Report:
    """What became of one file."""
    (report,) = take(service, {name: data}, **({"project": "p"} | body))["files"]
    assert isinstance(report, dict)
    return report


def counts(report: Report) -> dict[str, int]:
    names = ("received", "stored", "updated", "unchanged", "removed", "skipped_count")
    return {name: report[name] for name in names if report[name]}


Said = Sequence[str]
"""What is said in turn, the user first."""


def claude(
    turns: Said, session: str = "s-1", *, first: int = 0, own: str = "u", **members: Any
) -> bytes:
    """A Claude Code session. `own`: begins its turns' ids; the same in a fork of it."""
    lines: list[Record | bytes] = []
    for number, text in enumerate(turns, start=first):
        before = number - 1 if number else None
        make = cc_model(number, before, said(text)) if number % 2 else cc_user(number, before, text)
        ids = {"uuid": f"{own}-{number}", "parentUuid": f"{own}-{before}" if number else None}
        if number % 2:
            make["message"]["id"] = f"msg-{own}-{number}"
            make["requestId"] = f"req-{own}-{number}"
        lines.append(make | {"sessionId": session} | ids | members)
    return file_of(lines)


def codex(turns: Said, session: str = "s-1", **members: Any) -> bytes:
    roles = ("user", "assistant")
    lines = [cx_item(n, roles[(n - 1) % 2], text) for n, text in enumerate(turns, start=1)]
    meta = cx_meta(session)
    return file_of([meta | {"payload": meta["payload"] | members}, *lines])


def pi(turns: Said, session: str = "s-1", **members: Any) -> bytes:
    roles = ("user", "assistant")
    lines = [
        pi_message(n, n - 1 if n > 1 else None, roles[(n - 1) % 2], [said(text)])
        for n, text in enumerate(turns, start=1)
    ]
    return file_of([pi_header(session, **members), *lines])


SESSIONS = {"claude_code": claude, "codex": codex, "pi": pi}


def texts(service: Service, project: str = "p", **having: str) -> list[str]:
    """The stored turns and chunks of a project, in order."""
    source = having.get("source", "%")
    with service.connect() as connection:
        rows = connection.execute(
            "SELECT text FROM memory_node WHERE project = %s AND kind IN ('turn', 'chunk')"
            " AND source LIKE %s ORDER BY source, position, metadata->'part_number'",
            [project, source],
        ).fetchall()
    return [text for (text,) in rows]


def tagged(service: Service, tag: str, project: str = "p") -> list[str]:
    with service.connect() as connection:
        rows = connection.execute(
            "SELECT text FROM memory_node WHERE project = %s AND %s = ANY(tags) ORDER BY position",
            [project, tag],
        ).fetchall()
    return [text for (text,) in rows]


def nodes(service: Service, project: str = "p") -> list[dict[str, Any]]:
    """Every node of a project but for the instants of writing it, with its edges and vector."""
    with service.connect() as connection:
        rows = connection.execute(
            "SELECT to_jsonb(node) - 'created_at' - 'updated_at'"
            " || jsonb_build_object('vector', embedding::text, 'parents', ARRAY("
            "      SELECT parent FROM memory_edge AS edge"
            "       WHERE edge.project = node.project AND child = node.sha256 ORDER BY parent))"
            " FROM memory_node AS node LEFT JOIN node_vector USING (project, sha256)"
            " WHERE project = %s ORDER BY sha256",
            [project],
        ).fetchall()
    return [node for (node,) in rows]


def sources(service: Service, project: str = "p") -> dict[str, dict[str, Any]]:
    response = service.get(f"/memory/projects/{project}/sources")
    assert response.status_code == 200, response.text
    return {source["source"]: source for source in response.json()["sources"]}


def check_whole(service: Service) -> None:
    """No node without a vector, no edge to a missing row, no number that is not so."""
    with service.connect() as connection:
        for broken in (
            "SELECT sha256 FROM memory_node LEFT JOIN node_vector USING (project, sha256)"
            " WHERE embedding IS NULL",
            "SELECT child FROM memory_edge WHERE NOT EXISTS (SELECT FROM memory_node AS node"
            " WHERE node.project = memory_edge.project AND sha256 = parent)",
            "SELECT project, level FROM node_count WHERE nodes <> (SELECT count(*) FROM memory_node"
            " AS node WHERE node.project = node_count.project AND node.level = node_count.level)",
            "SELECT project, source, text FROM memory_node WHERE kind = 'turn'"
            " AND NOT EXISTS (SELECT FROM turn WHERE turn.project = memory_node.project"
            " AND turn.sha256 = memory_node.sha256)",
        ):
            assert connection.execute(broken.encode()).fetchall() == []
