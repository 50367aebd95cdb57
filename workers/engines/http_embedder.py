"""An OpenAI-compatible embedding server, over HTTP."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from redis import Redis

from workers.deadline import Deadline
from workers.engines.batching import BYTES_PER_TOKEN, Batches, cut
from workers.engines.http_calls import BadAnswer, CallFailed, ModelServer
from workers.engines.minilm import unit_rows, well_formed
from workers.errors import EmbeddingServiceUnavailable, ModelMismatch
from workers.model import EmbeddingModel, Refused, Vector

PASSAGES_TIMEOUT_S = 45.0  # of one request at ingest, pauses included; nobody waits at a screen
WARM_UP_S = 5.0


class WrongDimension(CallFailed):
    """Every vector of an answer has the same length, and it is another than the store's."""


class HttpEmbedder:
    """A client of `POST /v1/embeddings`, shared by all threads of a process."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        model: str,
        dimension: int,
        *,
        batch: int = 32,
        max_tokens: int = 512,
        concurrency: int = 8,
        client: Redis | None = None,
    ) -> None:
        """
        Args:
            url: of the server, with or without `/v1`.
            dimension: what the model returns.
            batch: most texts of one request.
            max_tokens: what the model reads of a text; the rest is not sent.
            concurrency, client: as `ModelServer` has them.
        """
        self.model = EmbeddingModel(model, None, dimension)
        self._server = ModelServer(
            endpoint_of(url), api_key, kind="embedding", concurrency=concurrency, client=client
        )
        self._batches = Batches(batch)
        self._has_fitted = False  # a vector had the right dimension
        self.most_tokens = max_tokens
        self._most_bytes = BYTES_PER_TOKEN * max_tokens
        # Nomic's models are trained with these; without them questions miss their passages.
        has_prefixes = "nomic" in model.lower()
        self._query_prefix = "search_query: " if has_prefixes else ""
        self._passage_prefix = "search_document: " if has_prefixes else ""

    def embed_query(self, text: str, deadline: Deadline) -> Vector:
        """One vector, shape (dimension,), L2 norm 1.

        Raises:
            EmbeddingServiceUnavailable: no usable vector before the deadline.
        """
        if not text.strip():
            raise EmbeddingServiceUnavailable("A blank question has no embedding; ask one.")
        sent = self._prepared(self._query_prefix, text)
        try:
            (vector,) = self._batches.send([sent], lambda texts: self._post(texts, deadline))
        except CallFailed as error:
            raise _unavailable(error) from error
        if isinstance(vector, Refused):
            reason = f"gave no usable vector for this question ({vector.reason}); see its log"
            raise _unavailable(self._server.failed(BadAnswer, reason))
        return vector

    def embed_passages(self, texts: Sequence[str]) -> list[Vector | Refused]:
        """One vector per text, in order; a text without a usable one is refused.

        Each request has `PASSAGES_TIMEOUT_S`.

        Raises:
            EmbeddingServiceUnavailable: a request failed; nothing is returned.
            ModelMismatch: the server's vectors have another dimension.
        """
        results: list[Vector | Refused] = [Refused("blank: there is nothing to embed")] * len(texts)
        sent = {
            place: self._prepared(self._passage_prefix, text)
            for place, text in enumerate(texts)
            if text.strip()
        }
        try:
            found = self._embed(list(sent.values()))
        except WrongDimension as error:
            raise ModelMismatch(str(error)) from error
        except CallFailed as error:
            raise _unavailable(error) from error
        for place, vector in zip(sent, found, strict=True):
            results[place] = vector
        return results

    def warm_up(self) -> None:
        """Ask for one vector, to see that the server is there and is the right one.

        Raises:
            EmbeddingServiceUnavailable: it does not answer.
            ModelMismatch: its vectors have another dimension.
        """
        deadline = Deadline.after(WARM_UP_S)
        try:
            self._post([self._prepared(self._query_prefix, "warm up")], deadline)
        except WrongDimension as error:
            raise ModelMismatch(str(error)) from error
        except CallFailed as error:
            raise _unavailable(error) from error

    def _prepared(self, prefix: str, text: str) -> str:
        return cut(well_formed(prefix + text), self._most_bytes)

    def _embed(self, texts: list[str]) -> list[Vector | Refused]:
        def post(batch: Sequence[str]) -> list[Vector | Refused]:
            return self._post(batch, Deadline.after(PASSAGES_TIMEOUT_S))

        found: list[Vector | Refused] = self._batches.send(texts, post)
        for place, text in enumerate(texts):
            # In half precision a text may overflow for the company it was sent in.
            if isinstance(found[place], Refused) and len(texts) > 1:
                (found[place],) = self._batches.send([text], post)
        return found

    def _post(self, texts: Sequence[str], deadline: Deadline) -> list[Vector | Refused]:
        body = {"model": self.model.name, "input": list(texts)}
        return self._server.call(body, deadline, lambda answer: self._vectors(answer, len(texts)))

    def _vectors(self, answer: Any, count: int) -> list[Vector | Refused]:
        try:
            by_index = {int(row["index"]): row["embedding"] for row in answer["data"]}
            # Servers may answer in any order; the index says which text a vector is of.
            rows = [_numbers(by_index[index]) for index in range(count)]
            extra = len(answer["data"]) - count
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._server.failed(
                BadAnswer, f"did not answer with {count} vectors of numbers; see its log"
            ) from error
        if extra:
            raise self._server.failed(
                BadAnswer, f"answered with {count + extra} vectors, not {count}; see its log"
            )
        lengths = {len(row) for row in rows}
        # One odd vector from a server that made good ones is that text's own misfortune.
        is_general = count > 1 or not self._has_fitted
        if is_general and len(lengths) == 1 and self.model.dimension not in lengths:
            raise self._wrong_dimension(lengths.pop())
        self._has_fitted |= self.model.dimension in lengths
        return [self._checked(row) for row in rows]

    def _checked(self, row: NDArray[np.float64]) -> Vector | Refused:
        if len(row) != self.model.dimension:
            found = f"its vector has dimension {len(row)}"
            return Refused(f"{found}, the store has {self.model.dimension}")
        # Scaled first, or the squares of large numbers would be infinite.
        largest = np.abs(row).max()
        if not np.isfinite(largest):
            return Refused("its vector holds NaN or infinity")
        if largest == 0:
            return Refused("its vector is zero, which has no direction")
        scaled = row / largest
        vector: Vector = unit_rows((scaled / np.linalg.norm(scaled)).astype(np.float32))
        return vector

    def _wrong_dimension(self, found: int) -> CallFailed:
        return self._server.failed(
            WrongDimension,
            f"answers with vectors of dimension {found}, the store has {self.model.dimension};"
            " correct POIMEN_EMBEDDING_MODEL or POIMEN_EMBEDDING_DIMENSION; `mem reindex` brings a"
            " memory to another model",
        )


def endpoint_of(url: str) -> str:
    """What is posted to, of a server whose address may end in `/v1`."""
    return url.rstrip("/").removesuffix("/v1") + "/v1/embeddings"


def _numbers(embedding: object) -> NDArray[np.float64]:
    """A vector as it came: a list of numbers, or base64 of float32, little-endian.

    Raises:
        ValueError, TypeError: neither.
    """
    if isinstance(embedding, str):
        try:
            packed = base64.b64decode(embedding, validate=True)
        except binascii.Error as error:
            raise ValueError("not base64") from error
        return np.frombuffer(packed, "<f4").astype(np.float64)
    row = np.array(embedding, np.float64)
    if row.ndim != 1:
        raise ValueError("not a list of numbers")
    return row


def _unavailable(error: CallFailed) -> EmbeddingServiceUnavailable:
    unavailable = EmbeddingServiceUnavailable(str(error))
    if error.retry_after_s is not None:
        unavailable.retry_after_s = error.retry_after_s
    return unavailable
