"""Reordering candidates: the best first, and never a shorter list."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.pipeline_fakes import (
    QUESTION,
    FakeClock,
    FakeScorer,
    candidate,
    ids,
    ranking_of,
)
from workers.deadline import Deadline
from workers.errors import DeadlineExceeded, NotReranked
from workers.model import Candidate, Question
from workers.pipeline.rerank import TRUNCATED, best_first, rerank

LATER = Deadline.after(10.0, lambda: 0.0)

distances = st.integers(0, 200).map(lambda hundredths: hundredths / 100)
recalls = st.dictionaries(
    st.text("abcdef0123456789", min_size=1, max_size=3), distances, max_size=40
).map(
    lambda found: [
        candidate(name, distance)
        for name, distance in sorted(found.items(), key=lambda item: (item[1], item[0]))
    ]
)


def test_candidates_are_ordered_by_their_pair_score() -> None:
    scorer = FakeScorer({"a": 0.2, "b": 0.9, "c": 0.5})

    reranked = rerank(QUESTION, ranking_of("a", "b", "c"), scorer, depth=3, deadline=LATER)

    assert ids(reranked.ranking) == ["b", "c", "a"]
    assert [c.rerank_score for c in reranked.ranking] == [0.9, 0.5, 0.2]
    assert (reranked.scored, reranked.reason == TRUNCATED) == (3, False)


def test_candidates_unscored_at_the_deadline_follow_in_recall_order() -> None:
    clock = FakeClock()
    scorer = FakeScorer({"a": 0.1, "b": 0.9}, on_call=clock.taking(1.0))
    candidates = ranking_of("a", "b", "c", "d")

    reranked = rerank(QUESTION, candidates, scorer, 4, clock.deadline_in(0.5), batch=2)

    assert ids(reranked.ranking) == ["b", "a", "c", "d"]
    assert (reranked.scored, reranked.reason == TRUNCATED) == (2, True)


def test_candidates_beyond_the_depth_are_never_scored_and_come_last() -> None:
    scorer = FakeScorer({"a": 0.0, "b": 0.1})

    reranked = rerank(QUESTION, ranking_of("a", "b", "c", "d"), scorer, depth=2, deadline=LATER)

    assert scorer.batches == [["a", "b"]]
    assert ids(reranked.ranking) == ["b", "a", "c", "d"]
    assert reranked.reason != TRUNCATED


def test_a_score_of_zero_is_a_score() -> None:
    scorer = FakeScorer({"near": None, "far": 0.0})

    reranked = rerank(QUESTION, ranking_of("near", "far"), scorer, depth=2, deadline=LATER)

    assert ids(reranked.ranking) == ["far", "near"]


def test_candidates_that_were_never_prepared_keep_recall_order_behind_the_others() -> None:
    scorer = FakeScorer({"a": None, "b": 0.3, "c": None, "d": 0.4})

    reranked = rerank(QUESTION, ranking_of("a", "b", "c", "d"), scorer, depth=4, deadline=LATER)

    assert ids(reranked.ranking) == ["d", "b", "a", "c"]
    assert reranked.reason != TRUNCATED


def test_equal_scores_are_ordered_by_distance_then_sha256() -> None:
    candidates = [candidate("z", 0.1), candidate("b", 0.2), candidate("a", 0.2)]
    scorer = FakeScorer({"z": 0.5, "b": 0.5, "a": 0.5})

    reranked = rerank(QUESTION, candidates, scorer, depth=3, deadline=LATER)

    assert ids(reranked.ranking) == ["z", "a", "b"]


class Failing(FakeScorer):
    """Scores some batches, then raises."""

    def __init__(self, error: Exception, good_batches: int = 0) -> None:
        super().__init__()
        self.error, self.good_batches = error, good_batches

    def score(
        self, question: Question, candidates: Sequence[Candidate], deadline: Deadline
    ) -> list[float | None]:
        if len(self.batches) == self.good_batches:
            raise self.error
        return super().score(question, candidates, deadline)


@pytest.mark.parametrize("good_batches", [0, 1])
def test_a_reranker_that_fails_leaves_the_order_of_recall(good_batches: int) -> None:
    scorer = Failing(NotReranked("reranker_unavailable", "it broke"), good_batches)

    reranked = rerank(QUESTION, ranking_of("a", "b", "c", "d"), scorer, 4, LATER, batch=2)

    assert ids(reranked.ranking) == ["a", "b", "c", "d"]
    assert all(one.rerank_score is None for one in reranked.ranking)
    assert (reranked.reason, reranked.message) == ("reranker_unavailable", "it broke")
    assert (reranked.scored, reranked.has_scored, reranked.reason == TRUNCATED) == (0, False, False)


def test_a_reranker_that_had_no_turn_is_limited() -> None:
    scorer = Failing(NotReranked("rerank_limited", "no slot"))

    reranked = rerank(QUESTION, ranking_of("a", "b"), scorer, 2, LATER)

    assert (reranked.reason, ids(reranked.ranking)) == ("rerank_limited", ["a", "b"])


@pytest.mark.parametrize(
    "error", [NotReranked("rerank_limited", "no slot"), DeadlineExceeded("late")]
)
def test_one_that_runs_out_of_time_or_turns_keeps_what_it_scored(error: Exception) -> None:
    scorer = Failing(error, good_batches=1)

    reranked = rerank(QUESTION, ranking_of("a", "b", "c", "d"), scorer, 4, LATER, batch=2)

    assert (reranked.scored, reranked.reason == TRUNCATED, reranked.has_scored) == (2, True, True)
    assert ids(reranked.ranking[2:]) == ["c", "d"]


def test_nothing_recalled_asks_the_engine_nothing() -> None:
    scorer = FakeScorer()

    reranked = rerank(QUESTION, [], scorer, depth=10, deadline=LATER)

    assert (reranked.ranking, reranked.scored, reranked.reason == TRUNCATED) == ((), 0, False)
    assert scorer.batches == []


def test_a_passed_deadline_scores_nothing_and_keeps_everything() -> None:
    clock = FakeClock()
    candidates = ranking_of("a", "b")

    reranked = rerank(QUESTION, candidates, FakeScorer(), 2, clock.deadline_in(0.0))

    assert ids(reranked.ranking) == ["a", "b"]
    assert (reranked.scored, reranked.reason == TRUNCATED) == (0, True)


@given(recalls, st.integers(0, 50), st.integers(1, 7))
def test_reranking_loses_and_invents_no_candidate(recalled: list, depth: int, batch: int) -> None:
    reranked = rerank(QUESTION, recalled, FakeScorer(), depth, LATER, batch)

    assert sorted(ids(reranked.ranking)) == sorted(ids(recalled))
    assert reranked.scored == min(depth, len(recalled))


@given(recalls, st.integers(1, 7), st.integers(1, 7))
def test_the_size_of_a_batch_changes_nothing(recalled: list, one: int, other: int) -> None:
    orders = [
        rerank(QUESTION, recalled, FakeScorer(), len(recalled), LATER, batch).ranking
        for batch in (one, other)
    ]

    assert orders[0] == orders[1]


@given(recalls, st.integers(0, 20), st.randoms(use_true_random=False))
def test_the_order_is_total_so_that_shuffling_changes_nothing(
    recalled: list, depth: int, chance: random.Random
) -> None:
    ranking = list(rerank(QUESTION, recalled, FakeScorer(), depth, LATER).ranking)
    shuffled = chance.sample(ranking, len(ranking))

    assert sorted(shuffled, key=best_first) == ranking


@given(recalls, st.integers(0, 40))
def test_whenever_time_ends_the_unscored_are_the_tail_in_recall_order(
    recalled: list, affordable: int
) -> None:
    clock = FakeClock()
    scorer = FakeScorer(on_call=clock.taking(1.0))

    reranked = rerank(QUESTION, recalled, scorer, len(recalled), clock.deadline_in(affordable), 1)

    scored = min(affordable, len(recalled))
    assert reranked.scored == scored
    assert ids(reranked.ranking[scored:]) == ids(recalled[scored:])
