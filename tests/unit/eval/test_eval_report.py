"""What an evaluation tells."""

from typing import Any

import numpy as np
import pytest

from app.eval.dataset import Asked
from app.eval.evaluate import figures_of
from app.eval.metrics import FIGURES
from app.eval.report import tables
from app.eval.stages import STAGES
from app.eval.sweep import curve_of
from workers.model import Level

ASKED = [
    Asked(f"q{number}", "p", "where?", "why" if number % 2 else "when", (Level.L0,))
    for number in range(4)
]
JUDGED = {asked.id: {"a": 1} for asked in ASKED}


def report_of(**changes: Any) -> dict[str, Any]:
    run = {"q0": ["a"], "q1": ["a"], "q2": ["b", "a"]}
    failure = {
        "query": "q3",
        "project": "p",
        "type": "why",
        "text": "where? " * 40,
        "lost_at": "recall",
        "ranks": dict.fromkeys(STAGES) | {"notes_walk": 12},
        "relevant": ["a"],
        "found": [],
    }
    return {
        "dataset": "judged",
        "version": "0.1.0",
        "queries": 4,
        "unjudged": 0,
        "projects": 1,
        "nodes": 2,
        "levels": ["L0"],
        "seed": 1,
        "took_s": 61.2,
        "by_stage": {stage: figures_of(run, JUDGED, ASKED, 1) for stage in STAGES},
        "citations_resolved": 1.0,
        "p95_ms": 31.25,
        "failures": [failure],
        "notes": [],
    } | changes


def text_of(report: dict[str, Any], failures: int = 0) -> str:
    return "\n".join(tables(report, failures))


def test_a_stage_has_every_figure_its_interval_and_those_of_each_type() -> None:
    figures = report_of()["by_stage"]["hybrid"]

    assert figures["recall@5"] == pytest.approx(0.75)
    assert figures["hit@1"] == pytest.approx(0.5)
    assert set(figures["intervals"]) == set(FIGURES)
    assert all(low <= figures[name] <= high for name, (low, high) in figures["intervals"].items())
    assert figures["by_type"]["when"]["queries"] == 2
    assert figures["by_type"]["when"]["recall@5"] == 1.0
    assert figures["by_type"]["why"]["mrr"] == 0.5


def test_the_tables_show_all_stages_in_their_order_on_lines_that_fit() -> None:
    text = text_of(report_of(), failures=1)

    places = [text.index(f"\n{stage} ") for stage in STAGES]
    assert places == sorted(places)
    assert "mem eval judged, version 0.1.0: 4 questions for L0, 1 projects with 2 nodes" in text
    assert max(map(len, text.splitlines())) <= 110


def test_failures_are_counted_and_shown_when_asked_for() -> None:
    assert "1 lost at recall: no candidate" in text_of(report_of())
    assert "q3 (why)" not in text_of(report_of())

    text = text_of(report_of(), failures=1)
    assert "q3 (why), lost at recall" in text
    assert "notes_walk 12" in text


def test_what_a_reader_must_know_stands_above_the_figures() -> None:
    lines = text_of(report_of(notes=["notes_walk ends in L0"], unjudged=3)).splitlines()

    assert lines[1] == "3 more questions were asked and have no judged answer."
    assert lines[2] == "! notes_walk ends in L0"


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (0.9, "0.5 instead of 0.6 gains +0.700 ndcg@10, 0.700 to 0.700: beyond its interval."),
        (0.1, "0.6 is the best, and is as it is."),
    ],
)
def test_a_sweep_shows_its_curve_and_whether_there_is_something_to_gain(
    best: float, said: str
) -> None:
    rows = len(FIGURES)
    measured = {0.5: np.full((9, rows), best), 0.6: np.full((9, rows), 0.2)}
    curve = curve_of(measured, (0.5, 0.6), 0.6, 1)
    sweep = {"parameter": "weight", "default": 0.6, "by_stage": {"hybrid": curve}}

    text = text_of(report_of(sweep=sweep))

    assert said in text
    assert "\n0.5" in text
    assert "as it is" in text
