"""What was said of hits becomes a judged dataset."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.eval.dataset import load_dataset, load_judged
from app.eval.judgements import questions_of, score_of, write_dataset

FIRST, SECOND, NOTE = "a" * 64, "b" * 64, "c" * 64


def judgement(result_id: str = FIRST, **said: Any) -> dict[str, Any]:
    told = {"project": "ops", "query_text": "why?", "result_id": result_id, "level": "L0"}
    return told | {"relevant": None, "rating": None} | said


@pytest.mark.parametrize(
    ("relevant", "rating", "score"),
    [
        (False, None, 0),
        (False, 5, 0),
        (True, None, 2),
        (None, 1, 0),
        (None, 2, 0),
        (None, 3, 1),
        (None, 5, 3),
        (True, 1, 1),
        (True, 5, 3),
    ],
)
def test_what_was_said_of_a_hit_is_a_score(
    relevant: bool | None, rating: int | None, score: int
) -> None:
    assert score_of(judgement(relevant=relevant, rating=rating)) == score


def test_where_several_said_something_their_mean_counts() -> None:
    said = [judgement(relevant=True), judgement(rating=5), judgement(relevant=False)]
    other = [judgement(SECOND, relevant=True), *[judgement(SECOND, relevant=False)] * 4]

    (question,) = questions_of([*said, *other])

    assert question.scores == {FIRST: 2, SECOND: 0}


def test_a_question_without_a_right_answer_measures_nothing() -> None:
    assert questions_of([judgement(relevant=False)]) == []


def test_a_question_asks_for_the_levels_of_the_hits_that_were_judged() -> None:
    said = [judgement(relevant=True), judgement(NOTE, level="L1", relevant=False)]

    (question,) = questions_of(said)

    assert question.levels == ["L0", "L1"]


def test_the_same_words_in_two_projects_are_two_questions() -> None:
    said = [judgement(relevant=True), judgement(SECOND, project="dev", relevant=True)]

    assert [question.project for question in questions_of(said)] == ["dev", "ops"]


def test_what_is_written_is_a_dataset_with_all_nodes_of_the_projects(tmp_path: Path) -> None:
    def export(project: str) -> Iterator[bytes]:
        turn = {"level": "L0", "kind": "turn", "source": "s", "text": "it was full", "id": FIRST}
        note = {"level": "L1", "kind": "note", "source": "n", "text": "disk full", "id": NOTE}
        long = {"level": "L0", "kind": "document", "source": "d", "text": "x" * 200_001}
        for record in (
            {"type": "project", "title": None},
            {"type": "node", **turn, "embedding": [1.0], "embedding_model": "m", "occurrence": 0},
            {"type": "node", **long, "id": SECOND},
            {"type": "node", **note, "parents": [FIRST], "stale_since": "2026-01-01T00:00:00Z"},
            {"type": "end", "nodes": 3},
        ):
            yield json.dumps(record).encode() + b"\n"

    folder = tmp_path / "judged"
    questions = questions_of([judgement(relevant=True), judgement(NOTE, level="L1", rating=1)])

    assert write_dataset(folder, questions, export) == 3

    dataset = load_dataset(folder)
    (asked,) = dataset.questions
    assert (asked.text, asked.type, asked.levels) == ("why?", "feedback", ("L0", "L1"))
    assert load_judged(dataset) == {"q1": {FIRST: 2, NOTE: 0}}
    assert set(dataset.nodes) == {FIRST, SECOND, NOTE}
    assert len(dataset.nodes[NOTE].parents) == 1
    assert len(dataset.nodes[SECOND].text) == 200_000
