"""From one outcome per project to one answer, and the one way a query ends."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from workers.model import (
    FACETS,
    Answer,
    Facets,
    Frozen,
    Hit,
    Kept,
    NodeKey,
    Notice,
    Outcome,
    Parent,
    ProjectName,
    Silence,
    Status,
    Unreturned,
)
from workers.pipeline.walk import reaches_evidence
from workers.ports import Runs

MOST_VALUES = 100  # of a facet that an answer shows


def finalize(
    runs: Runs, query_id: str, by: str, silence: Silence = Silence.NO_ANSWER
) -> Answer | None:
    """End a query: freeze, merge, publish. None when the query is not known, or was cancelled.

    Args:
        silence: why projects without an outcome have none.

    Anyone may call it at any time. Merging is pure and the first published answer stands, so two
    finalizers do the work twice and never differently, and one that dies leaves nothing locked.
    """
    frozen = runs.freeze(query_id, by, silence)
    if not isinstance(frozen, Frozen):
        return frozen
    start = time.perf_counter()
    merged = merge_outcomes(query_id, frozen)
    spent = (time.perf_counter() - start) * 1000
    return runs.publish(query_id, replace(merged, merge_ms=spent))


def merge_outcomes(query_id: str, frozen: Frozen) -> Answer:
    """Merge all projects' hits into one global ranking.

    Scores are compared as they are: normalising them per project first would destroy the ranking,
    since a poor project's best hit would then equal a rich one's.
    """
    outcomes = [
        frozen.outcomes.get(project) or _silent(project, frozen.silence)
        for project in frozen.projects
    ]
    ranking = sorted((hit for outcome in outcomes for hit in outcome.hits), key=merge_order)
    hits = tuple(ranking[: frozen.limit])
    shown = {(hit.project, hit.sha256) for hit in hits}
    counted = zip(frozen.documents, outcomes, strict=False)  # none of a query that met no project
    return Answer(
        query_id=query_id,
        projects=frozen.projects,
        hits=hits,
        outcomes=tuple(_without_hits(outcome, shown) for outcome in outcomes),
        warnings=tuple(_warnings(outcomes, hits)),
        finalized_by=frozen.by,
        documents=sum(frozen.documents),
        searched=sum(nodes for nodes, outcome in counted if outcome.status.has_answered),
        facets=merge_facets([outcome.facets for outcome in outcomes if outcome.facets]),
    )


def merge_facets(parts: Collection[Facets]) -> Facets | None:
    """The counts of all projects together: of each facet the values with most nodes, then by name.

    Where a project did not carry all of its values, the counts of others may be too low as well, so
    the facet is said not to be whole.
    """
    if not parts:
        return None
    counts, truncated = {}, []
    for facet in FACETS:
        total: Counter[str] = Counter()
        for part in parts:
            total.update(part.counts.get(facet, {}))
        ranking = sorted(total.items(), key=lambda one: (-one[1], one[0]))
        counts[facet] = dict(ranking[:MOST_VALUES])
        if len(ranking) > MOST_VALUES or any(facet in part.truncated for part in parts):
            truncated.append(facet)
    return Facets(counts, tuple(truncated))


def _without_hits(outcome: Outcome, shown: Collection[NodeKey]) -> Outcome:
    """What remains of an outcome in the answer; candidates that lost to other projects' say so."""
    explained = tuple(
        one
        if one.unreturned or (outcome.project, one.sha256) in shown
        else replace(one, unreturned=Unreturned.OUTRANKED)
        for one in outcome.explained
    )
    return replace(outcome, hits=(), explained=explained, facets=None)


def merge_order(hit: Hit) -> tuple[bool, float, float, str, str]:
    """An answer's total order: reranked before not, rerank score, fused score, project, sha256."""
    score = hit.rerank_score
    return (score is None, -(score or 0.0), -hit.fused, hit.project, hit.sha256)


def fold(hits: Iterable[Hit]) -> tuple[Kept, ...]:
    """Put each hit that a better one was made from under that one; nothing is lost or doubled.

    Args:
        hits: best first.

    What a folded hit was made from goes under the same hit as itself: an answer shows only some of
    a node's parents, so the better one need not lead there by itself.
    """
    folded: dict[NodeKey, list[Hit]] = {}
    kept: list[Hit] = []
    above: dict[NodeKey, NodeKey] = {}  # what kept hits were made from -> the best of these hits
    for hit in hits:
        key = (hit.project, hit.sha256)
        head = above.get(key, key)
        if head == key:
            kept.append(hit)
            folded[key] = []
        else:
            folded[head].append(hit)
        for parent in _below(hit.parents):
            above.setdefault((hit.project, parent.sha256), head)
    return tuple(Kept(hit, tuple(folded[hit.project, hit.sha256])) for hit in kept)


def _below(parents: Iterable[Parent]) -> Iterator[Parent]:
    for parent in parents:
        yield parent
        yield from _below(parent.parents)


_SAID = {
    Silence.NO_ANSWER: "timed out",
    Silence.NEVER_BEGUN: "timed out before it was begun",
    Silence.STOPPED: "was not waited for: the query was stopped",
    Silence.GIVEN_UP: "was given up: its worker was lost each time",
}


def _silent(project: ProjectName, silence: Silence) -> Outcome:
    if silence is Silence.UNFINISHED:
        return Outcome(project, Status.RUNNING)
    message = f"project '{project}' {_SAID[silence]}"
    return Outcome(project, silence.status, reason=silence.value, message=message)


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
    if outcome.status is Status.CANCELLED and outcome.message:
        return outcome.message
    state = "failed" if outcome.status is Status.FAILED else outcome.status.value
    return f"project '{outcome.project}' {state}: {outcome.message or outcome.reason}"
