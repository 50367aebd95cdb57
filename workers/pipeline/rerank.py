"""Reordering candidates by their score against the question."""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.deadline import Deadline
from workers.errors import DeadlineExceeded, NotReranked
from workers.model import Candidate, Question
from workers.pipeline.fusion import best_first
from workers.ports import Reranker


@dataclass(frozen=True, slots=True)
class Reranked:
    """Candidates in their final order, and how many were given to the reranker."""

    ranking: tuple[Candidate, ...]
    scored: int
    reason: str | None = None  # a stable code, where not all that should be were scored
    message: str | None = None

    @property
    def has_scored(self) -> bool:
        """Whether the order is the reranker's, as far as it came."""
        return self.scored > 0 or self.reason is None


TRUNCATED = "rerank_truncated"
LIMITED = "rerank_limited"


def rerank(
    question: Question,
    ranking: Sequence[Candidate],
    reranker: Reranker,
    depth: int,
    deadline: Deadline,
    batch: int = 32,
) -> Reranked:
    """Reorder the best `depth` candidates by pair score, as many as the deadline allows.

    The unscored keep their recall order below every scored one, so a late answer is a worse
    ranking and never a shorter one. Overruns by at most one batch. A reranker that fails leaves the
    order of recall as it was: half of its scores would put what happened to come first on top.
    """
    wanted, rest = ranking[:depth], ranking[depth:]
    scored: list[Candidate] = []
    while len(scored) < len(wanted) and not deadline.passed():
        chunk = wanted[len(scored) : len(scored) + batch]
        try:
            scores = reranker.score(question, chunk, deadline)
        except DeadlineExceeded:
            break
        except NotReranked as error:
            # One that waits for its turn until time is up has only run out of time.
            if error.reason == LIMITED and scored:
                break
            return Reranked(tuple(ranking), 0, error.reason, str(error))
        scored += [c._replace(rerank_score=s) for c, s in zip(chunk, scores, strict=True)]
    order = tuple(sorted((*scored, *wanted[len(scored) :], *rest), key=best_first))
    if len(scored) < len(wanted):
        return Reranked(order, len(scored), TRUNCATED, "out of time while reranking")
    return Reranked(order, len(scored))
