"""Two legs make one ranking, and neither is given what it did not find."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.model import Candidate, Level, Method
from workers.pipeline.fusion import Weights, best_first, fuse, weights_of

HALF = Weights(0.5, 0.5)


def found(name: str, distance: float | None, bm25: float | None) -> Candidate:
    return Candidate(name, Level.L1, distance, bm25=bm25)


def test_a_good_place_in_both_legs_beats_the_first_place_in_one() -> None:
    ranking = fuse([found("one", 1.0, 12.0), found("both", 0.3, 8.0)], HALF)

    assert [one.sha256 for one in ranking] == ["both", "one"]


def test_a_fused_score_is_the_weighted_sum_of_both_in_zero_to_one() -> None:
    (one,) = fuse([found("a", 0.3, 8.0)], Weights(0.6, 0.4))

    assert one.fused == pytest.approx(0.6 * 0.7 + 0.4 * 0.5, abs=1e-9)


def test_one_word_more_counts_the_most_about_the_score_that_is_half() -> None:
    scores = [found("a", None, bm25).lexical or 0.0 for bm25 in (0.0, 2.0, 8.0, 10.0, 24.0, 26.0)]

    assert scores == sorted(scores)
    assert scores[2] == 0.5
    assert scores[3] - scores[2] > scores[1] - scores[0] > scores[5] - scores[4]


def test_what_a_leg_did_not_look_for_adds_nothing() -> None:
    only_near, only_words = fuse([found("near", 0.0, None), found("words", None, 8.0)], HALF)

    assert (only_near.sha256, only_near.fused) == ("near", 0.5)
    assert (only_words.sha256, only_words.fused) == ("words", 0.25)


@pytest.mark.parametrize(
    ("method", "has_vector", "weights"),
    [
        (Method.HYBRID, True, Weights(0.75, 0.25)),
        (Method.HYBRID, False, Weights(0.0, 1.0)),
        (Method.SEMANTIC, True, Weights(1.0, 0.0)),
        (Method.LEXICAL, True, Weights(0.0, 1.0)),
    ],
)
def test_the_weight_of_a_leg_that_there_is_not_goes_to_the_other(
    method: Method, has_vector: bool, weights: Weights
) -> None:
    assert weights_of(method, 0.75, has_vector) == weights


scores = st.floats(0, 1e6)
some = st.lists(st.tuples(st.floats(0, 2), scores), max_size=30)


@given(some, st.floats(0, 1))
def test_a_candidate_s_score_does_not_depend_on_the_others(
    places: list[tuple[float, float]], weight: float
) -> None:
    weights = Weights(weight, 1 - weight)
    candidates = [found(f"n{index}", *place) for index, place in enumerate(places)]

    together = {one.sha256: one.fused for one in fuse(candidates, weights)}

    assert together == {one.sha256: fuse([one], weights)[0].fused for one in candidates}
    assert all(0 <= score <= 1 for score in together.values())


@given(some)
def test_the_order_is_total_whatever_order_the_legs_came_in(
    places: list[tuple[float, float]],
) -> None:
    candidates = [found(f"n{index}", *place) for index, place in enumerate(places)]

    assert fuse(candidates, HALF) == fuse(candidates[::-1], HALF)


def test_what_was_reranked_comes_before_what_was_not() -> None:
    plain = found("a", 0.0, 50.0)._replace(fused=0.9)
    scored = found("b", 1.0, 0.0)._replace(fused=0.1, rerank_score=0.01)

    assert sorted([plain, scored], key=best_first) == [scored, plain]
