"""What the pipeline needs from the outside, as protocols. Adapters implement them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from workers.deadline import Deadline
from workers.model import (
    Answer,
    Candidate,
    Change,
    EmbeddingModel,
    Encoding,
    Facets,
    Filters,
    Found,
    Frozen,
    Job,
    JobLook,
    Level,
    Loaded,
    Matched,
    Opened,
    Pace,
    Principal,
    ProjectName,
    Query,
    Question,
    Reads,
    Recalled,
    Refused,
    Sending,
    Served,
    Sha256,
    SignOfLife,
    Silence,
    Vector,
    Weights,
)


class Encoder(Protocol):
    """Turns text into what recall and reranking compare.

    One call yields both the vector and the token vectors, since an engine that makes both needs one
    pass of its model for them; `tokens` is None where the reranker prepares nothing.
    """

    model: EmbeddingModel
    token_model: str | None  # names projection and weights; None: no token vectors
    most_tokens: int  # that it reads of a text

    def count_tokens(self, text: str) -> int:
        """How many tokens of a text it reads, or an estimate that is rather too high."""
        ...

    def encode_query(self, text: str, deadline: Deadline) -> Encoding:
        """Encode a question.

        Raises:
            EmbeddingServiceUnavailable: the engine failed, or not in time.
        """
        ...

    def encode_passages(self, texts: Sequence[str]) -> list[Encoding | Refused]:
        """Encode stored texts, results in the order given.

        A text that cannot be encoded is refused with its reason; its neighbours are encoded.

        Raises:
            EmbeddingServiceUnavailable: the engine failed.
            ModelMismatch: the engine makes vectors of another dimension.
        """
        ...

    def embed_passages(self, texts: Sequence[str]) -> list[Vector | Refused]:
        """Only the vectors of stored texts, results in the order given.

        Raises:
            As `encode_passages`.
        """
        ...

    def prepare_passages(self, texts: Sequence[str]) -> list[bytes | None]:
        """Only what the reranker wants prepared of stored texts, results in the order given."""
        ...

    def warm_up(self) -> None:
        """Encode something, so that the first question need not wait for what is loaded late.

        Raises:
            EmbeddingServiceUnavailable: the engine does not answer.
            ModelMismatch: the engine makes vectors of another dimension.
        """
        ...


class Reranker(Protocol):
    """Scores candidates against the question."""

    name: str
    needs_text: bool  # candidates must carry their text
    batch: int  # candidates scored together, between two looks at the clock

    def depth(self, limit: int) -> int:
        """How many candidates of a project it should score for an answer of `limit` hits."""
        ...

    def score(
        self, question: Question, candidates: Sequence[Candidate], deadline: Deadline
    ) -> list[float | None]:
        """Scores in [0, 1], one per candidate, None where there is none to be had.

        They must compare between projects, so none is about how good the other candidates are;
        but those that stand beside one in its source may say more of that one.

        Raises:
            DeadlineExceeded: the deadline came first.
            NotReranked: there will be no scores.
        """
        ...


NO_FILTERS = Filters()


class Searchable(Protocol):
    """One project's nodes, as the pipeline reads them. Every call respects the deadline.

    With filters nothing is found but what passes them, and all of it is looked at.

    Raises:
        DeadlineExceeded: the statement was stopped by the deadline.
        StoreUnavailable: the database does not answer.
    """

    def recall(
        self,
        query: Vector,
        levels: Sequence[Level],
        depth: int,
        also: Collection[Sha256],
        reads: Reads,
        deadline: Deadline,
        filters: Filters = NO_FILTERS,
    ) -> Recalled:
        """The `depth` nearest nodes, best first, and after them those of `also`, measured likewise.

        A node without a vector of this model is not found, and of `also` it is left out.
        """
        ...

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
        """Both at once, for an order that nothing changes: the best `hits` of the `depth` nearest.

        At least these are among the candidates, and they are loaded.
        """
        ...

    def read(
        self, candidates: Sequence[Candidate], reads: Reads, deadline: Deadline
    ) -> list[Candidate]:
        """The same candidates with what a reranker reads of them."""
        ...

    def read_evidence(self, candidates: Sequence[Candidate], deadline: Deadline) -> list[Candidate]:
        """The same candidates with the tokens of the first turns they rest on behind their own."""
        ...

    def load(self, nodes: Sequence[Sha256], fans: Sequence[int], deadline: Deadline) -> Loaded:
        """The nodes, and the edges within `len(fans)` hops of them.

        Parents of a node come in order of precedence, then sha256; at the first hop at most
        `fans[0]` of them are followed, and so on. Long texts are cut to an excerpt.
        """
        ...


class LexicalIndex(Protocol):
    """One project's nodes by their words. Every call respects the deadline.

    A question has no syntax: every sign in it is a sign, and any of its words may match.

    Raises:
        DeadlineExceeded: the search was stopped by the deadline.
        StoreUnavailable: the index does not answer, and is PostgreSQL's own.
        LexicalEngineUnavailable: the index does not answer, and is another server's.
    """

    engine: str  # that answers name it by

    def recall(
        self,
        text: str,
        levels: Sequence[Level],
        depth: int,
        deadline: Deadline,
        filters: Filters = NO_FILTERS,
    ) -> Matched:
        """The `depth` nodes that match a question best, ties by sha256; fewer if fewer match.

        Filters change no score. Without them a bound may leave out nodes that hold nothing but
        very frequent words; with them none is left out.
        """
        ...

    def scores(
        self, text: str, levels: Sequence[Level], nodes: Sequence[Sha256], deadline: Deadline
    ) -> list[float]:
        """The scores that recall would give these nodes, in their order; 0 without a match."""
        ...

    def holding(self, text: str, nodes: Sequence[Sha256], deadline: Deadline) -> frozenset[Sha256]:
        """Those of these nodes that hold a name the question consists of, whole; else none."""
        ...


class BothLegs(Protocol):
    """One project's nodes by meaning and by words at once. Raises as `Searchable`."""

    def suits(self, query: Query, deadline: Deadline) -> bool:
        """Whether this is the way to look for a question; otherwise each leg looks by itself."""
        ...

    def recall(
        self,
        query: Query,
        vector: Vector,
        weights: Weights,
        most: int | None,
        reads: Reads,
        deadline: Deadline,
    ) -> Found:
        """What the two legs find and measure together, and of that the `most` best (None: all).

        Each leg finds its `query.recall_depth` best. Candidates come with what the reranker reads.
        """
        ...


class Countable(Protocol):
    """One project's nodes as they are counted. Raises as `Searchable`."""

    def facets(self, query: Query, deadline: Deadline) -> Facets:
        """The counts over all nodes that a question is about, found or not."""
        ...

    def holders(self, query: Query, deadline: Deadline) -> int:
        """How many nodes pass levels and filters and hold a word of the question."""
        ...


class Runs(Protocol):
    """The running state of queries, kept where every process can reach it."""

    def freeze(self, query_id: str, by: str, silence: Silence) -> Frozen | Answer | None:
        """Stop accepting outcomes; the answer where there is one already.

        None when the query is not known, or was cancelled. The first to freeze decides `by` and
        `silence`, which is why a project has no outcome.
        """
        ...

    def publish(self, query_id: str, answer: Answer) -> Answer | None:
        """Make this the answer unless there is one; the one that stands, None if cancelled."""
        ...


class QueryStates(Protocol):
    """A query's state as the front door uses it.

    Every method raises QueueUnavailable when Redis does not answer.
    """

    def open(
        self,
        query_id: str,
        projects: Sequence[ProjectName],
        documents: Sequence[int],
        limit: int,
        timeout_s: float,
    ) -> Opened:
        """Write the query's record; must come before any of its tasks is sent."""
        ...

    def wait(self, query_id: str, seconds: float) -> Answer | None:
        """The answer once there is one, or None after `seconds`. For one that waits."""
        ...


class ServedAnswers(Protocol):
    """What is remembered of answers for a day.

    Every method raises QueueUnavailable when Redis does not answer.
    """

    def save(self, query_id: str, served: Served) -> None: ...

    def find(self, query_id: str) -> Served | None: ...


class JobStates(Protocol):
    """A submitted query's state while it runs.

    Every method raises QueueUnavailable when Redis does not answer.
    """

    def open_job(self, job: Job, projects: Sequence[ProjectName], limit: int) -> Opened:
        """Write the job's record; must come before any of its tasks is sent.

        Args:
            projects: those that are sent now; nobody has begun them, whoever did before.
        """
        ...

    def freeze(self, query_id: str, by: str, silence: Silence) -> Frozen | Answer | None:
        """Stop accepting outcomes; None when the job is not known (any more)."""
        ...

    def so_far(self, query_id: str) -> Frozen | None:
        """What has arrived, without ending anything."""
        ...

    def pace(self, query_ids: Sequence[str]) -> list[Pace | None]:
        """How far each of these jobs is; None for one that is not known (any more)."""
        ...

    def look(self, query_ids: Sequence[str]) -> list[JobLook | None]:
        """Who works on each of these jobs; None for one that is not known (any more)."""
        ...

    def signs(self, workers: Collection[str]) -> dict[str, SignOfLife]:
        """The last sign of life of each of these worker processes that gave one lately."""
        ...

    def waiting(self) -> int:
        """Tasks of jobs that no worker has taken yet."""
        ...

    def takes_writes(self) -> bool:
        """Whether something small can be written: a Redis that is full still answers questions."""
        ...

    def changes(self, query_id: str, since: int, seconds: float) -> list[Change]:
        """The changes after a revision, waiting a moment for the first; none if there is none."""
        ...

    def close(self, query_id: str, revision: int, by: str) -> None:
        """The job has ended: let go of its outcomes and tell who watches."""
        ...


@dataclass(frozen=True, slots=True)
class Submission:
    """A query as it is to be accepted."""

    id: str
    key_id: str
    idempotency_key: str | None
    fingerprint: bytes  # tells the same request from another one
    request: Mapping[str, Any]
    projects: tuple[ProjectName, ...]
    documents: tuple[int, ...]
    timeout_s: int
    keep_alive_s: int


@dataclass(frozen=True, slots=True)
class Saved:
    """The job of a submission."""

    job: Job
    is_replayed: bool = False  # it is the first one with the same idempotency key
    has_turn: bool = False  # it, or one that waits longer, may begin now


class JobStore(Protocol):
    """Submitted queries, where nothing that was accepted is lost.

    Every method raises StoreUnavailable when PostgreSQL does not answer.
    """

    def save(self, submission: Submission) -> Saved:
        """Accept a submission, or find the first with its idempotency key.

        Raises:
            IdempotencyConflict: the first one asked for something else.
            IdempotencyInProgress: the first one is being accepted at this moment.
            TooManyJobs: this key has as many unfinished ones as it may.
            Overloaded: its turn would not come before its deadline.
        """
        ...

    def claim_next(self) -> list[Job]:
        """The jobs whose turn it is now; they are for the caller to send."""
        ...

    def claim_again(self, job: Job, is_counted: bool) -> Job | None:
        """The job for one more attempt; None if another process makes it, or it has ended."""
        ...

    def give_back(self, job: Job) -> None:
        """Let a job that was claimed and could not be sent wait for its turn again."""
        ...

    def find(self, job_id: str) -> Job | None: ...

    def find_answer(self, job_id: str) -> Answer | None: ...

    def list_jobs(
        self,
        key_id: str,
        statuses: Sequence[str] | None,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> list[Job]:
        """One page, newest first; `before` is when the last one seen was submitted, and its id."""
        ...

    def finish(
        self, job_id: str, status: str, answer: Answer | None, error: str | None
    ) -> Job | None:
        """End a job, with its answer unless it was cancelled; None if it had ended before."""
        ...

    def expire(self, job_id: str) -> bool:
        """Remove an ended job's result; whether there was one."""
        ...

    def at_work(self) -> list[Job]:
        """The jobs that were sent and have time left."""
        ...

    def overdue(self) -> list[Job]:
        """Unfinished jobs past their deadline."""
        ...

    def clean_up(self) -> None:
        """Remove what is no longer to be kept, a batch at a time."""
        ...


class Searches(Protocol):
    """Sends searches to the workers.

    Every method raises QueueUnavailable, at once, when the queue does not take them.
    """

    def search_one(self, query: Query, project: ProjectName, sending: Sending) -> None:
        """Send one project's search, which finalizes the query by itself."""
        ...

    def search_all(self, query: Query, projects: Sequence[ProjectName], sending: Sending) -> None:
        """Send the searches, one project or pack of projects each, and the merge as a chord."""
        ...


class Projects(Protocol):
    """The projects of this memory, as far as a principal may reach them."""

    def find_projects(
        self,
        principal: Principal,
        levels: Sequence[Level],
        deadline: Deadline,
        among: Sequence[ProjectName] | None = None,
    ) -> dict[ProjectName, int]:
        """Sorted by name, each with its nodes of these levels.

        With `among`, those of them that exist and are permitted.
        """
        ...

    def list_projects(
        self, principal: Principal, deadline: Deadline, only: ProjectName | None = None
    ) -> list[dict[str, Any]]: ...

    def save_project(
        self,
        project: ProjectName,
        title: str | None,
        roots: Sequence[str],
        semantic_weight: float | None,
    ) -> None:
        """Create a project, or add what is new about it; None changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class IngestSubmission:
    """Memories as they are to be accepted: nodes in `payload`, or files."""

    id: UUID
    key_id: str
    idempotency_key: str | None
    fingerprint: bytes  # tells the same content from another one
    project: ProjectName | None
    format: str
    scope: frozenset[ProjectName] | None  # projects the submitter may write to; None: all
    payload: Mapping[str, Any] | None
    files: Sequence[tuple[str, bytes]]  # name and content
    total: int  # nodes, or files


@dataclass(frozen=True, slots=True)
class Accepted:
    """The job of a submission."""

    id: UUID
    is_duplicate: bool = False  # it is an earlier one, for the same content
    is_replayed: bool = False  # and has the same idempotency key


class IngestJobs(Protocol):
    """Accepted submissions."""

    def submit(self, submission: IngestSubmission) -> Accepted:
        """Accept a submission, unless there is a job for the same already.

        Raises:
            IdempotencyConflict: its idempotency key was used for another one.
            IdempotencyInProgress: the first one with its key is being accepted at this moment.
        """
        ...

    def load_job(self, job_id: UUID, principal: Principal) -> dict[str, Any]: ...

    def list_jobs(
        self,
        principal: Principal,
        statuses: Sequence[str] | None,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> list[dict[str, Any]]:
        """One page, newest first; `before` is when the last one seen was submitted, and its id."""
        ...

    def cancel(self, job_id: UUID, principal: Principal) -> bool:
        """End a job that has not ended; whether there was one."""
        ...

    def retry_ended(self, job_id: UUID, principal: Principal) -> bool:
        """Put a job that failed back into the queue; False if it has nothing to try again."""
        ...


class Keys(Protocol):
    """API keys."""

    def find_principal(self, key: str, deadline: Deadline) -> Principal | None: ...
