"""What the front door and the workers say to each other: task names, queues, message shapes."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from workers.model import PROJECT_NAME, Answer, Kind, Level, Outcome, ProjectName, Query

SEARCH_PROJECT = "poimen.search_project"
MERGE_RESULTS = "poimen.merge_results"
INGEST_NODES = "poimen.ingest_nodes"
REDISPATCH_INGEST = "poimen.redispatch_ingest"
PREPARE_TOKENS = "poimen.prepare_tokens"
EMBED_MISSING = "poimen.embed_missing"
ANALYSE_MISSING = "poimen.analyse_missing"
INDEX_WORDS = "poimen.index_words"
INDEX_LARGE_PROJECTS = "poimen.index_large_projects"
CANARY = "poimen.canary"

QUERY_QUEUE = "query"
JOBS_QUEUE = "jobs"
MERGE_QUEUE = "merge"
INGEST_QUEUE = "ingest"
UPKEEP_QUEUE = "upkeep"

PREFIX = "poimen"
"""Every key of ours in Redis starts with this."""

UPKEEP_KEY = f"{PREFIX}:upkeep"
"""When upkeep last ran, in seconds since the epoch."""
UPKEEP_KEPT_S = 600


class SearchMessage(TypedDict):
    """One task's part of a query. Instants are seconds since the epoch, UTC."""

    query_id: str
    projects: list[ProjectName]
    query: dict[str, Any]  # as `dump_query` makes it
    is_federated: bool
    is_job: bool  # submitted, and so polled, stopped and kept
    deadline_at: float  # the last instant at which an outcome is of use, by Redis's clock
    sent_at: float  # by Redis's clock


class CanaryMessage(TypedDict):
    """Asks a worker to show that it works, by pushing to `key`."""

    key: str
    lifetime_s: int


class NodesPayload(TypedDict):
    """What an ingest job of format `nodes` keeps in Postgres until it is done."""

    format: Literal["nodes"]
    project: ProjectName | None
    projects: list[ProjectName] | None  # those the submitter may write to; None: all
    nodes: list[object]


_QUERY = TypeAdapter(Query)
_OUTCOME = TypeAdapter(Outcome)
_ANSWER = TypeAdapter(Answer)


def dump_query(query: Query) -> dict[str, Any]:
    """The question as plain values, for messages and rows."""
    values: dict[str, Any] = _QUERY.dump_python(query, mode="json")
    return values


def load_query(values: Mapping[str, Any]) -> Query:
    """What is not among the values is as by default; what is besides them is left alone."""
    return _QUERY.validate_python(values)


def dump_outcome(outcome: Outcome) -> bytes:
    return _OUTCOME.dump_json(outcome)


def load_outcome(data: bytes) -> Outcome:
    return _OUTCOME.validate_json(data)


def dump_answer(answer: Answer) -> bytes:
    return _ANSWER.dump_json(answer)


def load_answer(data: bytes) -> Answer:
    return _ANSWER.validate_json(data)


def worker_key(name: str) -> str:
    """Where a live worker says who it is; it disappears with the worker's heartbeat."""
    return f"{PREFIX}:worker:{name}"


LONGEST_TEXT = 200_000
"""Characters of a node that is submitted as such."""


class NodeBody(BaseModel):
    """One node as it is submitted. `id` is a label that only this submission's `parents` know."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    project: Annotated[str, Field(pattern=PROJECT_NAME)] | None = None
    level: Annotated[Level, Field(strict=False)]
    kind: Annotated[Kind, Field(strict=False)]
    source: Annotated[str, Field(min_length=1, max_length=1000)]
    text: Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
    position: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    parents: Annotated[list[str], Field(max_length=10_000)] = []
    occurred_at: Annotated[AwareDatetime, Field(strict=False)] | None = None
    title: Annotated[str, Field(max_length=1000)] | None = None
    breadcrumb: Annotated[list[str], Field(max_length=100)] = []
    span: dict[str, Any] | None = None
    standing_id: Annotated[str, Field(max_length=200)] | None = None
    tags: Annotated[list[str], Field(max_length=1000)] = []
    metadata: dict[str, Any] = {}
    embedding: list[float] | None = None
    embedding_model: str | None = None
