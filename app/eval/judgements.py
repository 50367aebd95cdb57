"""A judged dataset made of feedback: what was asked, and what was said of the hits."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from app.eval.dataset import CORPUS, QRELS, QRELS_HEADER, QUERIES
from workers.contracts import LONGEST_TEXT
from workers.model import ProjectName, Sha256

TYPE = "feedback"
"""The type of every question that was made so."""
_CORPUS_FIELDS = (
    "level",
    "kind",
    "source",
    "text",
    "parents",
    "position",
    "occurred_at",
    "title",
    "breadcrumb",
    "span",
    "standing_id",
    "tags",
    "metadata",
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question of one project, and how well hits answer it: 0 not at all, to 3."""

    project: ProjectName
    text: str
    levels: Sequence[str]  # those of the hits that were judged
    scores: Mapping[Sha256, int]


def questions_of(judgements: Iterable[Mapping[str, Any]]) -> list[Question]:
    """The questions that have a right answer, by project and words.

    Where several said something of one hit, their mean counts.
    """
    said: dict[tuple[str, str], dict[Sha256, list[int]]] = defaultdict(lambda: defaultdict(list))
    levels: dict[Sha256, str] = {}
    for judgement in judgements:
        asked = judgement["project"], judgement["query_text"]
        said[asked][judgement["result_id"]].append(score_of(judgement))
        levels[judgement["result_id"]] = judgement["level"]
    questions = []
    for (project, text), hits in sorted(said.items()):
        scores = {sha256: round(fmean(own)) for sha256, own in sorted(hits.items())}
        if any(scores.values()):
            asked_levels = sorted({levels[sha256] for sha256 in scores})
            questions.append(Question(project, text, asked_levels, scores))
    return questions


def score_of(judgement: Mapping[str, Any]) -> int:
    """0 for irrelevant; 1, 2 and 3 for a rating of 3, 4 and 5; without one, 2 for relevant."""
    relevant: bool | None = judgement["relevant"]
    rating: int | None = judgement["rating"]
    if relevant is False:
        return 0
    if rating is None:
        return 2
    return max(rating - 2, 1 if relevant else 0)


def write_dataset(
    folder: Path,
    questions: Sequence[Question],
    export: Callable[[ProjectName], Iterable[bytes]],
) -> int:
    """Write the three files of a dataset.

    Args:
        export: the lines of a project's export.

    Returns:
        How many nodes the corpus has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / QUERIES).open("w", encoding="utf-8") as queries:
        for number, question in enumerate(questions, start=1):
            queries.write(_line(_query(number, question)))
    with (folder / QRELS).open("w", encoding="utf-8") as qrels:
        qrels.write("\t".join(QRELS_HEADER) + "\n")
        for number, question in enumerate(questions, start=1):
            for sha256, score in question.scores.items():
                qrels.write(f"q{number}\t{sha256}\t{score}\n")
    nodes = 0
    with (folder / CORPUS).open("w", encoding="utf-8") as corpus:
        for project in sorted({question.project for question in questions}):
            for line in export(project):
                record = json.loads(line)
                if record["type"] == "node":
                    corpus.write(_line(_node(project, record)))
                    nodes += 1
    return nodes


def _query(number: int, question: Question) -> dict[str, Any]:
    return {
        "id": f"q{number}",
        "project": question.project,
        "text": question.text,
        "type": TYPE,
        "levels": list(question.levels),
    }


def _node(project: ProjectName, record: Mapping[str, Any]) -> dict[str, Any]:
    """A node as a corpus has it: its vector is made again by the models that are measured."""
    told = {name: record[name] for name in _CORPUS_FIELDS if record.get(name) is not None}
    text = told["text"][:LONGEST_TEXT]
    return {"id": record["id"], "project": project, **told, "text": text}


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"
