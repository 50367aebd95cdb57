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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.deadline import Deadline
from workers.engines.minilm import MiniLM
from workers.model import Candidate, Kind, Level, Question

NAMED = 0.5
"""What the very name that was asked for adds to z, more than its parts can make up: to the model a
name is no more than these, in any text and any order."""
WIDTH = 128  # numbers a token vector keeps, one byte each
FEWEST = 50  # candidates worth scoring for the shortest answer
NEIGHBOURS = {-1: 0.6, -2: 0.4, 1: 0.4, 2: 0.2}
"""What a neighbour counts, by its distance in the source: more before a passage than after it."""
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


class Place(NamedTuple):
    """Where a passage stands among those of its sort in its source."""

    level: Level
    kind: Kind
    source: str
    position: int


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
class Anchor:
    """What counts beside late interaction for passages of one sort, and where they part."""

    cosine: float
    lexical: float
    midpoint: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How late interaction z, cosine and lexical score of a pair become one score.

    score = sigmoid(slope * (z + a * cosine + b * lexical - midpoint)). The three depend on the
    length of the passage, from `short_length` characters and less to `long_length` and more, even
    in the logarithm of the length: the best of n tokens grows about so with n, and the cosine says
    more about a paragraph than about a remark.

    A short turn has an anchor of its own. It is a piece of a talk: what it is about was often said
    in the turn before, which z sees, whereas its cosine and its words are those of the piece. Its
    words also compare the least between projects.

    The values are fitted by hand, once, on conversations and technical documentation: to order
    well, and to put the relevant above 0.5 and the rest below it at any length. They are not
    learned from what is searched.
    """

    slope: float
    short_length: int
    long_length: int
    turn: Anchor
    short: Anchor
    long: Anchor

    def score(
        self, z: float, cosine: float, lexical: float, characters: int, *, is_turn: bool = False
    ) -> float:
        """The score in [0, 1] of one pair; it falls with none of the three."""
        ratio = self.long_length / self.short_length
        share = math.log(max(1, characters) / self.short_length) / math.log(ratio)
        share = min(1.0, max(0.0, share))
        short, long = self.turn if is_turn else self.short, self.long
        a = short.cosine + share * (long.cosine - short.cosine)
        b = short.lexical + share * (long.lexical - short.lexical)
        midpoint = short.midpoint + share * (long.midpoint - short.midpoint)
        return _sigmoid(self.slope * (z + a * cosine + b * lexical - midpoint))


CALIBRATION = Calibration(
    slope=9.0,
    short_length=200,
    long_length=1000,
    turn=Anchor(cosine=0.1, lexical=0.0, midpoint=0.60),
    short=Anchor(cosine=0.25, lexical=0.2, midpoint=0.64),
    long=Anchor(cosine=0.5, lexical=0.2, midpoint=0.84),
)


def _sigmoid(x: float) -> float:
    # From the side that does not overflow; float64, so that close pairs do not become equal.
    if x < 0:
        return math.exp(x) / (1 + math.exp(x))
    return 1 / (1 + math.exp(-x))


def interactions(
    query: bytes, passages: Sequence[bytes], places: Sequence[Place | None] = ()
) -> list[float]:
    """z = sum_i w_i n_i of each passage, n_i = max_j cos(q_i, p_j): -1 to 1; 0 without tokens.

    Where a passage has a place, what its neighbours among the others have more of a token counts
    as well, by the share of the one with the most: n_i + max_k s_k (n_ik - n_i). An answer is about
    what was asked before it, and a section about what the one above it has introduced.

    But for neighbours exactly the same for a passage whatever the others are: products of bytes are
    whole numbers that float32 holds exactly (128 * 127 * 127 < 2**24), so the order in which a
    matrix product adds them, which does depend on its shape, cannot be seen. Everything after is
    element by element.

    Args:
        query: from `Compressor.pack_query`.
        passages: from `Compressor.compress`.
        places: of each passage; left out: no passage has one.

    Raises:
        ValueError: bytes that are neither.
    """
    weights, asked = _unpack_query(query)
    nearest = np.zeros((len(passages), len(weights)))
    for start in range(0, len(passages), BLOCK):
        block = passages[start : start + BLOCK]
        nearest[start : start + len(block)] = _nearest(asked, block)
    lifted = nearest + _lift(nearest, places)
    total = np.zeros(len(passages))
    for weight, column in zip(weights, lifted.T, strict=True):
        total += weight * column  # one by one: numpy's sums add in an order that depends on shape
    return total.tolist()


def _nearest(asked: NDArray[np.float32], passages: Sequence[bytes]) -> NDArray[np.float64]:
    """The best cosine of each passage with each token asked for; 0 without tokens."""
    if any(len(passage) % WIDTH for passage in passages):
        raise ValueError("these are not the token vectors of a passage")
    counts = [len(passage) // WIDTH for passage in passages]
    filled = [index for index, count in enumerate(counts) if count]
    found = np.zeros((len(passages), len(asked)))
    if not filled or not len(asked):
        return found
    rows = _unpack_rows(b"".join(passages))
    cosines = rows @ asked.T
    cosines /= _norms(rows)[:, np.newaxis]
    # A passage without tokens has no segment; to reduceat an empty one would be its neighbour's.
    starts = np.cumsum([0, *(counts[index] for index in filled)])[:-1]
    found[filled] = np.maximum.reduceat(cosines, starts, axis=0)
    found /= _norms(asked)
    return found


def _lift(
    nearest: NDArray[np.float64], places: Sequence[Place | None]
) -> NDArray[np.float64] | float:
    """What the neighbours of each passage add to it."""
    rows = np.array([row for row, place in enumerate(places) if place is not None], np.int64)
    if len(rows) < 2:
        return 0.0
    sources: dict[tuple[Level, Kind, str], int] = {}
    # A number for each place, one more for the next in its source, far from those of other sources.
    own = np.array(
        [
            (sources.setdefault(place[:3], len(sources)) << 34) + place.position
            for place in places
            if place is not None
        ],
        np.int64,
    )
    numbers, which = np.unique(own, return_inverse=True)  # parts of a long turn share its place
    best = np.full((len(numbers), nearest.shape[1]), -1.0)
    np.maximum.at(best, which, nearest[rows])
    lift = np.zeros_like(nearest)
    for distance, share in NEIGHBOURS.items():
        beside = np.searchsorted(numbers, own + distance).clip(max=len(numbers) - 1)
        is_there = numbers[beside] == own + distance
        here = rows[is_there]
        lift[here] = np.maximum(lift[here], share * (best[beside[is_there]] - nearest[here]))
    return lift


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
    batch = 1000  # all there can be: neighbours are to be seen, and a hundred take milliseconds

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
        deadline: Deadline,  # noqa: ARG002  # see `batch`
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
        prepared = [one for one in candidates if one.tokens is not None]
        sums = iter(
            interactions(
                query.tokens,
                [one.tokens for one in prepared if one.tokens is not None],
                [_place(one) for one in prepared],
            )
        )
        return [
            None
            if one.tokens is None
            else CALIBRATION.score(
                next(sums) + (NAMED if one.is_named else 0.0),
                _cosine(one),
                one.lexical or 0.0,
                one.text_length,
                is_turn=one.kind is Kind.TURN,
            )
            for one in candidates
        ]


def _cosine(candidate: Candidate) -> float:
    return 0.0 if candidate.distance is None else 1 - candidate.distance


def _place(candidate: Candidate) -> Place | None:
    kind, source, position = candidate.kind, candidate.source, candidate.position
    if kind is None or source is None or position is None:
        return None
    return Place(candidate.level, kind, source, position)
