"""Reordering candidates by their score against the question."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workers.deadline import Deadline
from workers.model import Candidate, Encoding
from workers.ports import Reranker


@dataclass(frozen=True, slots=True)
class Reranked:
    """Candidates in their final order, and how many were given to the reranker."""

    ranking: tuple[Candidate, ...]
    scored: int
    is_truncated: bool


def rerank(
    query: Encoding,
    ranking: Sequence[Candidate],
    reranker: Reranker,
    depth: int,
    deadline: Deadline,
    batch: int = 32,
) -> Reranked:
    """Reorder the best `depth` candidates by pair score, as many as the deadline allows.

    The unscored keep their recall order below every scored one, so a late answer is a worse
    ranking and never a shorter one. Overruns by at most one batch.
    """
    wanted, rest = ranking[:depth], ranking[depth:]
    scored: list[Candidate] = []
    while len(scored) < len(wanted) and not deadline.passed():
        chunk = wanted[len(scored) : len(scored) + batch]
        scores = reranker.score(query, chunk)
        scored += [replace(c, rerank_score=s) for c, s in zip(chunk, scores, strict=True)]
    order = sorted((*scored, *wanted[len(scored) :], *rest), key=best_first)
    return Reranked(tuple(order), len(scored), len(scored) < len(wanted))


def best_first(candidate: Candidate) -> tuple[bool, float, float, str]:
    """The sort key within one project: reranked before not, then scores, then sha256."""
    score = candidate.rerank_score
    return (score is None, -(score or 0.0), candidate.distance, candidate.sha256)
