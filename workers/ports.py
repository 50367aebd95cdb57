"""What the pipeline needs from the outside, as protocols. Adapters implement them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from workers.deadline import Deadline
from workers.model import (
    Answer,
    Candidate,
    EmbeddingModel,
    Encoding,
    Frozen,
    Level,
    Loaded,
    Principal,
    ProjectName,
    Question,
    Recalled,
    Refused,
    Sha256,
    Vector,
)


class Encoder(Protocol):
    """Turns text into what recall and reranking compare.

    One call yields both the vector and the token vectors, since an engine that makes both needs one
    pass of its model for them; `tokens` is None where the reranker prepares nothing.
    """

    model: EmbeddingModel
    token_model: str | None  # names projection and weights; None: no token vectors

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
    """Scores a candidate against the question, each pair on its own."""

    name: str
    needs_text: bool  # candidates must carry their text
    batch: int  # candidates scored between two looks at the clock

    def depth(self, limit: int) -> int:
        """How many candidates of a project it should score for an answer of `limit` hits."""
        ...

    def score(
        self, question: Question, candidates: Sequence[Candidate], deadline: Deadline
    ) -> list[float | None]:
        """Scores in [0, 1], one per candidate, None where there is none to be had.

        A pair's score depends on that pair alone, so it compares between projects and batches.

        Raises:
            DeadlineExceeded: the deadline came first.
            NotReranked: there will be no scores.
        """
        ...


class Searchable(Protocol):
    """One project's nodes, as the pipeline reads them. Every call respects the deadline.

    Raises:
        DeadlineExceeded: the statement was stopped by the deadline.
        StoreUnavailable: the database does not answer.
    """

    def recall(
        self,
        query: Vector,
        levels: Sequence[Level],
        depth: int,
        tokens_for: int,
        has_text: bool,
        deadline: Deadline,
    ) -> Recalled:
        """The `depth` nearest nodes, best first.

        The first `tokens_for` carry what was prepared for the reranker, and their text if
        `has_text`.
        """
        ...

    def load(
        self,
        nodes: Sequence[Sha256],
        climbing: Sequence[Sha256],
        fans: Sequence[int],
        deadline: Deadline,
    ) -> Loaded:
        """The nodes, and the edges within `len(fans)` hops of those that are `climbing`.

        Parents of a node come in order of precedence, then sha256; at the first hop at most
        `fans[0]` of them are followed, and so on. Long texts are cut to an excerpt.
        """
        ...


class Runs(Protocol):
    """The running state of queries, kept where every process can reach it."""

    def freeze(self, query_id: str, by: str) -> Frozen | None:
        """Stop accepting outcomes; None when the query is not known (any more)."""
        ...

    def publish(self, query_id: str, answer: Answer) -> Answer:
        """Make this the answer unless there is one; return the answer that stands."""
        ...

    def find_answer(self, query_id: str) -> Answer | None: ...


class QueryStates(Protocol):
    """A query's state as the front door uses it.

    Every method raises QueueUnavailable when Redis does not answer.
    """

    def open(
        self, query_id: str, projects: Sequence[ProjectName], limit: int, timeout_s: float
    ) -> None:
        """Write the query's record; must come before any of its tasks is sent."""
        ...

    def wait(self, query_id: str, seconds: float) -> None:
        """Return once there is an answer, or after `seconds`."""
        ...


class Projects(Protocol):
    """The projects of this memory, as far as a principal may reach them."""

    def names(
        self,
        principal: Principal,
        deadline: Deadline,
        among: Sequence[ProjectName] | None = None,
    ) -> list[ProjectName]:
        """Sorted; with `among`, those of them that exist and are permitted."""
        ...

    def list_projects(
        self, principal: Principal, deadline: Deadline, only: ProjectName | None = None
    ) -> list[dict[str, Any]]: ...

    def save_project(
        self, project: ProjectName, title: str | None, roots: Sequence[str]
    ) -> None: ...


class IngestJobs(Protocol):
    """Accepted submissions."""

    def save_job(
        self, job_id: UUID, principal: Principal, payload: Mapping[str, Any], total: int
    ) -> None: ...

    def load_job(self, job_id: UUID, principal: Principal) -> dict[str, Any]: ...


class Keys(Protocol):
    """API keys."""

    def find_principal(self, key: str, deadline: Deadline) -> Principal | None: ...
