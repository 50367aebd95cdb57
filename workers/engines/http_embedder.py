"""An OpenAI-compatible embedding server, over HTTP."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import requests
from numpy.typing import NDArray
from requests.auth import AuthBase

from workers.deadline import Deadline
from workers.engines.minilm import unit_rows, well_formed
from workers.errors import EmbeddingServiceUnavailable
from workers.model import EmbeddingModel, Vector

BATCH = 32  # passages of one request
PASSAGES_TIMEOUT_S = 60.0  # of one request at ingest, where nobody waits at a screen


class HttpEmbedder:
    """A client of `POST /v1/embeddings`, shared by all threads of a process. It never retries."""

    def __init__(self, url: str, api_key: str | None, model: str, dimension: int) -> None:
        """url: of the server, with or without `/v1`. dimension: what the model returns."""
        self.model = EmbeddingModel(model, None, dimension)
        self._endpoint = url.rstrip("/").removesuffix("/v1") + "/v1/embeddings"
        self._host = urlsplit(url).netloc.rpartition("@")[2]  # fit for a message: no password
        self._auth = _Bearer(api_key)
        self._session = requests.Session()
        # Nomic's models are trained with these; without them questions miss their passages.
        has_prefixes = "nomic" in model.lower()
        self._query_prefix = "search_query: " if has_prefixes else ""
        self._passage_prefix = "search_document: " if has_prefixes else ""

    def embed_query(self, text: str, deadline: Deadline) -> Vector:
        """One vector, shape (dimension,), L2 norm 1.

        Raises:
            EmbeddingServiceUnavailable: no usable vector before the deadline.
        """
        return self._embed([self._query_prefix + text], deadline)[0]

    def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, in order. Each request has a minute.

        Raises:
            EmbeddingServiceUnavailable: a request failed; nothing is returned.
        """
        vectors: list[Vector] = []
        for start in range(0, len(texts), BATCH):
            batch = [self._passage_prefix + text for text in texts[start : start + BATCH]]
            vectors += self._embed(batch, Deadline.after(PASSAGES_TIMEOUT_S))
        return vectors

    def _embed(self, texts: list[str], deadline: Deadline) -> list[Vector]:
        body = {"model": self.model.name, "input": [well_formed(text) for text in texts]}
        return self._vectors(self._post(body, deadline), len(texts))

    def _post(self, body: dict[str, Any], deadline: Deadline) -> Any:
        timeout = deadline.remaining()
        if timeout <= 0:
            raise self._unavailable("was not asked: no time was left", "allow the query more time")
        try:
            return _within(timeout, lambda: self._send(body, timeout))
        except TimeoutError as error:
            raise self._late(timeout) from error

    def _send(self, body: dict[str, Any], timeout: float) -> Any:
        try:
            response = self._session.post(
                self._endpoint,
                json=body,
                auth=self._auth,
                # A server that is there connects in moments; most of the time is for its answer.
                timeout=(timeout / 2, timeout),
                allow_redirects=False,
            )
        except requests.Timeout as error:
            raise self._late(timeout) from error
        except requests.RequestException as error:
            raise self._unavailable(
                f"cannot be reached ({type(error).__name__})",
                "start it, or correct POIMEN_EMBEDDING_URL",
            ) from error
        except ValueError:
            # Of http.client, about a header; its message, and so the log, would hold the key.
            raise self._unavailable(
                "was not asked: its key holds a line break", "correct POIMEN_EMBEDDING_API_KEY"
            ) from None
        if response.status_code in (401, 403):
            raise self._unavailable(
                f"answered HTTP {response.status_code}", "correct POIMEN_EMBEDDING_API_KEY"
            )
        if response.status_code != requests.codes.ok:
            raise self._unavailable(f"answered HTTP {response.status_code}", "see its log")
        try:
            return response.json()
        except requests.JSONDecodeError as error:
            raise self._unavailable(
                "answered something that is not JSON", "correct POIMEN_EMBEDDING_URL"
            ) from error

    def _vectors(self, answer: Any, count: int) -> list[Vector]:
        try:
            by_index = {int(row["index"]): row["embedding"] for row in answer["data"]}
            # Servers may answer in any order; the index says which text a vector is of.
            rows = np.array([by_index[index] for index in range(count)], np.float64)
            extra = len(answer["data"]) - count
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._unavailable(
                f"did not answer with {count} vectors of numbers", "see its log"
            ) from error
        if extra:
            raise self._unavailable(
                f"answered with {count + extra} vectors, not {count}", "see its log"
            )
        return list(self._checked(rows))

    def _checked(self, rows: NDArray[np.float64]) -> NDArray[np.float32]:
        expected = self.model.dimension
        if rows.ndim != 2 or rows.shape[1] != expected:
            length = rows.shape[1] if rows.ndim == 2 else 0
            raise self._unavailable(
                f"answered with vectors of length {length}, not {expected}",
                "correct POIMEN_EMBEDDING_DIMENSION or POIMEN_EMBEDDING_MODEL",
            )
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not norms.all():
            raise self._unavailable("answered with a vector that has no direction", "see its log")
        return unit_rows((rows / norms).astype(np.float32))

    def _late(self, timeout: float) -> EmbeddingServiceUnavailable:
        what = f"did not answer within {timeout:.2f} s"
        return self._unavailable(what, "allow more time or check its load")

    def _unavailable(self, what: str, what_next: str) -> EmbeddingServiceUnavailable:
        return EmbeddingServiceUnavailable(
            f"The embedding server at {self._host} {what}; {what_next}."
        )


class _Bearer(AuthBase):
    """The key as a header. As `auth`, or requests would put ~/.netrc's password in its place."""

    def __init__(self, api_key: str | None) -> None:
        self._api_key = api_key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._api_key:
            # Headers go out as Latin-1; this way any key goes out as UTF-8.
            header = f"Bearer {self._api_key}".encode().decode("latin-1")
            request.headers["Authorization"] = header
        return request


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """What `call` returns or raises, or TimeoutError once `seconds` have passed.

    The timeouts of requests are for one read each, and name resolution has none, so a server that
    sends a byte at a time outlasts any of them. A call given up goes on in its thread until then.
    """
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            future.set_exception(error)

    threading.Thread(target=run, name="embedding-request", daemon=True).start()
    return future.result(seconds)
