"""Stand-ins for the engines and for time."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from workers.deadline import Deadline
from workers.model import EmbeddingModel, Encoding


class FakeClock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def deadline_in(self, seconds: float) -> Deadline:
        return Deadline.after(seconds, lambda: self.now)


class FakeEncoder:
    """Deterministic vectors from a text's hash. `on_call` runs before each answer."""

    token_model: str | None = "fake-tokens"
    most_tokens: int = 256

    def __init__(self, dimension: int = 8, on_call: Callable[[], None] = lambda: None) -> None:
        self.model = EmbeddingModel("fake", None, dimension)
        self.asked: list[str] = []
        self.on_call = on_call

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def encode_query(self, text: str, deadline: Deadline) -> Encoding:
        self.asked.append(text)
        self.on_call()
        return self._encoding(text)

    def encode_passages(self, texts: Sequence[str]) -> list[Encoding]:
        return [self._encoding(text) for text in texts]

    def _encoding(self, text: str) -> Encoding:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        raw = np.frombuffer(digest[: self.model.dimension], np.uint8).astype(np.float32) - 127.5
        return Encoding(raw / np.linalg.norm(raw), digest)
