"""Runs in TREC's format: what a stage found for every question, best first."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Run = Mapping[str, Sequence[str]]
"""Question -> nodes, best first. One for which nothing was found may be missing."""


def run_file(folder: Path, stage: str) -> Path:
    return folder / f"{stage}.trec"


def write_run(path: Path, stage: str, found: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Write a run, over one that is there."""
    with path.open("w", encoding="utf-8") as stream:
        for question, nodes in found:
            for rank, node in enumerate(nodes, start=1):
                stream.write(f"{question} Q0 {node} {rank} {score_at(rank):.8f} {stage}\n")


def read_run(path: Path) -> dict[str, list[str]]:
    """A run as it was written."""
    run: dict[str, list[str]] = {}
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            question, _, node, *_ = line.split()
            run.setdefault(question, []).append(node)
    return run


def score_at(rank: int) -> float:
    """What stands for a score. Tools sort by it and break ties by id, and never read the rank.

    The stages' own scores would not do: they repeat, and those of reranked nodes do not compare
    with those of the others.
    """
    return 1 / rank
