"""Figures against their definitions in plain Python, their intervals, and runs as files."""

import math
import random
from pathlib import Path

import numpy as np
import pytest

from app.eval.intervals import intervals
from app.eval.metrics import FIGURES, means, measure
from app.eval.runs import read_run, write_run

Grades = dict[str, int]


def recall_at(depth: int, ranking: list[str], grades: Grades) -> float:
    right = {node for node, grade in grades.items() if grade > 0}
    return len(right & set(ranking[:depth])) / len(right)


def reciprocal_rank(ranking: list[str], grades: Grades) -> float:
    ranks = (rank for rank, node in enumerate(ranking, 1) if grades.get(node, 0) > 0)
    return 1 / next(ranks, math.inf)


def ndcg_at(depth: int, ranking: list[str], grades: Grades) -> float:
    def gain(found: list[int]) -> float:
        return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(found[:depth], 1))

    ideal = gain(sorted(grades.values(), reverse=True))
    return gain([grades.get(node, 0) for node in ranking]) / ideal


def expected(ranking: list[str], grades: Grades) -> list[float]:
    return [
        recall_at(5, ranking, grades),
        recall_at(10, ranking, grades),
        reciprocal_rank(ranking, grades),
        ndcg_at(10, ranking, grades),
        float(bool(ranking) and grades.get(ranking[0], 0) > 0),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_figures_are_what_their_definitions_say(seed: int) -> None:
    source = random.Random(seed)
    nodes = [f"n{number}" for number in range(40)]
    questions = [f"q{number}" for number in range(15)]
    judged = {
        question: {
            node: source.choice([0, 1, 1, 2])
            for node in source.sample(nodes, source.randint(1, 15))
        }
        | {source.choice(nodes): 1}
        for question in questions
    }
    run = {
        question: source.sample(nodes, source.choice([0, 1, 3, 10, 40])) for question in questions
    }

    found = measure(run, judged, questions)

    wanted = [expected(run[question], judged[question]) for question in questions]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_question_without_a_ranking_counts_as_zero() -> None:
    found = measure({"q1": ["a"]}, {"q1": {"a": 1}, "q2": {"b": 1}}, ["q1", "q2"])

    assert means(found) == dict.fromkeys(FIGURES, 0.5)


def test_only_the_questions_asked_for_count() -> None:
    found = measure({"q1": ["a"], "q2": []}, {"q1": {"a": 1}, "q2": {"b": 1}}, ["q1"])

    assert means(found) == dict.fromkeys(FIGURES, 1.0)


def test_a_run_reads_back_as_it_was_written_and_its_scores_only_fall(tmp_path: Path) -> None:
    path = tmp_path / "semantic.trec"
    run = {"q/1": [f"node#{number}" for number in range(500, 0, -1)], "q/2": ["b", "a"]}

    write_run(path, "semantic", [*run.items(), ("q/3", [])])

    assert read_run(path) == run
    lines = [line.split(" ") for line in path.read_text().splitlines()]
    assert lines[0] == ["q/1", "Q0", "node#500", "1", "1.00000000", "semantic"]
    scores = [float(line[4]) for line in lines[:500]]
    assert sorted(set(scores), reverse=True) == scores


def test_a_run_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "semantic.trec"
    write_run(path, "semantic", [("q1", ["a", "b"])])

    write_run(path, "semantic", [("q1", ["c"])])

    assert read_run(path) == {"q1": ["c"]}


def test_an_interval_holds_the_mean_and_narrows_with_more_questions() -> None:
    few = np.array([[0.0], [1.0]] * 10)
    many = np.array([[0.0], [1.0]] * 1000)

    ((low, high),), ((lower, higher),) = intervals(few, 1), intervals(many, 1)

    assert low < lower < 0.5 < higher < high
    # Of a mean of n values with variance 1/4: 0.5 +- 1.96 sqrt(1 / 4n).
    assert (high - low) / 2 == pytest.approx(1.96 * math.sqrt(1 / 80), rel=0.15)
    assert (higher - lower) / 2 == pytest.approx(1.96 * math.sqrt(1 / 8000), rel=0.1)


def test_an_interval_is_the_same_for_the_same_seed_only() -> None:
    values = np.random.default_rng(7).random((50, 2))

    assert intervals(values, 1) == intervals(values, 1)
    assert intervals(values, 1) != intervals(values, 2)


def test_where_all_questions_agree_there_is_no_doubt() -> None:
    assert intervals(np.full((30, 1), 0.25), 1) == [(0.25, 0.25)]
