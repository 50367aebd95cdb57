"""Late interaction: token vectors kept at ingest, compared at query time.

Each token of the question looks for its nearest token of the passage, and the cosines are summed
(Khattab and Zaharia, "ColBERT", SIGIR 2020), here over the states of the embedding model, weighted
by how rare a question's tokens are. It is not a cross-encoder: question and passage never meet
inside the model.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.deadline import Deadline
from workers.engines.minilm import MiniLM
from workers.model import Candidate, Question

NAMED = 0.5  # what the very name that was asked for adds to z: more than its parts can make up
WIDTH = 128  # numbers a token vector keeps, one byte each
FEWEST = 50  # candidates worth scoring for the shortest answer
BLOCK = 128  # passages unpacked at once: bounds the memory of a long list

_COMMON = 996  # WordPiece ids up to here are special or unused; after them, by frequency

_QUERY_VERSION = 1
_QUERY_HEADER = struct.Struct("<BH")  # version, number of tokens

_STOP_WORDS = """
a about after all also am an and any are as at be because been before being but by can could
did do does doing for from had has have having he her hers him his i if in into is it its just
me my of on or our ours out over own s she should so some such t than that the their theirs
them then there these they this those through to too under until up us very was we were will
with would you your yours
. , ; : ! ? ' " ` ( ) [ ] { } - / \\ | * _ = < > # ~
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words and signs whose states say little by themselves: neither stored nor asked for."""


def stop_ids(minilm: MiniLM) -> frozenset[int]:
    """The WordPiece ids of `STOP_WORDS`; each is a token of its own."""
    return frozenset(minilm.token_id(word) for word in STOP_WORDS)


class Compressor:
    """Turns token states into what is stored (passages) and asked (questions)."""

    def __init__(self, projection: NDArray[np.float32], stop_ids: frozenset[int]) -> None:
        """projection: shape (384, 128). stop_ids: WordPiece ids that are left out."""
        self._projection = projection
        self._stop_ids = np.array(sorted(stop_ids), np.int64)

    def compress(self, token_ids: NDArray[np.int64], states: NDArray[np.float32]) -> bytes:
        """A passage's token vectors, 128 signed bytes each, nothing between them.

        token_ids has shape (n,), states (n, 384). Stop words are dropped; if nothing else is
        there, all are kept. No scale is stored: rows are normalised when compared.
        """
        return self._rows(states[self._kept(token_ids)]).tobytes()

    def pack_query(self, token_ids: NDArray[np.int64], states: NDArray[np.float32]) -> bytes:
        """A question's token vectors with their weights, on their own enough to score with.

        Little-endian: version (1 byte), n (2 bytes), n weights (float32, summing to 1), then n rows
        of 128 signed bytes.
        """
        kept = self._kept(token_ids)
        weights = zipf_weights(token_ids[kept]).astype("<f4")
        header = _QUERY_HEADER.pack(_QUERY_VERSION, len(weights))
        return header + weights.tobytes() + self._rows(states[kept]).tobytes()

    def _kept(self, token_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        kept = np.isin(token_ids, self._stop_ids, invert=True)
        return kept if kept.any() else np.ones_like(kept)

    def _rows(self, states: NDArray[np.float32]) -> NDArray[np.int8]:
        # Per passage, never for a batch: the bytes of a passage must not depend on its neighbours.
        projected = states @ self._projection
        largest = np.abs(projected).max(axis=1, keepdims=True, initial=0)
        scaled = projected * (127 / np.where(largest == 0, 1, largest))
        return np.rint(scaled).astype(np.int8)


def zipf_weights(token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights of shape (n,) that sum to 1, larger for rarer tokens.

    The vocabulary is ordered by frequency, so by Zipf's law the logarithm of an id stands for how
    much its token says. Tokens that all weigh nothing weigh the same.
    """
    raw = np.log1p(np.maximum(token_ids - _COMMON, 0))
    if not raw.any():
        raw = np.ones_like(raw)
    weights: NDArray[np.float64] = raw / raw.sum()
    return weights


@dataclass(frozen=True, slots=True)
class Calibration:
    """How a pair's late interaction z and its cosine become a score.

    score = sigmoid(slope * (z + weight * cosine - midpoint)). Weight and midpoint depend on the
    length of the passage alone, from `short` characters and less to `long` characters and more,
    even in the logarithm of the length: the best of n tokens grows about so with n, and the
    cosine says more about a paragraph than about a remark. Kinds of node need no values of their
    own; at equal length they behave alike.

    The values are fitted by hand, once, on conversations and technical documentation: to order
    well, and to put the relevant above 0.5 and the rest below it at any length. They are not
    learned from what is searched, so scores compare between projects and stay the same.
    """

    slope: float
    short: int
    long: int
    short_weight: float
    long_weight: float
    short_midpoint: float
    long_midpoint: float

    def score(self, z: float, cosine: float, characters: int) -> float:
        """The score in [0, 1] of one pair; strictly increasing in z and in the cosine."""
        share = math.log(max(1, characters) / self.short) / math.log(self.long / self.short)
        share = min(1.0, max(0.0, share))
        weight = self.short_weight + share * (self.long_weight - self.short_weight)
        midpoint = self.short_midpoint + share * (self.long_midpoint - self.short_midpoint)
        return _sigmoid(self.slope * (z + weight * cosine - midpoint))


CALIBRATION = Calibration(
    slope=9.0,
    short=200,
    long=1000,
    short_weight=0.25,
    long_weight=0.5,
    short_midpoint=0.60,
    long_midpoint=0.80,
)


def _sigmoid(x: float) -> float:
    # From the side that does not overflow; float64, so that close pairs do not become equal.
    if x < 0:
        return math.exp(x) / (1 + math.exp(x))
    return 1 / (1 + math.exp(-x))


def interactions(query: bytes, passages: Sequence[bytes]) -> list[float]:
    """z = sum_i w_i max_j cos(q_i, p_j) of each passage, -1 to 1; 0 if either has no token.

    Exactly the same for a passage whatever the others are: products of bytes are whole numbers that
    float32 holds exactly (128 * 127 * 127 < 2**24), so the order in which a matrix product adds
    them, which does depend on its shape, cannot be seen. Everything after is element by element.

    Args:
        query: from `Compressor.pack_query`.
        passages: from `Compressor.compress`.

    Raises:
        ValueError: bytes that are neither.
    """
    weights, asked = _unpack_query(query)
    found: list[float] = []
    for start in range(0, len(passages), BLOCK):
        found += _interactions(weights, asked, passages[start : start + BLOCK])
    return found


def _interactions(
    weights: list[float], asked: NDArray[np.float32], passages: Sequence[bytes]
) -> list[float]:
    if any(len(passage) % WIDTH for passage in passages):
        raise ValueError("these are not the token vectors of a passage")
    counts = [len(passage) // WIDTH for passage in passages]
    filled = [index for index, count in enumerate(counts) if count]
    sums = np.zeros(len(passages))
    if not filled or not weights:
        return sums.tolist()
    rows = _unpack_rows(b"".join(passages))
    cosines = rows @ asked.T
    cosines /= _norms(rows)[:, np.newaxis]
    # A passage without tokens has no segment; to reduceat an empty one would be its neighbour's.
    starts = np.cumsum([0, *(counts[index] for index in filled)])[:-1]
    nearest = np.maximum.reduceat(cosines, starts, axis=0).astype(np.float64)
    nearest /= _norms(asked)
    total = np.zeros(len(filled))
    for weight, column in zip(weights, nearest.T, strict=True):
        total += weight * column  # one by one: numpy's sums add in an order that depends on shape
    sums[filled] = total
    return sums.tolist()


def _unpack_query(packed: bytes) -> tuple[list[float], NDArray[np.float32]]:
    if len(packed) < _QUERY_HEADER.size:
        raise ValueError("these are not the token vectors of a question")
    version, count = _QUERY_HEADER.unpack_from(packed)
    weights_end = _QUERY_HEADER.size + 4 * count
    if version != _QUERY_VERSION or len(packed) != weights_end + WIDTH * count:
        raise ValueError("these are not the token vectors of a question")
    weights = np.frombuffer(packed[_QUERY_HEADER.size : weights_end], "<f4")
    return weights.astype(np.float64).tolist(), _unpack_rows(packed[weights_end:])


def _unpack_rows(packed: bytes) -> NDArray[np.float32]:
    return np.frombuffer(packed, np.int8).reshape(-1, WIDTH).astype(np.float32)


def _norms(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    squares = np.einsum("ij,ij->i", rows, rows)  # whole numbers again: exact
    norms: NDArray[np.float32] = np.sqrt(np.maximum(squares, 1))  # a row of zeros is near nothing
    return norms


class LateInteraction:
    """The embedded reranker; implements `workers.ports.Reranker`. Without state."""

    name = "late-interaction-minilm"
    needs_text = False
    batch = 32

    def __init__(self, depth: int = 100) -> None:
        """depth: most candidates worth scoring, which are many since each costs little."""
        self._depth = depth

    def depth(self, limit: int) -> int:
        """Ten times what is shown, at least 50: as many as one leg of recall finds."""
        return min(self._depth, max(FEWEST, 10 * limit))

    def score(
        self,
        question: Question,
        candidates: Sequence[Candidate],
        deadline: Deadline,  # noqa: ARG002  # a batch takes a millisecond
    ) -> list[float | None]:
        """One score in [0, 1] per candidate; None for a candidate without token vectors.

        About 0.5 is where relevant and irrelevant passages part. Not a probability: among a
        hundred candidates few are relevant, and 0.5 does not know how few.

        Raises:
            ValueError: tokens that `Compressor` did not make.
        """
        query = question.encoding
        if query is None or query.tokens is None:
            return [None] * len(candidates)
        # To the model a name is what its parts are, in any text and any order.
        named = [NAMED if candidate.is_named else 0.0 for candidate in candidates]
        packed = [candidate.tokens for candidate in candidates]
        sums = iter(interactions(query.tokens, [tokens for tokens in packed if tokens is not None]))
        return [
            None
            if candidate.tokens is None
            else CALIBRATION.score(next(sums) + bonus, _cosine(candidate), candidate.text_length)
            for candidate, bonus in zip(candidates, named, strict=True)
        ]


def _cosine(candidate: Candidate) -> float:
    return 0.0 if candidate.distance is None else 1 - candidate.distance
