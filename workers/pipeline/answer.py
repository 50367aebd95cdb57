"""How one project answers one question. Reads as the algorithm: encode, recall, rerank, walk."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from workers.deadline import Clock, Deadline
from workers.errors import DeadlineExceeded, PoimenError
from workers.model import (
    Candidate,
    Encoding,
    Explained,
    Hit,
    Loaded,
    Node,
    Outcome,
    ProjectName,
    Query,
    Question,
    Status,
)
from workers.pipeline.rerank import Reranked, rerank
from workers.pipeline.walk import (
    FANS,
    Steps,
    by_child,
    parents_of,
)
from workers.ports import Reranker, Searchable

WALK_SHARE = 0.1  # of what remains when reranking begins, at most WALK_MOST_S
WALK_MOST_S = 0.25

EncodeQuery = Callable[[str, Deadline], tuple[Encoding, str]]
"""Encodes a question within a deadline; also says where the encoding came from."""


@dataclass
class Stages:
    """Milliseconds spent in each stage, and the stage under way."""

    clock: Clock
    current: str = "queue"
    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.current, start = name, self.clock()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + (self.clock() - start) * 1000


def answer(
    query: Query,
    project: ProjectName,
    encode: EncodeQuery,
    nodes: Searchable,
    reranker: Reranker,
    rerank_depth: int,
    deadline: Deadline,
) -> Outcome:
    """Search one project. Never raises what this service raises on purpose: an error is an outcome.

    Source: retrieve wide, rerank narrow (Nogueira and Cho, 2019); provenance by edge walk.
    """
    stages = Stages(deadline.clock)
    try:
        if deadline.passed():
            return late(project, "expired_in_queue", stages)
        return _answer(query, project, encode, nodes, reranker, rerank_depth, deadline, stages)
    except DeadlineExceeded:
        return late(project, f"{stages.current}_timeout", stages)
    except PoimenError as error:
        return Outcome(
            project,
            Status.FAILED,
            reason=error.code,
            message=str(error),
            stages_ms=stages.spent,
        )


def _answer(
    query: Query,
    project: ProjectName,
    encode: EncodeQuery,
    nodes: Searchable,
    reranker: Reranker,
    rerank_depth: int,
    deadline: Deadline,
    stages: Stages,
) -> Outcome:
    with stages.stage("embed"):
        encoding, origin = encode(query.text, deadline)
    with stages.stage("recall"):
        looked = (encoding.vector, query.levels, query.recall_depth)
        loaded = None
        if rerank_depth == 0 and not query.is_explained:
            recalled, loaded = nodes.recall_and_load(*looked, query.limit, FANS, deadline)
        else:
            has_text = reranker.needs_text and rerank_depth > 0
            recalled = nodes.recall(*looked, rerank_depth, has_text, deadline)
    with stages.stage("rerank"):
        # Without time left for the walk there would be no hits at all, however many were reranked.
        walk_s = min(WALK_MOST_S, WALK_SHARE * deadline.remaining())
        until = deadline.earlier_by(walk_s)
        question = Question(query.text, encoding)
        reranked = rerank(
            question, recalled.candidates, reranker, rerank_depth, until, reranker.batch
        )
    with stages.stage("walk"):
        best = reranked.ranking[: query.limit]
        if loaded is None:
            shas = [candidate.sha256 for candidate in best]
            loaded = nodes.load(shas, FANS, deadline) if shas else Loaded({}, ())
        hits = _hits(project, best, loaded)
    return Outcome(
        project,
        Status.SUCCESSFUL if reranked.reason is None else Status.PARTIAL,
        hits=hits,
        reason=reranked.reason,
        message=reranked.message,
        candidates=recalled.found,
        requested=query.recall_depth,
        plan=recalled.plan,
        reranked=reranked.scored,
        documents=recalled.documents,
        stages_ms=stages.spent,
        embedding_cache=origin,
        reranker=reranker.name if rerank_depth and reranked.has_scored else None,
        explained=_explain(recalled.candidates, reranked) if query.is_explained else (),
    )


def late(project: ProjectName, reason: str, stages: Stages) -> Outcome:
    """The outcome of a project that ran out of time."""
    message = f"project '{project}' timed out"
    return Outcome(
        project, Status.TIMED_OUT, reason=reason, message=message, stages_ms=stages.spent
    )


def _hits(project: ProjectName, best: Sequence[Candidate], loaded: Loaded) -> tuple[Hit, ...]:
    steps = by_child(loaded.steps)
    # A node deleted between recall and here is simply no longer a hit.
    return tuple(
        _hit(project, candidate, loaded.nodes[candidate.sha256], steps)
        for candidate in best
        if candidate.sha256 in loaded.nodes
    )


def _hit(project: ProjectName, candidate: Candidate, node: Node, steps: Steps) -> Hit:
    parents, omitted = parents_of(node.sha256, steps)
    return Hit(
        project=project,
        sha256=node.sha256,
        level=node.level,
        kind=node.kind,
        text=node.text,
        source=node.source,
        semantic=candidate.semantic,
        rerank_score=candidate.rerank_score,
        standing_id=node.standing_id,
        title=node.title,
        breadcrumb=node.breadcrumb,
        turn=node.position,
        timestamp=node.occurred_at,
        tags=node.tags,
        metadata=node.metadata,
        is_excerpt=node.is_excerpt,
        parents=parents,
        parents_omitted=omitted,
    )


def _explain(recalled: Sequence[Candidate], reranked: Reranked) -> tuple[Explained, ...]:
    final = {c.sha256: (rank, c) for rank, c in enumerate(reranked.ranking, start=1)}
    return tuple(
        Explained(
            rank=rank,
            sha256=candidate.sha256,
            level=candidate.level,
            distance=candidate.distance,
            semantic=candidate.semantic,
            rerank_score=final[candidate.sha256][1].rerank_score,
            final_rank=final[candidate.sha256][0],
        )
        for rank, candidate in enumerate(recalled, start=1)
    )
