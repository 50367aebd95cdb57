"""How one project answers a question, as the algorithm: encode, recall, fuse, rerank, walk."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from workers.deadline import Clock, Deadline
from workers.errors import DeadlineExceeded, EmbeddingServiceUnavailable, PoimenError
from workers.model import (
    Candidate,
    Encoding,
    Explained,
    Facets,
    Hit,
    Loaded,
    Match,
    Matched,
    Method,
    Node,
    Outcome,
    ProjectName,
    Query,
    Question,
    Reads,
    Sha256,
    Status,
    Unreturned,
    Vector,
)
from workers.pipeline.fusion import Weights, fuse, weights_of
from workers.pipeline.rerank import Reranked, rerank
from workers.pipeline.walk import (
    FANS,
    Steps,
    by_child,
    parents_of,
)
from workers.ports import Countable, LexicalIndex, Reranker, Searchable

WALK_SHARE = 0.1  # of what remains when reranking begins, at most WALK_MOST_S
WALK_MOST_S = 0.25

EncodeQuery = Callable[[str, Deadline], tuple[Encoding, str]]
"""Encodes a question within a deadline; also says where the encoding came from."""
T = TypeVar("T")


class Beside(Protocol):
    """Begins something that goes on while the caller does something else."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]: ...


@dataclass(frozen=True, slots=True)
class Engines:
    """What one project is searched with."""

    encode: EncodeQuery
    nodes: Searchable
    lexical: LexicalIndex
    counts: Countable
    beside: Beside
    reranker: Reranker
    rerank_depth: int  # candidates to rerank; 0: none

    @property
    def reads(self) -> Reads:
        """What the reranker wants to know of candidates."""
        if not self.rerank_depth:
            return Reads.NOTHING
        return Reads.TEXT if self.reranker.needs_text else Reads.TOKENS

    def reads_of(self, candidates: int) -> Reads:
        """What recall reads of so many: only if all are reranked is it known already which are."""
        return self.reads if candidates <= self.rerank_depth else Reads.NOTHING


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


def answer(query: Query, project: ProjectName, engines: Engines, deadline: Deadline) -> Outcome:
    """Search one project. Never raises what this service raises on purpose: an error is an outcome.

    Source: retrieve wide, rerank narrow (Nogueira and Cho, 2019); provenance by edge walk.
    """
    stages = Stages(deadline.clock)
    try:
        if deadline.passed():
            return late(project, "expired_in_queue", stages)
        return _answer(query, project, engines, deadline, stages)
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
    query: Query, project: ProjectName, engines: Engines, deadline: Deadline, stages: Stages
) -> Outcome:
    matching = _look_for_words(query, engines, deadline)
    counting = _count(query, engines, deadline)
    with stages.stage("embed"):
        encoded = _encode(query, engines, deadline)
    with stages.stage("recall"):
        found = _recall(query, encoded.vector, matching, engines, deadline)
        weights = weights_of(query.method, query.semantic_weight, encoded.encoding is not None)
        fused = fuse(found.candidates, weights)
    with stages.stage("rerank"):
        # Without time left for the walk there would be no hits at all, however many were reranked.
        walk_s = min(WALK_MOST_S, WALK_SHARE * deadline.remaining())
        reranked = _rerank(
            query, encoded.encoding, fused, found, engines, deadline.earlier_by(walk_s)
        )
    with stages.stage("walk"):
        best = reranked.ranking[: query.limit]
        loaded = found.loaded
        if loaded is None:
            shas = [candidate.sha256 for candidate in best]
            loaded = engines.nodes.load(shas, FANS, deadline) if shas else Loaded({}, ())
        hits = _hits(project, best, loaded, weights)
    facets, uncounted = None, None
    if counting is not None:
        with stages.stage("facets"):
            facets = _counted(counting)
        uncounted = None if facets else "facets_timeout"
    messages = (
        encoded.message or reranked.message,
        "its facets were not counted in time" if uncounted else None,
    )
    reason = encoded.missing or reranked.reason or uncounted
    return Outcome(
        project,
        Status.SUCCESSFUL if reason is None else Status.PARTIAL,
        hits=hits,
        reason=reason,
        message="; ".join(filter(None, messages)) or None,
        candidates=found.count,
        requested=query.recall_depth,
        plan=found.plan,
        reranked=reranked.scored,
        documents=found.documents,
        facets=facets,
        stages_ms=stages.spent,
        embedding_cache=encoded.origin,
        reranker=engines.reranker.name if engines.rerank_depth and reranked.has_scored else None,
        lexical_engine=engines.lexical.engine if matching else None,
        explained=_explain(query, fused, found, reranked, hits) if query.is_explained else (),
    )


def _count(query: Query, engines: Engines, deadline: Deadline) -> Future[Facets] | None:
    if not query.has_facets:
        return None
    # Whatever is found by then is to be told in time, with or without counts.
    end = deadline.earlier_by(WALK_SHARE * deadline.remaining())
    return engines.beside(lambda: engines.counts.facets(query, end))


def _counted(counting: Future[Facets]) -> Facets | None:
    """The counts, or None if they were not there in time."""
    try:
        return counting.result()
    except DeadlineExceeded:
        return None


def late(project: ProjectName, reason: str, stages: Stages) -> Outcome:
    """The outcome of a project that ran out of time."""
    message = f"project '{project}' timed out"
    return Outcome(
        project, Status.TIMED_OUT, reason=reason, message=message, stages_ms=stages.spent
    )


@dataclass(frozen=True, slots=True)
class _Encoded:
    """The question's encoding, where it came from, or why there is none that should be."""

    encoding: Encoding | None = None
    origin: str | None = None
    missing: str | None = None  # a stable code
    message: str | None = None

    @property
    def vector(self) -> Vector | None:
        return None if self.encoding is None else self.encoding.vector


def _encode(query: Query, engines: Engines, deadline: Deadline) -> _Encoded:
    """What can be answered by words is answered, if the embedding engine fails while there is time.

    Raises:
        EmbeddingServiceUnavailable: nothing but the meaning was asked for, or no time is left.
    """
    if query.method is Method.LEXICAL and engines.reads is not Reads.TOKENS:
        return _Encoded()
    try:
        return _Encoded(*engines.encode(query.text, deadline))
    except EmbeddingServiceUnavailable as error:
        if query.method is Method.SEMANTIC or deadline.passed():
            raise
        lost = "not reranked" if query.method is Method.LEXICAL else "searched by words alone"
        return _Encoded(missing=error.code, message=f"{lost}: {error}")


@dataclass(frozen=True, slots=True)
class _Found:
    """The candidates of both legs, each with its score in both."""

    candidates: Sequence[Candidate]
    count: int  # how many there are; where nothing is to change their order, the best of them
    documents: int
    plan: str | None = None
    loaded: Loaded | None = None  # what the walk would load
    read: frozenset[Sha256] = frozenset()  # those that carry what the reranker reads
    nearest: Sequence[Sha256] = ()  # in the order of each leg
    matched: Sequence[Sha256] = ()


def _look_for_words(query: Query, engines: Engines, deadline: Deadline) -> Future[Matched] | None:
    if query.method is Method.SEMANTIC:
        return None

    def look() -> Matched:
        return engines.lexical.recall(
            query.text, query.levels, query.recall_depth, deadline, query.filters
        )

    return engines.beside(look)


def _recall(
    query: Query,
    vector: Vector | None,
    matching: Future[Matched] | None,
    engines: Engines,
    deadline: Deadline,
) -> _Found:
    if matching is None:
        return _recall_by_meaning(query, vector, engines, deadline)
    matched = matching.result()
    if vector is None:
        return _Found(
            [_candidate(match) for match in matched.matches],
            len(matched.matches),
            matched.documents,
            matched=[match.sha256 for match in matched.matches],
        )
    return _recall_by_both(query, vector, matched, engines, deadline)


def _recall_by_meaning(
    query: Query, vector: Vector | None, engines: Engines, deadline: Deadline
) -> _Found:
    if vector is None:
        raise ValueError("a search by meaning needs an encoding")
    looked = (vector, query.levels, query.recall_depth)
    reads, loaded = Reads.NOTHING, None
    if not engines.rerank_depth and not query.is_explained:  # recall's order is the answer's
        recalled, loaded = engines.nodes.recall_and_load(
            *looked, query.limit, FANS, deadline, query.filters
        )
    else:
        reads = engines.reads_of(query.recall_depth)
        recalled = engines.nodes.recall(*looked, (), reads, deadline, query.filters)
    shas = [candidate.sha256 for candidate in recalled.candidates]
    return _Found(
        recalled.candidates,
        recalled.found,
        recalled.documents,
        recalled.plan,
        loaded,
        read=frozenset() if reads is Reads.NOTHING else frozenset(shas),
        nearest=shas,
    )


def _recall_by_both(
    query: Query, vector: Vector, matched: Matched, engines: Engines, deadline: Deadline
) -> _Found:
    """Also where words alone choose: what they found is measured, for reranking compares it."""
    by_words = {match.sha256: _candidate(match) for match in matched.matches}
    depth = 0 if query.method is Method.LEXICAL else query.recall_depth
    reads = engines.reads_of(depth + len(by_words))
    recalled = engines.nodes.recall(
        vector, query.levels, depth, by_words, reads, deadline, query.filters
    )
    measured = {candidate.sha256: candidate for candidate in recalled.candidates}
    unscored = [sha256 for sha256 in measured if sha256 not in by_words]
    scores: dict[Sha256, float | None] = {sha256: one.bm25 for sha256, one in by_words.items()}
    if unscored:
        others = engines.lexical.scores(query.text, query.levels, unscored, deadline)
        scores |= zip(unscored, others, strict=True)
    candidates = [
        replace(one, bm25=scores[sha256]) for sha256, one in (by_words | measured).items()
    ]
    return _Found(
        candidates,
        len(candidates),
        recalled.documents,
        recalled.plan if depth else None,
        read=frozenset() if reads is Reads.NOTHING else frozenset(measured),
        nearest=list(measured)[: recalled.found],
        matched=list(by_words),
    )


def _candidate(match: Match) -> Candidate:
    return Candidate(match.sha256, match.level, None, bm25=match.score)


def _rerank(
    query: Query,
    encoding: Encoding | None,
    fused: Sequence[Candidate],
    found: _Found,
    engines: Engines,
    deadline: Deadline,
) -> Reranked:
    depth, reranker = engines.rerank_depth, engines.reranker
    if encoding is None and not reranker.needs_text:
        depth = 0  # that there is no encoding has been said
    best = fused[:depth]
    unread = [candidate for candidate in best if candidate.sha256 not in found.read]
    if unread:
        with suppress(DeadlineExceeded):  # then reranking has no time either, and says so
            read = {one.sha256: one for one in engines.nodes.read(unread, engines.reads, deadline)}
            best = [read.get(candidate.sha256, candidate) for candidate in best]
    question = Question(query.text, encoding)
    return rerank(question, [*best, *fused[depth:]], reranker, depth, deadline, reranker.batch)


def _hits(
    project: ProjectName, best: Sequence[Candidate], loaded: Loaded, weights: Weights
) -> tuple[Hit, ...]:
    steps = by_child(loaded.steps)
    # A node deleted between recall and here is simply no longer a hit.
    return tuple(
        _hit(project, candidate, loaded.nodes[candidate.sha256], steps, weights)
        for candidate in best
        if candidate.sha256 in loaded.nodes
    )


def _hit(
    project: ProjectName, candidate: Candidate, node: Node, steps: Steps, weights: Weights
) -> Hit:
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
        lexical=candidate.lexical,
        fused=candidate.fused,
        semantic_weight=weights.semantic,
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


def _explain(
    query: Query, fused: Sequence[Candidate], found: _Found, reranked: Reranked, hits: Sequence[Hit]
) -> tuple[Explained, ...]:
    final = {c.sha256: (rank, c) for rank, c in enumerate(reranked.ranking, start=1)}
    nearest = {sha256: rank for rank, sha256 in enumerate(found.nearest, start=1)}
    matched = {sha256: rank for rank, sha256 in enumerate(found.matched, start=1)}
    shown = {hit.sha256 for hit in hits}

    def unreturned(sha256: Sha256) -> Unreturned | None:
        if sha256 in shown:
            return None
        is_outranked = final[sha256][0] > query.limit
        return Unreturned.OUTRANKED_HERE if is_outranked else Unreturned.DELETED

    return tuple(
        Explained(
            rank=rank,
            sha256=candidate.sha256,
            level=candidate.level,
            distance=candidate.distance,
            semantic=candidate.semantic,
            bm25=candidate.bm25,
            lexical=candidate.lexical,
            fused=candidate.fused,
            rerank_score=final[candidate.sha256][1].rerank_score,
            final_rank=final[candidate.sha256][0],
            semantic_rank=nearest.get(candidate.sha256),
            lexical_rank=matched.get(candidate.sha256),
            unreturned=unreturned(candidate.sha256),
        )
        for rank, candidate in enumerate(fused, start=1)
    )
