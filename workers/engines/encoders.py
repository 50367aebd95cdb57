"""Encoders: what `workers.ports.Encoder` asks for, from the embedded model or from a server."""

from collections.abc import Sequence

from workers.deadline import Deadline
from workers.engines import minilm
from workers.engines.http_embedder import HttpEmbedder
from workers.engines.late_interaction import Compressor
from workers.engines.minilm import MiniLM, Reading
from workers.engines.projection import TOKEN_MODEL
from workers.errors import EmbeddingServiceUnavailable
from workers.ingest.chunks import estimated_tokens
from workers.model import EmbeddingModel, Encoding, Refused, Vector


class EmbeddedEncoder:
    """The embedded model alone: one pass gives the vector and the token vectors."""

    model: EmbeddingModel = minilm.MODEL
    most_tokens: int = minilm.MAX_TOKENS

    def __init__(self, model: MiniLM, compressor: Compressor | None) -> None:
        """compressor: None where no embedded reranker will read the token vectors."""
        self.token_model: str | None = TOKEN_MODEL if compressor else None
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
        if self._compressor is None or not reading.is_understood:
            return Encoding(reading.vector, None, reading.is_understood)
        return Encoding(
            reading.vector, self._compressor.pack_query(reading.token_ids, reading.states)
        )

    def count_tokens(self, text: str) -> int:
        """Of a whole text, by the model's own tokenizer."""
        return self._minilm.count_tokens(text)

    def warm_up(self) -> None:
        """Run the model once: its first pass is slower than the others."""
        self.encode_passages(["warm up"])

    def encode_passages(self, texts: Sequence[str]) -> list[Encoding | Refused]:
        """Encode stored texts, results in the order given."""

        def encoding(reading: Reading) -> Encoding | Refused:
            if self._compressor is None:
                return Encoding(reading.vector, None)
            tokens = self._compressor.compress(reading.token_ids, reading.states)
            return Encoding(reading.vector, tokens)

        return self._minilm.read_each(texts, encoding)

    def embed_passages(self, texts: Sequence[str]) -> list[Vector | Refused]:
        """Only the vectors of stored texts, results in the order given."""
        return self._minilm.read_each(texts, lambda reading: reading.vector)

    def prepare_passages(self, texts: Sequence[str]) -> list[bytes | None]:
        """Only what the reranker wants prepared of stored texts, results in the order given."""
        return [own.tokens for own in self.encode_passages(texts) if isinstance(own, Encoding)]


class HttpEncoder:
    """Vectors from a server; token vectors, if wanted, from the embedded model beside it."""

    def __init__(self, embedder: HttpEmbedder, tokens: EmbeddedEncoder | None) -> None:
        """tokens: None where no embedded reranker will read them."""
        self.model: EmbeddingModel = embedder.model
        self.token_model = tokens.token_model if tokens else None
        self.most_tokens = embedder.most_tokens
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

    def encode_passages(self, texts: Sequence[str]) -> list[Encoding | Refused]:
        """Encode stored texts, results in the order given; those without a vector are refused.

        Raises:
            EmbeddingServiceUnavailable: the server failed.
            ModelMismatch: its vectors have another dimension.
        """
        vectors = self._embedder.embed_passages(texts)
        local: Sequence[Encoding | Refused | None] = [None] * len(texts)
        if self._tokens is not None:
            local = self._tokens.encode_passages(texts)
        return [_joined(vector, own) for vector, own in zip(vectors, local, strict=True)]

    def embed_passages(self, texts: Sequence[str]) -> list[Vector | Refused]:
        """Only the vectors of stored texts; the embedded model is not run.

        Raises:
            As `encode_passages`.
        """
        return self._embedder.embed_passages(texts)

    def prepare_passages(self, texts: Sequence[str]) -> list[bytes | None]:
        """Only what the reranker wants prepared of stored texts; the server is not asked."""
        return self._tokens.prepare_passages(texts) if self._tokens else [None] * len(texts)

    def count_tokens(self, text: str) -> int:
        """An estimate that is rather too high: the server has the tokenizer."""
        return estimated_tokens(text)

    def warm_up(self) -> None:
        """Run the embedded model, if there is one, and ask the server for a vector.

        Raises:
            EmbeddingServiceUnavailable: the server does not answer.
            ModelMismatch: its vectors have another dimension.
        """
        if self._tokens is not None:
            self._tokens.warm_up()
        self._embedder.warm_up()


def _joined(vector: Vector | Refused, own: Encoding | Refused | None) -> Encoding | Refused:
    if isinstance(vector, Refused):
        return vector
    return Encoding(vector, own.tokens if isinstance(own, Encoding) else None)
