"""The values everything else speaks in. Durations end in _ms or _s; scores are higher-is-better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ProjectName = str
Sha256 = str
NodeKey = tuple[ProjectName, Sha256]
Vector = NDArray[np.float32]
"""One embedding: shape (dimension,), L2 norm 1."""

PROJECT_NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"


class Level(StrEnum):
    """How far a node is from the evidence: raw, a note on it, a synthesis of notes."""

    L0 = "L0"
    L1 = "L1"
    L2 = "L2"


class Kind(StrEnum):
    TURN = "turn"
    DOCUMENT = "document"
    CHUNK = "chunk"
    NOTE = "note"
    SYNTHESIS = "synthesis"


class Method(StrEnum):
    """How candidates are found and scored: by meaning, by words, or by both."""

    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    LEXICAL = "lexical"


class Status(StrEnum):
    """How one project's part of a query ended, or that it has not yet."""

    RUNNING = "running"
    SUCCESSFUL = "successful"
    PARTIAL = "partial"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def has_answered(self) -> bool:
        return self in (Status.SUCCESSFUL, Status.PARTIAL)


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """What makes two vectors comparable: the same name, weights and dimension."""

    name: str
    sha256: str | None
    dimension: int

    def __str__(self) -> str:
        """As messages name it."""
        sha256 = f", sha256 {self.sha256[:12]}" if self.sha256 else ""
        return f"{self.name} ({self.dimension} dimensions{sha256})"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that a memory knows, and how far its vectors are."""

    number: int
    model: EmbeddingModel
    is_active: bool  # its vectors are searched
    is_wanted: bool  # every node is to have a vector of it
    listed_at: datetime | None  # since when it is known which nodes have none
    ready_at: datetime | None  # since when it may become the active one


@dataclass(frozen=True, slots=True)
class Missing:
    """Nodes without a vector of a model."""

    waiting: int
    refused: int  # the model makes none of them
    nodes: int  # in all


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text as the engines see it: its vector, and token vectors if the reranker uses them."""

    vector: Vector
    tokens: bytes | None
    is_understood: bool = True  # of a question; else the model knows too few of its words


@dataclass(frozen=True, slots=True)
class Refused:
    """A text that no engine can encode, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question as a reranker may read it."""

    text: str
    encoding: Encoding | None  # None: there is none to be had


SEMANTIC_WEIGHT = 0.6
BM25_HALF = 8.0
"""The BM25 score that counts as half: about that of a text with two rare words of a question."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which nodes a question is about, beside their project and level; left out: all of them.

    A node passes if it meets every condition. One without a date meets none on `occurred_at`.
    """

    source_pattern: str | None = None  # `*` any characters, `?` one, all else as it stands
    updated_since: datetime | None = None  # from then on
    updated_before: datetime | None = None  # up to then, and not at that instant
    occurred_since: datetime | None = None
    occurred_before: datetime | None = None
    tags: tuple[str, ...] = ()  # has all of them
    kinds: tuple[Kind, ...] = ()  # is one of them
    standing_ids: tuple[str, ...] = ()  # answers one of them

    def __bool__(self) -> bool:
        """Whether there is any condition."""
        return self != _NO_FILTERS


_NO_FILTERS = Filters()


@dataclass(frozen=True, slots=True)
class Facets:
    """How many of the nodes that a question is about have each value, facet by facet.

    Those about which it is pass project, levels and filters; of a search by words alone they also
    hold one of its words.
    """

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # most nodes first
    truncated: tuple[str, ...] = ()  # facets with more values than are carried


FACETS = ("levels", "kinds", "sources", "dates", "tags", "projects")


@dataclass(frozen=True, slots=True)
class Query:
    """A validated question, before it meets a project."""

    text: str
    levels: tuple[Level, ...] = (Level.L1, Level.L2)
    limit: int = 5
    is_explained: bool = False
    method: Method = Method.HYBRID
    semantic_weight: float | None = None  # of a hybrid search; None: what the project says
    filters: Filters = _NO_FILTERS
    has_facets: bool = False

    @property
    def recall_depth(self) -> int:
        """Candidates per retriever and project; reranking cannot recover what recall left out."""
        return min(500, max(50, 10 * self.limit))


class Candidate(NamedTuple):
    """A node that recall found; scored again by the reranker.

    A tuple, as each of hundreds is made anew for every score that it gets.
    """

    sha256: Sha256
    level: Level
    distance: float | None  # cosine distance, 0 same .. 2 opposite; None: not measured
    text_length: int = 0  # characters of what has these tokens; all of it only for reranking
    tokens: bytes | None = None  # of the text, behind them those of a note's evidence
    text: str | None = None  # only for a reranker that reads it
    kind: Kind | None = None
    source: str | None = None
    position: int | None = None  # in its source
    is_named: bool = False  # holds a name that the question consists of
    bm25: float | None = None  # 0: holds no word of the question; None: not looked for by words
    fused: float = 0.0
    rerank_score: float | None = None

    @property
    def semantic(self) -> float | None:
        """Cosine similarity, cut at 0; float32 arithmetic may find a text nearer than itself."""
        return None if self.distance is None else min(1.0, max(0.0, 1.0 - self.distance))

    @property
    def lexical(self) -> float | None:
        """The BM25 score, which has no upper end, in [0, 1); the same whatever else is found.

        Squared, so that a frequent word counts for little and one rare word more for much. Without
        the squares, the first word found would already count the most. Rounded, as the last digits
        of a sum depend on the order of its words, and equal scores are to be equal.
        """
        if self.bm25 is None:
            return None
        return round(self.bm25**2 / (self.bm25**2 + BM25_HALF**2), 12)


@dataclass(frozen=True, slots=True)
class Node:
    """One memory, ready to be stored."""

    project: ProjectName
    sha256: Sha256
    level: Level
    kind: Kind
    source: str
    text: str
    position: int | None = None
    occurred_at: datetime | None = None
    title: str | None = None
    breadcrumb: tuple[str, ...] = ()
    span: Mapping[str, Any] | None = None
    standing_id: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parents: tuple[Sha256, ...] = ()
    embedding: Sequence[float] | None = None
    is_excerpt: bool = False  # read back for an answer, and longer than answers carry
    line: int | None = field(default=None, compare=False)  # in the submission that brought it

    @property
    def key(self) -> NodeKey:
        return self.project, self.sha256


@dataclass(frozen=True, slots=True)
class Parent:
    """One step of provenance, down to raw evidence."""

    level: Level
    kind: Kind
    sha256: Sha256
    source: str
    text: str
    turn: int | None
    timestamp: datetime | None
    parents: tuple["Parent", ...] = ()
    parents_omitted: int = 0
    is_excerpt: bool = False  # `text` is only the beginning


@dataclass(frozen=True, slots=True)
class Step:
    """One edge of a walk: a node, and one of the parents it was made from."""

    child: Sha256
    parent: Parent
    siblings: int  # parents the child has in all


class Reads(StrEnum):
    """What a reranker wants to know of candidates, beside where they stand."""

    NOTHING = "nothing"
    TOKENS = "tokens"  # and the text's length
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Recalled:
    """What recall by meaning found in one project, and how it looked."""

    candidates: tuple[Candidate, ...]  # nearest first; after them those that were measured besides
    found: int  # how many are nearest; of them, `candidates` may only hold the best
    documents: int  # nodes that pass levels and filters
    plan: str  # exact, or hnsw


@dataclass(frozen=True, slots=True)
class Match:
    """A node that holds words of a question."""

    sha256: Sha256
    level: Level
    score: float  # BM25, above 0; compares within one project, question and choice of levels


@dataclass(frozen=True, slots=True)
class Matched:
    """What lexical recall found in one project."""

    matches: tuple[Match, ...]  # best first
    is_bounded: bool  # not all nodes with a very frequent word were compared
    documents: int  # nodes that pass levels and filters


@dataclass(frozen=True, slots=True)
class Weights:
    """What each leg of a hybrid search counts; together 1."""

    semantic: float
    lexical: float


@dataclass(frozen=True, slots=True)
class Found:
    """What one project was found to hold, by one leg or both."""

    candidates: Sequence[Candidate]  # of both legs, each with its score in both
    count: int  # how many there are; where nothing is to change their order, only the best of them
    documents: int  # nodes that pass levels and filters
    plan: str | None = None  # exact or hnsw; None: not searched by meaning
    loaded: "Loaded | None" = None  # what the walk would load
    read: frozenset[Sha256] = frozenset()  # those that carry what the reranker reads
    nearest: Sequence[Sha256] = ()  # in the order of each leg
    matched: Sequence[Sha256] = ()
    reason: str | None = None  # a stable code, where words should have been looked for and were not
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The nodes that still exist, by sha256, and the edges walked from them."""

    nodes: Mapping[Sha256, Node]
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Hit:
    """A candidate that is good enough to be shown, with its text and provenance."""

    project: ProjectName
    sha256: Sha256
    level: Level
    kind: Kind
    text: str
    source: str
    semantic: float | None  # None: not measured
    rerank_score: float | None
    lexical: float | None = None  # None: not looked for by words
    fused: float = 0.0  # orders what was not reranked
    semantic_weight: float = 1.0  # in `fused`; the words have the rest
    standing_id: str | None = None
    title: str | None = None
    breadcrumb: tuple[str, ...] = ()
    turn: int | None = None
    timestamp: datetime | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parents: tuple[Parent, ...] = ()
    parents_omitted: int = 0
    is_excerpt: bool = False  # `text` is only the beginning


@dataclass(frozen=True, slots=True)
class Kept:
    """A hit that stays in an answer, and those that were folded under it: what it was made from."""

    hit: Hit
    folded: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What stands beside a hit in its source."""

    project: ProjectName
    sha256: Sha256
    level: Level
    kind: Kind
    source: str
    position: int
    title: str | None
    text: str | None  # None: it is shown elsewhere in the answer
    timestamp: datetime | None
    tags: tuple[str, ...] = ()
    is_excerpt: bool = False  # `text` is only the beginning
    is_shown_at: int | None = None  # the result that shows it, counted from 1


@dataclass(frozen=True, slots=True)
class Context:
    """The neighbours of a hit, nearest first."""

    previous: tuple[Neighbour, ...] = ()
    next: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class InContext:
    """A result with what stands beside it; None: that was not read in time."""

    kept: Kept
    context: Context | None


@dataclass(frozen=True, slots=True)
class Arranged:
    """Results in context, within a number of tokens."""

    results: tuple[InContext, ...]
    tokens: int  # of all texts of results and contexts, by an estimate
    is_truncated: bool = False
    results_omitted: int = 0
    chunks_omitted: int = 0


class Unreturned(StrEnum):
    """Why a candidate is not in the answer. A stable code."""

    OUTRANKED_HERE = "outranked_in_project"
    OUTRANKED = "outranked_by_other_projects"
    DELETED = "deleted_meanwhile"


@dataclass(frozen=True, slots=True)
class Explained:
    """What recall found, by fused score, and where reranking moved it."""

    rank: int
    sha256: Sha256
    level: Level
    distance: float | None
    semantic: float | None
    bm25: float | None
    lexical: float | None
    fused: float
    rerank_score: float | None
    final_rank: int
    semantic_rank: int | None  # in the leg that found it; None: that leg did not
    lexical_rank: int | None
    unreturned: Unreturned | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader of an answer should know."""

    code: str
    project: ProjectName | None
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one project's task returned. Exactly one per project of a query."""

    project: ProjectName
    status: Status
    hits: tuple[Hit, ...] = ()
    reason: str | None = None  # a stable code, unless successful
    message: str | None = None
    candidates: int = 0
    requested: int = 0  # candidates asked of recall
    plan: str | None = None  # how recall looked: exact or hnsw
    reranked: int = 0
    documents: int = 0  # nodes that pass levels and filters
    facets: Facets | None = None  # None: not asked for, or not counted in time
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    embedding_cache: str | None = None  # memory, redis, flight or miss
    embedder: str | None = None
    reranker: str | None = None
    lexical_engine: str | None = None
    explained: tuple[Explained, ...] = ()
    task_id: str | None = None
    pid: int | None = None
    host: str | None = None
    started_at: datetime | None = None
    took_ms: float = 0.0
    queue_ms: float = 0.0


class Silence(StrEnum):
    """Why a project of an ended query has no outcome. A stable reason code."""

    NO_ANSWER = "no_answer_by_deadline"
    NEVER_BEGUN = "queue_deadline"
    STOPPED = "stopped_by_user"
    GIVEN_UP = "attempts_exhausted"
    UNFINISHED = "unfinished"  # the query has not ended

    @property
    def status(self) -> Status:
        known = {
            Silence.STOPPED: Status.CANCELLED,
            Silence.GIVEN_UP: Status.FAILED,
            Silence.UNFINISHED: Status.RUNNING,
        }
        return known.get(self, Status.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class Frozen:
    """A query's state when it stopped accepting outcomes; what merging starts from."""

    projects: tuple[ProjectName, ...]
    limit: int
    by: str  # who stopped it
    outcomes: Mapping[ProjectName, Outcome]
    silence: Silence = Silence.NO_ANSWER  # why the others have no outcome
    documents: tuple[int, ...] = ()  # nodes of the asked levels, project by project


@dataclass(frozen=True, slots=True)
class Sending:
    """When searches of a query are sent, and how long they are of use."""

    query_id: str
    at: float  # now, in seconds since the epoch, by the clock that messages are told in
    left_s: float
    is_job: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """A query's record was written: what it met."""

    waiting: int  # tasks in its queue
    at: float  # now, in seconds since the epoch, by the clock that messages are told in


@dataclass(frozen=True, slots=True)
class Pace:
    """How far a running job is."""

    revision: int
    is_begun: bool
    done: int  # projects
    total: int


@dataclass(frozen=True, slots=True)
class JobLook:
    """Who works on a running job."""

    is_frozen: bool
    answered: frozenset[ProjectName]
    begun: Mapping[ProjectName, str]  # the worker process that took it


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """What a worker process says of itself every second."""

    age_s: float
    jobs: frozenset[str]  # that it works on


@dataclass(frozen=True, slots=True)
class Change:
    """One revision of a job: it was begun, a project was done, or it ended."""

    revision: int
    project: ProjectName | None = None
    status: Status | None = None
    reason: str | None = None
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted query."""

    id: str
    key_id: str
    status: str  # open, completed, partial, failed, cancelled, expired
    request: Mapping[str, Any]  # as it was submitted; empty once expired
    projects: tuple[ProjectName, ...]
    documents: tuple[int, ...]  # nodes of the asked levels, project by project, when submitted
    attempts: int
    submitted_at: datetime
    deadline_at: datetime
    asked_at: datetime  # now, by the clock that set the other instants
    dispatched_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    done: int = 0  # projects that had an outcome when it ended
    error: str | None = None  # a stable code, of a failed one

    @property
    def has_ended(self) -> bool:
        return self.status != "open"

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; negative once it is over."""
        return (self.deadline_at - self.asked_at).total_seconds()

    @property
    def sent_s(self) -> float:
        """Seconds since it was sent, 0 while it waits for its turn."""
        return (self.asked_at - (self.dispatched_at or self.asked_at)).total_seconds()

    @property
    def first_revision(self) -> int:
        """Of its present attempt, with which nothing has been done."""
        return self.attempts * (len(self.projects) + 2)

    @property
    def last_revision(self) -> int:
        """Once it has ended.

        Revisions grow strictly: each attempt has a range of its own, in which comes first that it
        was sent, then that it was begun, then one for each project.
        """
        return self.first_revision + len(self.projects) + 2


@dataclass(frozen=True, slots=True)
class Answer:
    """The merged, final result of one query. Made once, never changed."""

    query_id: str
    projects: tuple[ProjectName, ...]  # all that were asked
    hits: tuple[Hit, ...]
    outcomes: tuple[Outcome, ...]  # one per project, without hits
    warnings: tuple[Notice, ...]
    finalized_by: str  # callback, waiter, task, poll, sweep, stop
    merge_ms: float = 0.0
    documents: int = 0  # nodes of the asked levels in all projects asked
    searched: int = 0  # those of the projects that answered
    facets: Facets | None = None  # of the projects that answered; None: not asked for

    def count(self, status: Status) -> int:
        return sum(outcome.status is status for outcome in self.outcomes)

    @property
    def coverage(self) -> float:
        """Share of the asked projects that answered, partial ones included."""
        answered = sum(outcome.status.has_answered for outcome in self.outcomes)
        return answered / len(self.outcomes) if self.outcomes else 1.0

    @property
    def document_coverage(self) -> float:
        """Share of the nodes of the asked levels whose projects answered.

        Counted when the query began and before filters: neither what was stored meanwhile is a
        gap, nor what a filter leaves out.
        """
        return self.searched / self.documents if self.documents else self.coverage


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, and what they may reach. `projects` None: all of them."""

    key_id: str
    name: str
    can_write: bool
    projects: frozenset[ProjectName] | None

    def may_reach(self, project: ProjectName) -> bool:
        return self.projects is None or project in self.projects


@dataclass(frozen=True, slots=True)
class ServedHit:
    """A result as somebody got it."""

    project: ProjectName
    sha256: Sha256
    rank: int
    semantic: float | None
    lexical: float | None
    fused: float
    rerank_score: float | None


@dataclass(frozen=True, slots=True)
class Served:
    """What is remembered of an answer, so that feedback can be tied to it."""

    key_id: str
    method: Method
    hits: tuple[ServedHit, ...]

    @classmethod
    def of(cls, answer: Answer, key_id: str, method: Method) -> "Served":
        """Also hits that are later folded: their ranks are those of the whole ranking."""
        names = ("project", "sha256", "semantic", "lexical", "fused", "rerank_score")
        hits = tuple(
            ServedHit(rank=rank, **{name: getattr(hit, name) for name in names})
            for rank, hit in enumerate(answer.hits, start=1)
        )
        return cls(key_id, method, hits)

    def find(self, sha256: Sha256) -> ServedHit | None:
        return next((hit for hit in self.hits if hit.sha256 == sha256), None)


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a principal says of one result of one answer."""

    key_id: str
    query_id: str
    result_id: Sha256
    query_text: str | None
    relevant: bool | None
    rating: int | None
    feedback_text: str | None
    project: ProjectName | None  # None: not known
    hit: ServedHit | None = None  # as it was served; None: not known any more
    method: Method | None = None
