"""What a caller remembers of an answer, and of none."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from app.bench.calls import Caller, Calls


class Problems(BaseHTTPRequestHandler):
    """Answers one address, and is sorry everywhere else."""

    def do_GET(self) -> None:
        is_known = self.path.startswith("/known")
        body = json.dumps({"results": [1]} if is_known else {"error": "overloaded"}).encode()
        self.send_response(200 if is_known else 503)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Request-Id", "r1")
        if not is_known:
            self.send_header("Retry-After", "2")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Problems) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(5)


def test_an_answer_is_remembered_with_its_body_and_its_request(address: str) -> None:
    calls = Calls()

    call = Caller(address, "key", calls).call("single", "GET", "/known", 5.0)

    assert (call.status, call.error, call.request_id) == (200, None, "r1")
    assert call.body == {"results": [1]}
    assert calls.made() == [call]
    assert "body" not in call.as_sample()


def test_a_problem_is_remembered_by_its_code_and_when_to_come_back(address: str) -> None:
    call = Caller(address, "key", Calls()).call("single", "GET", "/other", 5.0)

    assert (call.status, call.error, call.retry_after_s) == (503, "overloaded", 2.0)
    assert call.has_failed


def test_a_refused_connection_is_no_answer_and_not_late() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    call = Caller(f"http://127.0.0.1:{port}", "key", Calls()).call("single", "GET", "/", 0.0)

    assert (call.is_answered, call.error, call.late_s) == (False, "ConnectionError", 0.0)
