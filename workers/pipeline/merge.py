"""From one outcome per project to one answer, and the one way a query ends."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from workers.model import Answer, Frozen, Hit, Notice, Outcome, ProjectName, Status
from workers.pipeline.walk import reaches_evidence
from workers.ports import Runs


def finalize(runs: Runs, query_id: str, by: str) -> Answer | None:
    """End a query: freeze, merge, publish. None when the query is not known.

    Anyone may call it at any time. Merging is pure and the first published answer stands, so two
    finalizers do the work twice and never differently, and one that dies leaves nothing locked.
    """
    answer = runs.find_answer(query_id)
    if answer is not None:
        return answer
    frozen = runs.freeze(query_id, by)
    if frozen is None:
        return None
    start = time.perf_counter()
    merged = merge_outcomes(query_id, frozen)
    spent = (time.perf_counter() - start) * 1000
    return runs.publish(query_id, replace(merged, merge_ms=spent))


def merge_outcomes(query_id: str, frozen: Frozen) -> Answer:
    """Merge all projects' hits into one global ranking; a project without outcome timed out.

    Scores are compared as they are: normalising them per project first would destroy the ranking,
    since a poor project's best hit would then equal a rich one's.
    """
    outcomes = [frozen.outcomes.get(project) or _silent(project) for project in frozen.projects]
    ranking = sorted((hit for outcome in outcomes for hit in outcome.hits), key=merge_order)
    hits = tuple(ranking[: frozen.limit])
    return Answer(
        query_id=query_id,
        projects=frozen.projects,
        hits=hits,
        outcomes=tuple(replace(outcome, hits=()) for outcome in outcomes),
        warnings=tuple(_warnings(outcomes, hits)),
        finalized_by=frozen.by,
    )


def merge_order(hit: Hit) -> tuple[bool, float, float, str, str]:
    """An answer's total order: reranked before not, rerank score, fused score, project, sha256."""
    score = hit.rerank_score
    return (score is None, -(score or 0.0), -hit.fused, hit.project, hit.sha256)


def _silent(project: ProjectName) -> Outcome:
    message = f"project '{project}' timed out"
    return Outcome(project, Status.TIMED_OUT, reason="no_answer_by_deadline", message=message)


def _warnings(outcomes: Iterable[Outcome], hits: Iterable[Hit]) -> Iterator[Notice]:
    for outcome in outcomes:
        if outcome.reason is not None:
            yield Notice(outcome.reason, outcome.project, _said(outcome))
    for hit in hits:
        if not reaches_evidence(hit.level, hit.parents):
            reference = f"{hit.level} {hit.project}/{hit.sha256[:12]}"
            message = f"{reference} has no path to its evidence"
            yield Notice("provenance_missing", hit.project, message)


def _said(outcome: Outcome) -> str:
    if outcome.status is Status.TIMED_OUT:
        return f"project '{outcome.project}' timed out"
    state = "failed" if outcome.status is Status.FAILED else outcome.status.value
    return f"project '{outcome.project}' {state}: {outcome.message or outcome.reason}"
