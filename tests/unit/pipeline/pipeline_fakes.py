"""Stand-ins for what the pipeline asks of the outside, and short ways to make its values."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np

from workers.deadline import Deadline
from workers.errors import DeadlineExceeded
from workers.model import (
    Answer,
    Candidate,
    Encoding,
    Facets,
    Filters,
    Frozen,
    Hit,
    Kind,
    Level,
    Loaded,
    Match,
    Matched,
    Node,
    Outcome,
    Parent,
    Query,
    Question,
    Reads,
    Recalled,
    Silence,
    Status,
    Step,
    Vector,
)
from workers.pipeline.engines import T
from workers.ports import NO_FILTERS

KINDS = {Level.L0: Kind.TURN, Level.L1: Kind.NOTE, Level.L2: Kind.SYNTHESIS}
QUERY = Encoding(np.ones(1, dtype=np.float32), None)
QUESTION = Question("why", QUERY)


def nothing() -> None:
    """Takes no time."""


class FakeClock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def taking(self, seconds: float) -> Callable[[], None]:
        return lambda: self.advance(seconds)

    def deadline_in(self, seconds: float) -> Deadline:
        return Deadline.after(seconds, self)


class FakeScorer:
    """Scores by name; `on_call` runs before each batch is answered."""

    name = "fake reranker"
    batch = 32

    def __init__(
        self,
        scores: Mapping[str, float | None] | None = None,
        on_call: Callable[[], None] = nothing,
        needs_text: bool = False,
    ) -> None:
        self.needs_text = needs_text
        self.scores = scores
        self.on_call = on_call
        self.batches: list[list[str]] = []
        self.named: set[str] = set()  # that were said to hold the name that was asked for

    def depth(self, limit: int) -> int:
        return 100

    def score(
        self, question: Question, candidates: Sequence[Candidate], deadline: Deadline
    ) -> list[float | None]:
        self.on_call()
        self.batches.append(ids(candidates))
        self.named |= {candidate.sha256 for candidate in candidates if candidate.is_named}
        if self.scores is None:
            return [score_of(candidate.sha256) for candidate in candidates]
        return [self.scores[candidate.sha256] for candidate in candidates]


def score_of(name: str) -> float:
    """Some score in [0, 1] that depends on the name alone."""
    return hashlib.sha256(name.encode()).digest()[0] / 255


def candidate(name: str, distance: float, level: Level = Level.L1) -> Candidate:
    return Candidate(name, level, distance, text_length=10)


def ranking_of(*names: str) -> list[Candidate]:
    """Candidates as recall returns them: each a little farther than the one before."""
    return [candidate(name, rank / 100) for rank, name in enumerate(names)]


def ids(found: Sequence[Candidate] | Sequence[Hit]) -> list[str]:
    return [one.sha256 for one in found]


def node(name: str, level: Level = Level.L0, project: str = "p") -> Node:
    return Node(project, name, level, KINDS[level], source=f"source of {name}", text=f"text {name}")


def parent_of(node: Node) -> Parent:
    """A node as the end of an edge."""
    return Parent(node.level, node.kind, node.sha256, node.source, node.text, None, None)


@dataclass
class FakeMemory:
    """One project, as the pipeline reads it. Each read takes the time its `on_` says."""

    distances: Mapping[str, float] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    edges: Mapping[str, Sequence[str]] = field(default_factory=dict)
    on_recall: Callable[[], None] = nothing
    on_walk: Callable[[], None] = nothing
    on_count: Callable[[], None] = nothing
    holding: int = 0  # nodes that hold a word of the question
    forgotten: frozenset[str] = frozenset()  # deleted after recall saw them
    prepared: dict[str, Kind] = field(default_factory=dict)  # what has tokens for the reranker
    asked_depths: list[int] = field(default_factory=list)
    asked_filters: list[Filters] = field(default_factory=list)
    reads: list[tuple[Reads, list[str]]] = field(default_factory=list)  # what, and of which nodes

    def recall(
        self,
        query: Vector,
        levels: Sequence[Level],
        depth: int,
        also: Collection[str],
        reads: Reads,
        deadline: Deadline,
        filters: Filters = NO_FILTERS,
    ) -> Recalled:
        self.on_recall()
        in_time(deadline)
        self.asked_filters.append(filters)
        self.asked_depths.append(depth)
        asked = [name for name in self.distances if self.nodes[name].level in levels]
        nearest = sorted(asked, key=lambda name: (self.distances[name], name))[:depth]
        besides = [name for name in also if name in self.distances and name not in nearest]
        found = [
            candidate(name, self.distances[name], self.nodes[name].level)._replace(
                kind=self.prepared.get(name),
                tokens=name.encode() if name in self.prepared else None,
            )
            for name in (*nearest, *besides)
        ]
        if reads is not Reads.NOTHING:
            self.reads.append((reads, ids(found)))
        documents = sum(one.level in levels for one in self.nodes.values())
        return Recalled(tuple(found), len(nearest), documents, plan="exact")

    def read(
        self, candidates: Sequence[Candidate], reads: Reads, deadline: Deadline
    ) -> list[Candidate]:
        in_time(deadline)
        self.reads.append((reads, ids(candidates)))
        return [one._replace(text_length=10) for one in candidates]

    def recall_and_load(
        self,
        query: Vector,
        levels: Sequence[Level],
        depth: int,
        hits: int,
        fans: Sequence[int],
        deadline: Deadline,
        filters: Filters = NO_FILTERS,
    ) -> tuple[Recalled, Loaded]:
        recalled = self.recall(query, levels, depth, (), Reads.NOTHING, deadline, filters)
        best = recalled.candidates[:hits]
        return replace(recalled, candidates=best), self.load(ids(best), fans, deadline)

    def read_evidence(self, candidates: Sequence[Candidate], deadline: Deadline) -> list[Candidate]:
        in_time(deadline)
        return [one._replace(tokens=(one.tokens or b"") + b"evidence") for one in candidates]

    def holders(self, query: Query, deadline: Deadline) -> int:
        self.on_count()
        in_time(deadline)
        return self.holding

    def facets(self, query: Query, deadline: Deadline) -> Facets:
        self.on_count()
        in_time(deadline)
        asked = [one for one in self.nodes.values() if one.level in query.levels]
        return Facets({"levels": Counter(one.level.value for one in asked)})

    def load(self, nodes: Sequence[str], fans: Sequence[int], deadline: Deadline) -> Loaded:
        self.on_walk()
        in_time(deadline)
        found: dict[str, list[Step]] = {}
        layer = list(nodes)
        for fan in fans:
            for child in layer:
                parents = self.edges.get(child, ())
                found[child] = [
                    Step(child, parent_of(self.nodes[parent]), len(parents))
                    for parent in parents[:fan]
                ]
            layer = [step.parent.sha256 for child in layer for step in found[child]]
        kept = {name: self.nodes[name] for name in nodes if name not in self.forgotten}
        return Loaded(kept, [step for steps in found.values() for step in steps])


@dataclass
class FakeWords:
    """Which nodes hold words of the question, and how well; `on_recall` as in `FakeMemory`."""

    memory: FakeMemory
    bm25: Mapping[str, float] = field(default_factory=dict)
    on_recall: Callable[[], None] = nothing
    asked_filters: list[Filters] = field(default_factory=list)
    engine = "fake words"

    def recall(
        self,
        text: str,
        levels: Sequence[Level],
        depth: int,
        deadline: Deadline,
        filters: Filters = NO_FILTERS,
    ) -> Matched:
        self.on_recall()
        in_time(deadline)
        self.asked_filters.append(filters)
        asked = [name for name in self.bm25 if self.memory.nodes[name].level in levels]
        best = sorted(asked, key=lambda name: (-self.bm25[name], name))[:depth]
        matches = [Match(name, self.memory.nodes[name].level, self.bm25[name]) for name in best]
        documents = sum(node.level in levels for node in self.memory.nodes.values())
        return Matched(tuple(matches), False, documents)

    def scores(
        self, text: str, levels: Sequence[Level], nodes: Sequence[str], deadline: Deadline
    ) -> list[float]:
        in_time(deadline)
        return [self.bm25.get(name, 0.0) for name in nodes]

    def holding(self, text: str, nodes: Sequence[str], deadline: Deadline) -> frozenset[str]:
        in_time(deadline)
        return frozenset(name for name in nodes if name == text)


def at_once(work: Callable[[], T]) -> "Future[T]":
    """Done before it is asked for, as far as a test can tell."""
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001  # whoever asks for the result gets it
        future.set_exception(error)
    return future


def in_time(deadline: Deadline) -> None:
    """What the database does at the deadline."""
    if deadline.passed():
        raise DeadlineExceeded("out of time")


def memory_of(*names: str, level: Level = Level.L0) -> FakeMemory:
    """Nodes of one level in the order that recall finds them."""
    return FakeMemory(
        distances={name: rank / 100 for rank, name in enumerate(names)},
        nodes={name: node(name, level) for name in names},
    )


def hit(
    name: str,
    project: str = "p",
    rerank_score: float | None = None,
    semantic: float = 0.5,
    text: str = "text",
) -> Hit:
    place = (project, name, Level.L0, Kind.TURN, text, "source")
    return Hit(*place, semantic, rerank_score, fused=semantic)


def found(project: str, *hits: Hit, status: Status = Status.SUCCESSFUL) -> Outcome:
    reason = None if status is Status.SUCCESSFUL else "some_reason"
    return Outcome(project, status, hits=hits, reason=reason)


def frozen(*outcomes: Outcome, projects: Sequence[str] = (), limit: int = 5) -> Frozen:
    """A query over these outcomes' projects, or over more of them."""
    asked = tuple(projects) or tuple(outcome.project for outcome in outcomes)
    return Frozen(asked, limit, "callback", {outcome.project: outcome for outcome in outcomes})


class FakeRuns:
    """Queries' state in this process: the same promises as the one in Redis."""

    def __init__(self, **queries: Frozen) -> None:
        self.queries = queries
        self.answers: dict[str, Answer] = {}
        self.published: list[Answer] = []

    def freeze(self, query_id: str, by: str, silence: Silence) -> Frozen | Answer | None:
        return self.answers.get(query_id) or self.queries.get(query_id)

    def publish(self, query_id: str, answer: Answer) -> Answer:
        self.published.append(answer)
        return self.answers.setdefault(query_id, answer)
