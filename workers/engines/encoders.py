"""Encoders: what `workers.ports.Encoder` asks for, from the embedded model or from a server."""

from collections.abc import Sequence

from workers.deadline import Deadline
from workers.engines import minilm
from workers.engines.http_embedder import HttpEmbedder
from workers.engines.late_interaction import Compressor
from workers.engines.minilm import MiniLM, Reading
from workers.engines.projection import TOKEN_MODEL
from workers.errors import EmbeddingServiceUnavailable
from workers.model import EmbeddingModel, Encoding


class EmbeddedEncoder:
    """The embedded model alone: one pass gives the vector and the token vectors."""

    model: EmbeddingModel = minilm.MODEL
    token_model: str | None = TOKEN_MODEL

    def __init__(self, model: MiniLM, compressor: Compressor) -> None:
        self._minilm = model
        self._compressor = compressor

    def encode_query(self, text: str, deadline: Deadline) -> Encoding:
        """Encode a question. A pass cannot be stopped, so it starts only while time is left.

        Raises:
            EmbeddingServiceUnavailable: the deadline has passed.
        """
        if deadline.passed():
            raise EmbeddingServiceUnavailable(
                "No time was left to embed the question; allow the query more time."
            )
        reading = self._minilm.read(text)
        return Encoding(
            reading.vector, self._compressor.pack_query(reading.token_ids, reading.states)
        )

    def encode_passages(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode stored texts, results in the order given."""

        def encoding(reading: Reading) -> Encoding:
            tokens = self._compressor.compress(reading.token_ids, reading.states)
            return Encoding(reading.vector, tokens)

        return self._minilm.read_each(texts, encoding)


class HttpEncoder:
    """Vectors from a server; token vectors, if wanted, from the embedded model beside it."""

    def __init__(self, embedder: HttpEmbedder, tokens: EmbeddedEncoder | None) -> None:
        """tokens: None where no embedded reranker will read them."""
        self.model: EmbeddingModel = embedder.model
        self.token_model = tokens.token_model if tokens else None
        self._embedder = embedder
        self._tokens = tokens

    def encode_query(self, text: str, deadline: Deadline) -> Encoding:
        """Encode a question.

        Raises:
            EmbeddingServiceUnavailable: the server failed, or not in time.
        """
        vector = self._embedder.embed_query(text, deadline)
        if self._tokens is None:
            return Encoding(vector, None)
        return Encoding(vector, self._tokens.encode_query(text, deadline).tokens)

    def encode_passages(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode stored texts, results in the order given.

        Raises:
            EmbeddingServiceUnavailable: the server failed.
        """
        vectors = self._embedder.embed_passages(texts)
        if self._tokens is None:
            return [Encoding(vector, None) for vector in vectors]
        local = self._tokens.encode_passages(texts)
        return [Encoding(v, own.tokens) for v, own in zip(vectors, local, strict=True)]
