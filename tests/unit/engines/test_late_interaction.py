import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from workers.deadline import Deadline
from workers.engines.late_interaction import (
    CALIBRATION,
    WIDTH,
    Compressor,
    LateInteraction,
    interactions,
    zipf_weights,
)
from workers.model import Candidate, Encoding, Kind, Level, Question

STOP, COMMON, RARE = 1000, 2000, 30000
RNG = np.random.default_rng(7)
PROJECTION = np.linalg.qr(RNG.standard_normal((384, WIDTH)))[0].astype(np.float32)
COMPRESSOR = Compressor(PROJECTION, frozenset({STOP}))


def tokens(*ids: int) -> NDArray[np.int64]:
    return np.array(ids, np.int64)


def states(count: int, seed: int = 0) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((count, 384)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def passage(count: int, seed: int) -> bytes:
    return COMPRESSOR.compress(np.full(count, RARE), states(count, seed))


def query(count: int = 9, seed: int = 99) -> Encoding:
    ids = np.arange(COMMON, COMMON + count)
    vector = np.ones(384, np.float32) / np.sqrt(np.float32(384))
    return Encoding(vector, COMPRESSOR.pack_query(ids, states(count, seed)))


def score(question: Encoding, candidates: list[Candidate]) -> list[float | None]:
    return LateInteraction().score(Question("why", question), candidates, Deadline.after(60))


def candidate(packed: bytes | None, length: int = 100, distance: float = 0.5) -> Candidate:
    return Candidate("0" * 64, Level.L0, distance, length, packed)


def tokens_of(encoding: Encoding) -> bytes:
    assert encoding.tokens is not None
    return encoding.tokens


def test_stop_words_are_not_stored() -> None:
    rows = states(3)

    packed = COMPRESSOR.compress(tokens(RARE, STOP, COMMON), rows)

    assert packed == COMPRESSOR.compress(tokens(RARE, COMMON), rows[[0, 2]])
    assert len(packed) == 2 * WIDTH


def test_a_text_of_stop_words_alone_keeps_them_all() -> None:
    assert len(COMPRESSOR.compress(tokens(STOP, STOP), states(2))) == 2 * WIDTH


def test_a_text_without_tokens_is_prepared_and_near_nothing() -> None:
    empty = COMPRESSOR.compress(tokens(), states(0))

    assert empty == b""
    assert interactions(tokens_of(query()), [empty, passage(3, 1), empty])[::2] == [0, 0]
    assert interactions(COMPRESSOR.pack_query(tokens(), states(0)), [passage(3, 1)]) == [0]


def test_a_state_that_the_projection_erases_does_no_harm() -> None:
    nothing = COMPRESSOR.compress(tokens(RARE), np.zeros((1, 384), np.float32))

    assert interactions(tokens_of(query()), [nothing]) == [0]


def test_bytes_keep_cosines_to_a_hundredth() -> None:
    asked, stored = states(1, 1) @ PROJECTION, states(1, 2) @ PROJECTION
    exact = float((asked @ stored.T).item() / np.linalg.norm(asked) / np.linalg.norm(stored))

    packed = COMPRESSOR.pack_query(tokens(RARE), states(1, 1))

    assert interactions(packed, [passage(1, 2)]) == [pytest.approx(exact, abs=0.01)]


def test_a_passage_that_says_the_question_itself_is_as_near_as_can_be() -> None:
    ids, rows = tokens(COMMON, RARE), states(2)

    (z,) = interactions(COMPRESSOR.pack_query(ids, rows), [COMPRESSOR.compress(ids, rows)])

    assert z == pytest.approx(1, abs=1e-6)


def test_rare_words_of_the_question_count_for_more() -> None:
    asked, rows = tokens(COMMON, RARE), np.eye(384, dtype=np.float32)[:2]
    compressor = Compressor(np.eye(384, WIDTH, dtype=np.float32), frozenset())
    packed = compressor.pack_query(asked, rows)

    common, rare = interactions(
        packed, [compressor.compress(tokens(7), rows[:1]), compressor.compress(tokens(7), rows[1:])]
    )

    assert 0 < common < rare < 1
    assert common + rare == pytest.approx(1)


def test_weights_sum_to_one_even_if_no_token_says_anything() -> None:
    assert zipf_weights(tokens(COMMON, RARE, RARE)).sum() == pytest.approx(1)
    assert zipf_weights(tokens(100, 100)).tolist() == [0.5, 0.5]
    assert zipf_weights(tokens()).tolist() == []


@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    asked=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_pair_without_neighbours_scores_the_same_in_any_company(
    lengths: list[int], asked: int, seed: int
) -> None:
    candidates = [candidate(passage(n, seed + i), 10 * n + 1) for i, n in enumerate(lengths)]
    question = query(asked, seed)
    together = score(question, candidates)
    order = random.Random(seed).sample(range(len(candidates)), len(candidates))

    shuffled = score(question, [candidates[index] for index in order])
    half = score(question, candidates[: len(candidates) // 2])
    alone = [score(question, [one])[0] for one in candidates]

    assert shuffled == [together[index] for index in order]
    assert half == together[: len(half)]
    assert alone == together


def test_more_passages_than_one_block_score_as_they_do_alone() -> None:
    passages = [passage(1 + index % 7, index) for index in range(300)]

    together = interactions(tokens_of(query()), passages)

    assert together == [interactions(tokens_of(query()), [one])[0] for one in passages]


def test_the_largest_values_bytes_can_hold_do_not_overflow() -> None:
    largest = b"\x81" * WIDTH + b"\x7f" * WIDTH  # -127 and 127
    packed = b"\x01\x01\x00" + np.float32(1).tobytes() + b"\x7f" * WIDTH

    assert interactions(packed, [largest]) == [pytest.approx(1, abs=1e-6)]


def test_candidates_never_prepared_have_no_score_and_do_not_move_the_others() -> None:
    prepared = [candidate(passage(4, seed)) for seed in range(2)]

    scores = score(query(), [prepared[0], candidate(None), prepared[1]])

    assert scores[1] is None
    assert scores[::2] == score(query(), prepared)


def test_a_question_without_token_vectors_scores_nothing() -> None:
    bare = Encoding(query().vector, None)

    assert score(bare, [candidate(passage(3, 0))]) == [None]


def test_no_candidates_no_scores() -> None:
    assert score(query(), []) == []


@pytest.mark.parametrize("packed", [b"", b"\x02\x00\x00", tokens_of(query())[:-1], b"\x01\x05\x00"])
def test_bytes_that_are_not_a_question_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="of a question"):
        interactions(packed, [passage(1, 0)])


def test_bytes_that_are_not_a_passage_are_refused() -> None:
    with pytest.raises(ValueError, match="of a passage"):
        interactions(tokens_of(query()), [passage(2, 0), b"\x00" * 100])


@pytest.mark.parametrize("is_turn", [True, False])
def test_the_score_falls_with_no_signal_and_stays_within_its_bounds(is_turn: bool) -> None:
    def of(z: float, cosine: float, lexical: float, length: int) -> float:
        return CALIBRATION.score(z, cosine, lexical, length, is_turn=is_turn)

    for length in (0, 1, 300, 10**6):
        assert of(0.5, 0.5, 0.5, length) < of(0.500001, 0.5, 0.5, length)
        assert of(0.5, 0.5, 0.5, length) < of(0.5, 0.500001, 0.5, length)
        assert of(0.5, 0.5, 0.5, length) <= of(0.5, 0.5, 0.500001, length)
        assert 0 <= of(-1, -1, 0, length) < 0.05
        assert 0.95 < of(1, 1, 1, length) <= 1


@pytest.mark.parametrize("is_turn", [True, False])
def test_length_changes_the_score_smoothly(is_turn: bool) -> None:
    scores = [
        CALIBRATION.score(0.5, 0.2, 0.2, length, is_turn=is_turn) for length in range(1, 3000)
    ]

    assert scores == sorted(scores, reverse=True)  # the same match is worth less in a long text
    assert max(a - b for a, b in pairwise(scores)) < 0.01


def test_the_very_name_that_was_asked_for_outweighs_all_of_its_parts() -> None:
    asked = query()
    alike = candidate(passage(4, 1), distance=0.0)._replace(text_length=1)
    named = candidate(passage(4, 2), distance=0.6)._replace(text_length=1, is_named=True)

    parts, whole, plain = score(asked, [alike, named, named._replace(is_named=False)])

    assert parts is not None
    assert whole is not None
    assert plain is not None
    assert plain < parts < whole <= 1


def test_its_own_words_say_nothing_of_a_short_turn() -> None:
    silent, wordy = (candidate(passage(4, 1))._replace(bm25=bm25) for bm25 in (0.0, 24.0))
    turns = [one._replace(kind=Kind.TURN) for one in (silent, wordy)]
    notes = [one._replace(kind=Kind.NOTE) for one in (silent, wordy)]

    of_turns, of_notes = score(query(), turns), score(query(), notes)

    assert of_turns[0] == of_turns[1]
    assert of_notes[0] is not None
    assert of_notes[1] is not None
    assert of_notes[0] < of_notes[1]


def placed(packed: bytes | None, position: int | None, **fields: Any) -> Candidate:
    beside = {"kind": Kind.TURN, "source": "talk", "position": position} | fields
    return candidate(packed)._replace(**beside)


def alone(one: Candidate) -> float:
    (found,) = score(query(), [one])
    assert found is not None
    return found


def test_a_neighbour_that_answers_better_lifts_a_passage_and_is_not_pulled_down() -> None:
    question = query()
    answering = COMPRESSOR.compress(np.arange(COMMON, COMMON + 9), states(9, 99))  # itself
    here, before = placed(passage(4, 1), 7), placed(answering, 6)

    lifted, same = score(question, [here, before])

    assert lifted is not None
    assert alone(here) < lifted < alone(before)
    assert same == alone(before)


def test_what_was_said_before_counts_more_than_what_comes_after_and_than_what_is_farther() -> None:
    answering = COMPRESSOR.compress(np.arange(COMMON, COMMON + 9), states(9, 99))
    here = placed(passage(4, 1), 7)
    lifted = {
        position: score(query(), [here, placed(answering, position)])[0] or 0.0
        for position in range(3, 12)
    }

    assert lifted[6] > lifted[5] > alone(here)
    assert lifted[6] > lifted[8] > lifted[9] > alone(here)
    assert {lifted[position] for position in (3, 4, 7, 10, 11)} == {alone(here)}


@pytest.mark.parametrize(
    "other",
    [
        {"source": "another"},
        {"kind": Kind.NOTE},
        {"level": Level.L1},
        {"position": None},
        {"tokens": None},
    ],
)
def test_only_what_stands_beside_it_in_its_source_is_a_neighbour(other: dict[str, Any]) -> None:
    answering = COMPRESSOR.compress(np.arange(COMMON, COMMON + 9), states(9, 99))
    here, elsewhere = placed(passage(4, 1), 7), placed(answering, 6)._replace(**other)

    assert score(query(), [here, elsewhere])[0] == alone(here)


def test_each_part_of_a_long_turn_is_a_neighbour_and_has_them() -> None:
    answering = COMPRESSOR.compress(np.arange(COMMON, COMMON + 9), states(9, 99))
    first, second = placed(passage(4, 1), 7), placed(passage(4, 2), 7)
    before, other = placed(answering, 6), placed(passage(3, 3), 6)

    found = score(query(), [first, second, before, other])
    turned = score(query(), [other, before, second, first])

    assert found == turned[::-1]
    assert (found[0] or 0.0) > alone(first)
    assert (found[1] or 0.0) > alone(second)


@given(positions=st.lists(st.integers(0, 12), min_size=1, max_size=40), seed=st.integers(0, 2**32))
def test_neighbours_count_the_same_in_any_order(positions: list[int], seed: int) -> None:
    found = [placed(passage(3, seed + row), place) for row, place in enumerate(positions)]
    order = random.Random(seed).sample(range(len(found)), len(found))
    together = score(query(), found)

    shuffled = score(query(), [found[index] for index in order])

    assert shuffled == [together[index] for index in order]
    assert all((one or 0.0) >= alone(other) for one, other in zip(together, found, strict=True))


def test_a_better_cosine_lifts_a_candidate_with_equal_tokens() -> None:
    near, far = candidate(passage(4, 1), distance=0.2), candidate(passage(4, 1), distance=0.8)

    higher, lower = score(query(), [near, far])

    assert higher is not None
    assert lower is not None
    assert higher > lower


@pytest.mark.parametrize(("limit", "depth"), [(1, 50), (5, 50), (6, 60), (10, 100), (50, 100)])
def test_as_many_are_scored_as_one_leg_of_recall_finds(limit: int, depth: int) -> None:
    assert LateInteraction(100).depth(limit) == depth


@pytest.mark.parametrize("most", [0, 7])
def test_no_more_are_scored_than_is_set(most: int) -> None:
    assert LateInteraction(most).depth(5) == most
