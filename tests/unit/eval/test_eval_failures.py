"""Where a right node was lost, and whether citations hold."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.eval.citations import is_resolved
from app.eval.dataset import Dataset, load_dataset, load_judged
from app.eval.failures import LOST_AT, list_failures
from app.eval.stages import evidence_of
from tests.unit.eval.datasets import write_dataset
from workers.model import Hit, Kind, Level, Node, Parent

STAGES = ("bm25", "semantic", "hybrid", "hybrid_rerank")


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return load_dataset(write_dataset(tmp_path))


def ranking(rank: int | None) -> list[str]:
    """A ranking with t1 at this rank, or without it."""
    others = [f"other{number}" for number in range(60)]
    return others if rank is None else [*others[: rank - 1], "t1", *others[rank - 1 :]]


@pytest.mark.parametrize(
    ("ranks", "lost_at"),
    [
        ((None, None, None, None), "recall"),
        ((3, None, 12, 14), "fusion"),
        ((None, 2, 11, 11), "fusion"),
        ((None, 30, 9, 11), "rerank"),
        ((3, 3, 3, None), "rerank"),
        ((40, 20, 30, 20), "ranking"),
    ],
)
def test_a_failure_names_the_stage_where_the_right_node_was_lost(
    ranks: tuple[int | None, ...], lost_at: str, dataset: Dataset
) -> None:
    runs = {stage: {"q1": ranking(rank)} for stage, rank in zip(STAGES, ranks, strict=True)}

    (failure,) = list_failures(dataset.questions[:1], runs, load_judged(dataset), dataset)

    assert (failure["query"], failure["lost_at"]) == ("q1", lost_at)
    assert failure["ranks"] == dict(zip(STAGES, ranks, strict=True))
    assert failure["relevant"] == ["t1"]
    assert len(failure["found"]) == 10
    assert lost_at in LOST_AT


def test_a_question_with_a_right_node_among_the_ten_best_is_no_failure(dataset: Dataset) -> None:
    runs = {stage: {"q1": ranking(10)} for stage in STAGES}

    assert list_failures(dataset.questions[:1], runs, load_judged(dataset), dataset) == []


def test_an_answer_on_a_level_nobody_asked_for_is_told_as_such(dataset: Dataset) -> None:
    asked = replace(dataset.questions[0], levels=(Level.L1,))
    runs = {stage: {"q1": ranking(None)} for stage in STAGES}

    (failure,) = list_failures([asked], runs, load_judged(dataset), dataset)

    assert failure["lost_at"] == "level"


def parent_of(node: Node) -> Parent:
    return Parent(node.level, node.kind, node.sha256, node.source, node.text, None, None)


def hit_of(node: Node, *parents: Node) -> Hit:
    return Hit(
        node.project,
        node.sha256,
        node.level,
        node.kind,
        node.text,
        node.source,
        0.5,
        None,
        parents=tuple(map(parent_of, parents)),
    )


def test_a_citation_is_resolved_by_the_parents_that_the_corpus_tells_of(dataset: Dataset) -> None:
    turn, other, note = (dataset.nodes[name] for name in ("t1", "t2", "n1"))

    assert is_resolved(hit_of(turn), dataset)
    assert is_resolved(hit_of(note, other, turn), dataset)


def test_a_citation_is_not_resolved_without_its_evidence_or_by_another(dataset: Dataset) -> None:
    turn, other, note = (dataset.nodes[name] for name in ("t1", "t2", "n1"))
    unknown = replace(turn, sha256="0" * 64)

    assert not is_resolved(hit_of(note), dataset)
    assert not is_resolved(hit_of(note, turn, other), dataset)
    assert not is_resolved(hit_of(note, dataset.nodes["d1"]), dataset)
    assert not is_resolved(hit_of(unknown), dataset)


def test_the_walk_replaces_notes_by_their_turns_in_order_and_drops_repeats() -> None:
    def node(name: str, level: Level) -> Node:
        return Node("p", name, level, Kind.TURN, "s", name, occurred_at=datetime.now(UTC))

    a, b, c, note = (node(name, Level.L0) for name in ("a", "b", "c", "n"))
    below = node("m", Level.L1)
    hits = [hit_of(note, b, a), hit_of(note, below, a, c), hit_of(note), hit_of(note, b)]

    assert [parent.sha256 for parent in evidence_of(hits)] == ["b", "a", "c"]
