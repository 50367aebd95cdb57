"""An embedding server of the OpenAI kind around the real embedded model, which a test can slow."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workers.engines.minilm import MiniLM


class EmbeddingServer:
    """Counts what it is asked; while it is held, nobody gets an answer."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self._model = MiniLM()
        self._free = threading.Event()
        self._free.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let every caller wait until the block ends, or 30 s."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def release(self) -> None:
        self._free.set()

    def close(self) -> None:
        self._free.set()
        self._server.shutdown()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]
                server.questions += inputs
                server._free.wait(30)
                data = json.dumps({"data": server._embed(inputs)}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def _embed(self, texts: list[str]) -> list[dict[str, Any]]:
        return [
            {"index": index, "embedding": self._model.read(text).vector.tolist()}
            for index, text in enumerate(texts)
        ]
