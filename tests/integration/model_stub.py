"""A model server whose every answer a test chooses."""

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    content: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def reply(value: object, status: int = 200, **headers: str) -> Reply:
    names = {name.replace("_", "-"): said for name, said in headers.items()}
    return Reply(json.dumps(value).encode(), status, names)


Answer = Callable[[dict[str, Any]], Reply]


class ModelStub(ThreadingHTTPServer):
    """Keeps what it was asked, and how many requests it had at once."""

    daemon_threads = True

    def __init__(self, answer: Answer, handler: type[BaseHTTPRequestHandler] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), handler or StubHandler)
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.connections: set[int] = set()
        self.most_at_once = 0
        self.arrived = threading.Event()  # a request, at least one
        self._at_once = 0
        self._lock = threading.Lock()
        self._free = threading.Event()
        self._free.set()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Answer nobody until the block ends."""
        self._free.clear()
        try:
            yield
        finally:
            self.free()

    def free(self) -> None:
        self._free.set()

    def close(self) -> None:
        self._free.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that gave up is what tests are for
            super().handle_error(request, client_address)

    def take(self, path: str, body: dict[str, Any], port: int) -> Reply:
        with self._lock:
            self.requests.append({"path": path, **body})
            self.connections.add(port)
            self._at_once += 1
            self.arrived.set()
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            self._free.wait(30)
            return self.answer(body)
        finally:
            with self._lock:
                self._at_once -= 1


class StubHandler(BaseHTTPRequestHandler):
    server: ModelStub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.say(self.server.take(self.path, body, self.client_address[1]))

    def say(self, said: Reply) -> None:
        self.send_response(said.status)
        self.send_header("Content-Length", str(len(said.content)))
        for name, value in said.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said.content)

    def log_message(self, *_: object) -> None:
        pass


def one_after_another(*answers: Answer) -> Answer:
    """Each answer once, and the last one for ever."""
    left = list(answers)
    lock = threading.Lock()

    def answer(body: dict[str, Any]) -> Reply:
        with lock:
            now = left.pop(0) if len(left) > 1 else left[0]
        return now(body)

    return answer


def embeddings(vectors: Sequence[object]) -> Reply:
    return reply({"data": [{"index": i, "embedding": v} for i, v in enumerate(vectors)]})


def tei(scores: Sequence[float]) -> Reply:
    """As Text Embeddings Inference answers: a bare list, best first."""
    rows = [{"index": index, "score": score} for index, score in enumerate(scores)]
    return reply(sorted(rows, key=lambda row: -row["score"]))
