"""A judged dataset: a corpus of nodes, questions, and which nodes answer them."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.eval.errors import CannotAsk, DatasetError
from workers.engines.minilm import MODEL
from workers.ingest.nodes import read_nodes, reason_of
from workers.model import Kind, Level, Node, NodeKey, ProjectName, Query

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels.tsv"
QRELS_HEADER = ("query-id", "corpus-id", "score")
DEFAULT_LEVELS = Query("").levels
PASSAGES = (Kind.TURN, Kind.CHUNK)
"""What people judge: the smallest pieces of what was said or written."""

Judged = Mapping[str, Mapping[str, int]]
"""Question -> node -> how well it answers it; 0: not at all."""


class QuestionLine(BaseModel):
    """A line of queries.jsonl. `source` and `judged` are the author's notes, and not used."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: Annotated[str, Field(pattern=r"^\S+$")]
    project: str
    text: Annotated[str, Field(pattern=r"\S", max_length=4000)]
    type: Annotated[str, Field(min_length=1)]
    levels: Annotated[list[Annotated[Level, Field(strict=False)]], Field(min_length=1)] | None = (
        None
    )
    source: str | None = None
    judged: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the levels it asks for."""

    id: str
    project: ProjectName
    text: str
    type: str
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Dataset:
    """What is stored and asked. What was judged is not in it: that is read after all runs."""

    folder: Path
    bodies: Mapping[ProjectName, Sequence[dict[str, Any]]]  # as they are submitted
    nodes: Mapping[str, Node]  # by the corpus's own ids
    ids: Mapping[NodeKey, str]
    questions: Sequence[Asked]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def projects(self) -> list[ProjectName]:
        return sorted(self.bodies)

    def choose(self, types: Collection[str] = (), levels: Sequence[Level] = ()) -> list[Asked]:
        """The questions of these types, or all, asking for these levels, or for their own.

        Raises:
            CannotAsk: there is no question of such a type.
        """
        known = {question.type for question in self.questions}
        if unknown := sorted(set(types) - known):
            raise CannotAsk(
                f"No question has the type {unknown[0]!r}; there are {', '.join(sorted(known))}."
            )
        chosen = [one for one in self.questions if not types or one.type in types]
        return [replace(one, levels=tuple(levels)) for one in chosen] if levels else chosen


def load_dataset(folder: Path) -> Dataset:
    """Corpus and questions.

    Raises:
        DatasetError: a file is missing or not as it should be.
    """
    for name in (CORPUS, QUERIES, QRELS):
        if not (folder / name).is_file():
            raise DatasetError(folder / name, None, "there is no such file")
    bodies, nodes = _load_corpus(folder / CORPUS)
    ids = {node.key: name for name, node in nodes.items()}
    return Dataset(folder, bodies, nodes, ids, _load_questions(folder / QUERIES, nodes.values()))


def load_judged(dataset: Dataset) -> dict[str, dict[str, int]]:
    """Which nodes answer which questions.

    Raises:
        DatasetError: the file is not as it should be.
    """
    path = dataset.folder / QRELS
    questions = {question.id for question in dataset.questions}
    judged: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        fields = tuple(line.split("\t"))
        if number == 1:
            if fields != QRELS_HEADER:
                raise DatasetError(path, 1, "the first line must be query-id, corpus-id, score")
            continue
        if len(fields) != len(QRELS_HEADER):
            raise DatasetError(path, number, "three fields with tabs between them are needed")
        question, node, score = fields
        if question not in questions:
            raise DatasetError(path, number, f"question {question!r} is not in {QUERIES}")
        if node not in dataset.nodes:
            raise DatasetError(path, number, f"node {node!r} is not in {CORPUS}")
        if not (score.isascii() and score.isdigit()):
            raise DatasetError(path, number, "the score must be a whole number, 0 or more")
        own = judged.setdefault(question, {})
        if node in own:
            raise DatasetError(path, number, f"{question!r} and {node!r} were judged before")
        own[node] = int(score)
    return judged


def _load_corpus(path: Path) -> tuple[dict[ProjectName, list[dict[str, Any]]], dict[str, Node]]:
    numbers, bodies = _objects(path)
    seen: dict[str, int] = {}
    for number, body in zip(numbers, bodies, strict=True):
        _check_id(path, number, body.get("id"), seen)
        if not isinstance(body.get("project"), str):
            raise DatasetError(path, number, "project: is missing")
        if isinstance(body.get("span"), list):
            body["span"] = _span(path, number, body["span"])
    # The service's own reading, so that what it would refuse is told before anything is started,
    # and every node has the identity that it will have there: also one whose text is repeated.
    nodes, refused = read_nodes(bodies, None, None, MODEL, lambda _project, _names: {})
    if refused:
        raise DatasetError(path, numbers[refused[0].line - 1], refused[0].reason)
    if not nodes:
        raise DatasetError(path, None, "holds no nodes")
    by_project: dict[ProjectName, list[dict[str, Any]]] = {}
    for body in bodies:
        by_project.setdefault(body["project"], []).append(body)
    return by_project, {bodies[(node.line or 0) - 1]["id"]: node for node in nodes}


def _load_questions(path: Path, nodes: Iterable[Node]) -> list[Asked]:
    levels = passage_levels(nodes)
    seen: dict[str, int] = {}
    questions = []
    for number, body in zip(*_objects(path), strict=True):
        try:
            line = QuestionLine.model_validate(body)
        except ValidationError as error:
            raise DatasetError(path, number, reason_of(error)) from error
        _check_id(path, number, line.id, seen)
        if line.project not in levels:
            raise DatasetError(path, number, f"no node of {CORPUS} is in project {line.project!r}")
        asked = tuple(line.levels or levels[line.project])
        questions.append(Asked(line.id, line.project, line.text, line.type, asked))
    if not questions:
        raise DatasetError(path, None, "holds no questions")
    return questions


def passage_levels(nodes: Iterable[Node]) -> dict[ProjectName, tuple[Level, ...]]:
    """The levels of each project's passages; where there are none, those the service asks for.

    A question asks for these unless it names its own levels: the turns of conversations are L0,
    the sections of documents L1. That is seen in the corpus, without a look at what was judged.
    """
    ordered = sorted(nodes, key=lambda node: node.project)
    return {
        project: tuple(sorted({node.level for node in own if node.kind in PASSAGES}))
        or DEFAULT_LEVELS
        for project, own in groupby(ordered, key=lambda node: node.project)
    }


def _span(path: Path, number: int, given: list[Any]) -> dict[str, Any]:
    """A range of characters, which datasets write as a pair, as the service stores it."""
    if len(given) != 2 or not all(type(end) is int and end >= 0 for end in given):
        raise DatasetError(path, number, "span: must be two whole numbers, or an object")
    start, end = given
    return {"unit": "characters", "start": start, "end": end}


def _check_id(path: Path, number: int, given: object, seen: dict[str, int]) -> None:
    """Runs and judgements name nodes and questions by ids alone, between blanks."""
    if not isinstance(given, str) or not given or given.split() != [given]:
        raise DatasetError(path, number, "id: must be a text without blanks")
    first = seen.setdefault(given, number)
    if first != number:
        raise DatasetError(path, number, f"id {given!r} was already used in line {first}")


def _objects(path: Path) -> tuple[list[int], list[dict[str, Any]]]:
    """The objects of a file of JSON lines, and the lines they are on."""
    numbers, objects = [], []
    for number, line in _lines(path):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DatasetError(path, number, "is not JSON") from error
        if not isinstance(found, dict):
            raise DatasetError(path, number, "is not a JSON object")
        numbers.append(number)
        objects.append(found)
    return numbers, objects


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    with path.open("rb") as stream:
        for number, data in enumerate(stream, start=1):
            try:
                line = data.decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise DatasetError(path, number, "is not UTF-8") from error
            if line.strip():
                yield number, line
