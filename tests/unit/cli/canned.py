"""A real HTTP server with canned answers, and the bodies it answers with."""

import io
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from click.testing import Result
from werkzeug.wrappers import Request

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]
Mem = Callable[..., Result]


class CannedService:
    """Answers by "VERB /path" and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | Callable[[Any], Answer]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.credentials: list[str | None] = []
        self.headers: list[Mapping[str, str]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                parameters = {name: said[0] for name, said in parse_qs(parts.query).items()}
                self._answer(f"{self.command} {parts.path}", parameters)

            do_DELETE = do_GET

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(f"POST {self.path}", _read(body, self.headers["Content-Type"]))

            def _answer(self, route: str, said: Any) -> None:
                service.asked.append((route, said))
                service.credentials.append(self.headers.get("Authorization"))
                service.headers.append(dict(self.headers))
                answer = service.answers.get(route, (404, problem(404, "route_not_found")))
                status, body, *more = answer(said) if callable(answer) else answer
                if status == 0:  # go away without a word
                    self.close_connection = True
                    return
                kind = (
                    "application/problem+json"
                    if isinstance(body, dict) and isinstance(body.get("error"), str)
                    else "application/json"
                )
                sent = body.encode() if isinstance(body, str) else body
                sent = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
                with suppress(ConnectionError):  # who asked may have gone
                    self._send(status, kind, sent, more[0] if more else {})

            def _send(self, status: int, kind: str, sent: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(sent)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the tests read what was asked."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def said_to(self, route: str) -> list[Any]:
        return [said for asked, said in self.asked if asked == route]


def _read(body: bytes, kind: str | None) -> Any:
    """JSON as it is; of a form its fields and files; of anything else the bytes."""
    if not body:
        return None
    if not kind or kind.startswith("application/json"):
        return json.loads(body)
    if not kind.startswith("multipart/form-data"):
        return body
    environ = {
        "REQUEST_METHOD": "POST",
        "CONTENT_TYPE": kind,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    form = Request(environ)
    files = [(file.filename, file.stream.read()) for file in form.files.getlist("files")]
    return {**form.form.to_dict(), "files": files}


def problem(status: int, code: str, **members: Any) -> dict[str, Any]:
    return {
        "type": f"/problems/{code}",
        "title": code.replace("_", " "),
        "status": status,
        "detail": "Do the next thing.",
        "error": code,
        "request_id": "7f3a91",
        **members,
    }


def project(name: str, *roots: Path | str, title: str | None = None) -> dict[str, Any]:
    return {
        "project": name,
        "title": title,
        "roots": [str(root) for root in roots],
        "nodes": {"L0": 3, "L1": 2, "L2": 1},
        "created_at": "2026-07-01T00:00:00Z",
    }


def parent(level: str, source: str, turn: int | None = None, **members: Any) -> dict[str, Any]:
    said = {
        "level": level,
        "kind": "turn" if level == "L0" else "note",
        "sha256": "e" * 64,
        "source": source,
        "turn": turn,
        "text": f"what {source} says",
        "timestamp": "2026-07-21T09:52:03Z",
        "parents": [],
    }
    return said | members


def hit(**members: Any) -> dict[str, Any]:
    said = {
        "id": "3f9a2c1e40b7" + "0" * 52,
        "sha256": "3f9a2c1e40b7" + "0" * 52,
        "project": "poimen",
        "level": "L1",
        "kind": "note",
        "text": "Kong's buffer was 8k.",
        "source": "standing:infra-root-causes",
        "standing_id": "infra-root-causes",
        "breadcrumb": [],
        "section": None,
        "timestamp": "2026-07-21T10:30:00Z",
        "query_score": 0.56,
        "rerank_score": 0.94,
        "score": 0.94,
        "parents": [parent("L0", "pi:2026-07-21-019f857d", 42)],
    }
    return said | members


def part(name: str, status: str = "successful", **members: Any) -> dict[str, Any]:
    said = {
        "project": name,
        "status": status,
        "reason": None,
        "took_ms": 81.0,
        "queue_ms": 8.0,
        "candidates": 50,
        "reranked": 50,
        "task_id": "c0ffee",
        "pid": 4711,
        "started_at": "2026-08-03T10:00:00Z",
    }
    return said | members


STATUSES = ("successful", "partial", "timed_out", "failed", "skipped", "cancelled", "running")


def answer(
    *hits: dict[str, Any], parts: tuple[dict[str, Any], ...] = (), **members: Any
) -> dict[str, Any]:
    parts = parts or (part("poimen"),)
    counts = {status: sum(p["status"] == status for p in parts) for status in STATUSES}
    return {
        "query_id": "q1",
        "query": "why?",
        "search_method": "hybrid",
        "routing": {"asked": "auto", "reason": "3 words or more"},
        "results": list(hits),
        "warnings": [],
        "warning_details": [],
        "degraded": counts["successful"] < len(parts),
        "federation": {"projects": list(parts), "total": len(parts), **counts},
        "metrics": {"embed_ms": 6, "recall_ms": 9, "rerank_ms": 60, "queue_ms": None},
        "latency_ms": 96,
        "notes": "said by the service",
    } | members


JOB_ID = "0123456789abcdef" * 2
INGEST_ID = "01234567-89ab-cdef-0123-456789abcdef"


def ingested(name: str, **members: Any) -> dict[str, Any]:
    """What became of one file of a submission."""
    said = {
        "name": name,
        "status": "completed",
        "reason": None,
        "format": "markdown",
        "received": 2,
        "stored": 2,
        "updated": 0,
        "unchanged": 0,
        "removed": 0,
        "skipped": [],
        "skipped_count": 0,
        "ignored": {},
        "redacted": {},
        "notes": [],
        "has_open_end": False,
        "sources": [{"project": "poimen", "source": name}],
    }
    return said | members


def submission(*files: dict[str, Any], status: str = "completed", **members: Any) -> dict[str, Any]:
    """A submission of files."""
    said = {
        "id": INGEST_ID,
        "status": status,
        "project": "poimen",
        "format": "auto",
        "attempts": 1,
        "error": None,
        "progress": {"done": len(files), "total": len(files)},
        "stage": None,
        "files": list(files),
        "created_at": "2026-08-03T10:00:00Z",
    }
    return said | members


def job(
    status: str = "completed",
    *hits: dict[str, Any],
    parts: tuple[dict[str, Any], ...] = (),
    **members: Any,
) -> dict[str, Any]:
    """A job's document, with the members of an answer."""
    parts = parts or (
        part("poimen", "running" if status in ("queued", "running") else "successful"),
    )
    is_running = status in ("queued", "running")
    said = {
        "id": JOB_ID,
        "status": status,
        "is_running": is_running,
        "is_partial": status == "partial",
        "revision": 1,
        "attempts": 1,
        "submitted_at": "2026-08-03T10:00:00Z",
        "finished_at": None if is_running else "2026-08-03T10:00:01Z",
        "deadline_at": "2026-08-03T10:01:00Z",
        "expires_at": None if is_running else "2026-08-04T10:00:01Z",
        "poll_after_ms": 10 if is_running else None,
        "progress": {"done": sum(p["status"] != "running" for p in parts), "total": len(parts)},
        "error": None,
    }
    found = answer(*hits, parts=parts, query_id=JOB_ID)
    return said | found | members
