"""Trying a parameter with several values."""

import numpy as np
import pytest

from app.eval.errors import CannotAsk
from app.eval.metrics import FIGURES, Values
from app.eval.sweep import Sweep, Swept, curve_of, parse_sweep


def values_of(*main: float) -> Values:
    """Every figure of each question at once."""
    return np.repeat(np.array(main)[:, None], len(FIGURES), axis=1)


def test_both_ends_are_tried() -> None:
    assert parse_sweep("rerank_depth=0:100:25") == Sweep("rerank_depth", (0, 25, 50, 75, 100))


def test_fractions_add_up_to_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parse_sweep.__globals__["SWEPT"], "weight", Swept(0, 1, False, ("hybrid",)))

    assert parse_sweep("weight=0:1:.1").values == (
        0,
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
        1,
    )
    assert parse_sweep("weight=.25:.5:1").values == (0.25,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("depth=0:1:1", "'depth' cannot be swept; there is rerank_depth"),
        ("rerank_depth", "is not rerank_depth=FROM:TO:STEP"),
        ("rerank_depth=1:2", "is not rerank_depth=FROM:TO:STEP"),
        ("rerank_depth=1:two:1", "is not rerank_depth=FROM:TO:STEP"),
        ("rerank_depth=-1:10:1", "goes from 0 to 500"),
        ("rerank_depth=0:501:1", "goes from 0 to 500"),
        ("rerank_depth=10:5:1", "goes from 0 to 500"),
        ("rerank_depth=nan:5:1", "goes from 0 to 500"),
        ("rerank_depth=0:10:0", "step must be above 0"),
        ("rerank_depth=0:10:nan", "step must be above 0"),
        ("rerank_depth=0:10:inf", "step must be above 0"),
        ("rerank_depth=0:10:.5", "takes whole numbers"),
        ("rerank_depth=0:500:1", "501 values; at most 101"),
    ],
)
def test_what_cannot_be_tried_is_told(text: str, reason: str) -> None:
    with pytest.raises(CannotAsk, match=reason):
        parse_sweep(text)


def test_the_best_value_is_told_with_what_it_gains_on_the_present_one() -> None:
    measured = {0.4: values_of(*[0.5] * 40), 0.5: values_of(*[0.4, 0.8] * 20)}

    curve = curve_of(measured, tried=(0.4, 0.5), default=0.4, seed=1)

    assert [row["value"] for row in curve["curve"]] == [0.4, 0.5]
    assert curve["curve"][1]["ndcg@10"] == pytest.approx(0.6)
    assert curve["best"] == 0.5
    assert curve["gain"] == pytest.approx(0.1)
    assert 0 < curve["interval"][0] < 0.1 < curve["interval"][1]
    assert curve["is_beyond_interval"]


def test_a_gain_on_a_few_questions_is_not_beyond_its_interval() -> None:
    measured = {1: values_of(0, 1, 0, 1, 0, 1), 2: values_of(1, 0, 1, 0, 1, 1)}

    curve = curve_of(measured, tried=(1, 2), default=1, seed=1)

    assert (curve["best"], curve["is_beyond_interval"]) == (2, False)


def test_of_equal_values_the_one_nearest_to_the_present_one_is_the_best() -> None:
    measured = {value: values_of(1, 1) for value in (0, 50, 100)}

    curve = curve_of(measured, tried=(0, 50), default=100, seed=1)

    assert (curve["best"], curve["gain"], curve["is_beyond_interval"]) == (50, 0, False)
