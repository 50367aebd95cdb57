"""Where the right node was lost, question by question."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.eval.dataset import Asked, Dataset, Judged
from app.eval.runs import Run
from app.eval.stages import ANSWER, LIMIT, STAGES

LOST_AT = {
    "level": "the answer is on a level that was not asked for",
    "recall": "no candidate: neither words nor meaning found it",
    "fusion": "among the ten best of one leg, not of both together",
    "rerank": "among the ten best before reranking, not after it",
    "ranking": "a candidate, but never among the ten best",
}

Failure = dict[str, Any]


def list_failures(
    questions: Sequence[Asked], runs: Mapping[str, Run], judged: Judged, dataset: Dataset
) -> list[Failure]:
    """The questions with no right node among the ten that would be answered, and why."""
    failures = []
    for asked in questions:
        right = [node for node, score in judged[asked.id].items() if score > 0]
        ranks = {
            stage: best_rank(runs[stage].get(asked.id, ()), right)
            for stage in STAGES
            if stage in runs
        }
        if is_shown(ranks[ANSWER]):
            continue
        levels = {dataset.nodes[node].level for node in right}
        lost_at = "level" if levels.isdisjoint(asked.levels) else lost(ranks)
        failures.append(
            {
                "query": asked.id,
                "project": asked.project,
                "type": asked.type,
                "text": asked.text,
                "lost_at": lost_at,
                "ranks": ranks,
                "relevant": right,
                "found": list(runs[ANSWER].get(asked.id, ())[:LIMIT]),
            }
        )
    return failures


def best_rank(ranking: Sequence[str], right: Sequence[str]) -> int | None:
    """The rank of the first right node; None: it is not there."""
    return next((rank for rank, node in enumerate(ranking, start=1) if node in right), None)


def is_shown(rank: int | None) -> bool:
    return rank is not None and rank <= LIMIT


def lost(ranks: Mapping[str, int | None]) -> str:
    """The first stage after which the best right node was no longer where it would be shown."""
    legs = [ranks["bm25"], ranks["semantic"]]
    fused = ranks["hybrid"]
    if ranks[ANSWER] is None and fused is None and legs == [None, None]:
        return "recall"
    if is_shown(fused):
        return "rerank"
    return "fusion" if any(map(is_shown, legs)) else "ranking"
