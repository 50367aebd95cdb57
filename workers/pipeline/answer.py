"""How one project answers a question, as the algorithm: encode, recall, fuse, rerank, walk."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from workers.deadline import Clock, Deadline
from workers.errors import (
    DeadlineExceeded,
    EmbeddingServiceUnavailable,
    LexicalEngineUnavailable,
    PoimenError,
    StoreUnavailable,
)
from workers.model import (
    SEMANTIC_WEIGHT,
    Candidate,
    Encoding,
    Explained,
    Facets,
    Found,
    Hit,
    Kind,
    Loaded,
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
    Weights,
)
from workers.pipeline.engines import Engines
from workers.pipeline.fusion import fuse, weights_of
from workers.pipeline.recall import begin_recall
from workers.pipeline.rerank import Reranked, rerank
from workers.pipeline.walk import (
    FANS,
    Steps,
    by_child,
    parents_of,
)

WALK_SHARE = 0.1  # of what remains when reranking begins, at most WALK_MOST_S
WALK_MOST_S = 0.25
EVIDENCED_FROM = 0.4  # fused score of notes that are reranked with their evidence


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
    recall = begin_recall(query, engines, deadline)
    counting, holding = _count(query, engines, deadline), _count_holders(query, engines, deadline)
    with stages.stage("embed"):
        encoded = _encode(query, engines, deadline)
    with stages.stage("recall"):
        weight = _semantic_weight(query, engines, deadline)
        weights = weights_of(query.method, weight, encoded.encoding is not None)
        found = recall(encoded.vector, weights)
        if found.reason is not None:
            weights = Weights(1.0, 0.0)  # without words the meaning has all of it
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
        found.message,
        encoded.message or reranked.message,
        "its facets were not counted in time" if uncounted else None,
    )
    reason = encoded.missing or found.reason or reranked.reason or uncounted
    has_words = query.method is not Method.SEMANTIC and found.reason is None
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
        documents=_documents(query, found, facets, holding),
        facets=facets,
        stages_ms=stages.spent,
        embedding_cache=encoded.origin,
        reranker=engines.reranker.name if engines.rerank_depth and reranked.has_scored else None,
        lexical_engine=engines.lexical.engine if has_words else None,
        explained=_explain(query, fused, found, reranked, hits) if query.is_explained else (),
    )


def _semantic_weight(query: Query, engines: Engines, deadline: Deadline) -> float:
    """What the question says, else the project, else as usual."""
    if query.method is not Method.HYBRID:
        return SEMANTIC_WEIGHT  # nothing asks for it
    said = query.semantic_weight
    own = engines.own_weight(deadline) if said is None else said
    return SEMANTIC_WEIGHT if own is None else own


def _count(query: Query, engines: Engines, deadline: Deadline) -> Future[Facets] | None:
    if not query.has_facets:
        return None
    # Whatever is found by then is to be told in time, with or without counts.
    end = deadline.earlier_by(WALK_SHARE * deadline.remaining())
    return engines.beside(lambda: engines.counts.facets(query, end))


def _count_holders(query: Query, engines: Engines, deadline: Deadline) -> Future[int] | None:
    """Of a search by words alone, which is about these nodes; facets have their number as well."""
    if query.method is not Method.LEXICAL or query.has_facets:
        return None
    end = deadline.earlier_by(WALK_SHARE * deadline.remaining())
    return engines.beside(lambda: engines.counts.holders(query, end))


def _documents(
    query: Query, found: Found, facets: Facets | None, holding: Future[int] | None
) -> int:
    """How many nodes the question is about; at least those found, if that came too late."""
    if query.method is not Method.LEXICAL:
        return found.documents
    if facets is not None:
        return sum(facets.counts["levels"].values())
    with suppress(DeadlineExceeded):
        return holding.result() if holding else found.count
    return found.count


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


_NOT_UNDERSTOOD = "searched by words alone: the embedding model does not know the question's words"


def _encode(query: Query, engines: Engines, deadline: Deadline) -> _Encoded:
    """What can be answered by words is answered, if the embedding engine fails while there is time.

    So is a question that the engine does not understand: its vector would say nothing.

    Raises:
        EmbeddingServiceUnavailable: nothing but the meaning was asked for, or no time is left.
    """
    if query.method is Method.LEXICAL and engines.reads is not Reads.TOKENS:
        return _Encoded()
    try:
        encoding, origin = engines.encode(query.text, deadline)
    except EmbeddingServiceUnavailable as error:
        if query.method is Method.SEMANTIC or deadline.passed():
            raise
        lost = "not reranked" if query.method is Method.LEXICAL else "searched by words alone"
        return _Encoded(missing=error.code, message=f"{lost}: {error}")
    if not encoding.is_understood and query.method is not Method.SEMANTIC:
        return _Encoded(origin=origin, message=_NOT_UNDERSTOOD)
    return _Encoded(encoding, origin)


def _rerank(
    query: Query,
    encoding: Encoding | None,
    fused: Sequence[Candidate],
    found: Found,
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
    best = _with_evidence(best, engines, deadline)
    if best and not reranker.needs_text:
        with suppress(DeadlineExceeded, StoreUnavailable, LexicalEngineUnavailable):
            shas = [candidate.sha256 for candidate in best]
            named = engines.lexical.holding(query.text, shas, deadline)
            if named:
                best = [one._replace(is_named=one.sha256 in named) for one in best]
    question = Question(query.text, encoding)
    return rerank(question, [*best, *fused[depth:]], reranker, depth, deadline, reranker.batch)


def _with_evidence(
    best: Sequence[Candidate], engines: Engines, deadline: Deadline
) -> Sequence[Candidate]:
    """Notes that are worth it are read with what they rest on.

    Which are does not depend on the other candidates, or scores of projects would not compare.
    """
    noted = [
        one for one in best if one.tokens and one.kind is Kind.NOTE and one.fused >= EVIDENCED_FROM
    ]
    if noted:
        with suppress(DeadlineExceeded):  # then reranking has no time either, and says so
            read = {one.sha256: one for one in engines.nodes.read_evidence(noted, deadline)}
            return [read.get(one.sha256, one) for one in best]
    return best


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
    query: Query, fused: Sequence[Candidate], found: Found, reranked: Reranked, hits: Sequence[Hit]
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
