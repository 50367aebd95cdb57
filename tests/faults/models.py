"""A server of both kinds of models that answers from the words alone, and can be held."""

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from zlib import crc32

DIMENSION = 64
LOOK_S = 0.02


class Models(ThreadingHTTPServer):
    """`/v1/embeddings` and `/rerank`. A call that names a held word waits until it is let go."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.held_words: set[str] = set()
        self.waiting: list[int] = []  # the callers' ports
        self.left = 0  # callers that closed their connection while they waited
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def held(self, word: str) -> Iterator[None]:
        """Answer no call that has this word in a text, until the block ends or `let_go`."""
        self.held_words.add(word)
        try:
            yield
        finally:
            self.let_go(word)

    def let_go(self, word: str) -> None:
        self.held_words.discard(word)

    def close(self) -> None:
        self.held_words.clear()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Callers are killed here: nothing is said of it."""

    def may_answer(self, texts: list[str], caller: socket.socket) -> bool:
        """Wait while one of these is held; False if the caller went away meanwhile."""
        port = caller.getpeername()[1]
        words = {word for text in texts for word in text.split()}
        with self.lock:
            self.waiting.append(port)
        try:
            while self.held_words & words:
                readable, _, _ = select.select([caller], [], [], LOOK_S)
                if readable and caller.recv(1, socket.MSG_PEEK) == b"":
                    with self.lock:
                        self.left += 1
                    return False
        finally:
            with self.lock:
                self.waiting.remove(port)
        return True


class _Handler(BaseHTTPRequestHandler):
    server: Models
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = body["texts"] if self.path.endswith("/rerank") else body["input"]
        texts: list[str] = [asked] if isinstance(asked, str) else asked
        if not self.server.may_answer(texts, self.connection):
            self.close_connection = True
            return
        said = _scores(body["query"], texts) if "query" in body else _embeddings(texts)
        data = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def _embeddings(texts: list[str]) -> dict[str, Any]:
    rows = [{"index": index, "embedding": _embedding(text)} for index, text in enumerate(texts)]
    return {"data": rows}


def _embedding(text: str) -> list[float]:
    vector = [0.01] * DIMENSION
    for word in text.lower().split():
        vector[crc32(word.encode()) % DIMENSION] += 1.0
    return vector


def _scores(query: str, texts: list[str]) -> list[dict[str, Any]]:
    asked = set(query.lower().split())
    rows = [
        {"index": index, "score": _score(asked, text.lower())} for index, text in enumerate(texts)
    ]
    return sorted(rows, key=lambda row: -row["score"])


def _score(asked: set[str], text: str) -> float:
    said = set(text.split())
    # No two texts have the same score, so that an order can be compared.
    return 0.9 * len(asked & said) / len(asked | said) + 0.1 * crc32(text.encode()) / 2**32
