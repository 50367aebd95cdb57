"""Request and response bodies, and how they become domain values and back.

The OpenAPI document is generated from these same classes.
"""

import difflib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    model_validator,
)
from werkzeug.datastructures import MultiDict

from workers.errors import InvalidParameters
from workers.model import (
    PROJECT_NAME,
    Answer,
    Explained,
    Hit,
    Kind,
    Level,
    Outcome,
    Parent,
    Query,
    Status,
)

Model = TypeVar("Model", bound=BaseModel)

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
# U+0000 as JSON writes it; after an odd number of backslashes it is the text of an escape.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def _integer(value: object) -> object:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise ValueError("is not a whole number")
        return int(value)
    return value


def _boolean(value: object) -> object:
    if isinstance(value, str):
        known = {"true": True, "1": True, "false": False, "0": False}
        if value.lower() not in known:
            raise ValueError("is neither true nor false")
        return known[value.lower()]
    return value


def _list(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _no_nul(value: str) -> str:
    if "\x00" in value:
        raise ValueError("holds U+0000")
    return value


def _levels(value: list[str]) -> list[Level]:
    wrong = [name for name in value if name not in Level.__members__]
    if wrong or not value:
        raise ValueError("takes L0, L1 and L2, comma-separated")
    return sorted({Level(name) for name in value})


def _storable(nodes: list[Any]) -> list[Any]:
    # A job keeps its nodes as jsonb, which refuses what JSON text can hold and PostgreSQL cannot.
    for line, node in enumerate(nodes, start=1):
        try:
            data = json.dumps(node, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"node {line} holds half of a surrogate pair") from error
        except ValueError as error:
            raise ValueError(f"node {line} holds NaN or infinity") from error
        if _NUL.search(data):
            raise ValueError(f"node {line} holds U+0000")
    return nodes


Integer = Annotated[int, BeforeValidator(_integer)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Instant = Annotated[
    datetime,
    PlainSerializer(lambda value: value.astimezone(UTC).isoformat().replace("+00:00", "Z")),
]
Score = Annotated[float, Field(ge=0, le=1)]


class QueryParameters(BaseModel):
    """What `GET /memory/query` takes."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=4000),
        AfterValidator(_no_nul),
    ] = Field(description="the question, or words to look for")
    project: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        None, description="ask this project only; left out: every project you may read"
    )
    projects: Annotated[list[str], BeforeValidator(_list), Field(min_length=1)] | None = Field(
        None, description="ask these projects, comma-separated; not together with `project`"
    )
    level: Annotated[list[str], BeforeValidator(_list), AfterValidator(_levels)] = Field(
        default=["L1", "L2"], description="levels to search, comma-separated: L0, L1, L2"
    )
    limit: Integer = Field(5, description="most results, cut to 1..50")
    timeout_seconds: Integer = Field(5, description="time for the whole answer, cut to 1..30")
    method: Literal["auto", "hybrid", "semantic", "lexical"] = Field(
        "auto", description="how to search; this version searches by meaning: auto or semantic"
    )
    semantic_weight: str | None = Field(None, description="not in this version")
    filters: str | None = Field(None, description="not in this version")
    facets: str | None = Field(None, description="not in this version")
    explain: Boolean = Field(False, description="add the recall candidates of every project")

    @model_validator(mode="after")
    def _only_what_works(self) -> Self:
        if self.project is not None and self.projects is not None:
            raise InvalidParameters.of("projects", "cannot be given together with project")
        if self.projects is not None and "" in self.projects:
            raise InvalidParameters.of("projects", "has an empty name")
        if self.method in ("hybrid", "lexical"):
            raise InvalidParameters.of("method", "is not in this version; use auto or semantic")
        for name in ("semantic_weight", "filters", "facets"):
            if getattr(self, name) is not None:
                raise InvalidParameters.of(name, "is not in this version")
        return self

    @property
    def timeout_s(self) -> int:
        return min(30, max(1, self.timeout_seconds))

    def to_query(self) -> Query:
        return Query(
            text=self.query,
            levels=tuple(Level(level) for level in self.level),
            limit=min(50, max(1, self.limit)),
            is_explained=self.explain,
        )

    def notes(self) -> list[str]:
        """What was taken otherwise than asked."""
        used = {"limit": self.to_query().limit, "timeout_seconds": self.timeout_s}
        return [
            f"{name} {getattr(self, name)} was cut to {value}"
            for name, value in used.items()
            if getattr(self, name) != value
        ]


class ProjectParameters(BaseModel):
    """What `POST /memory/projects` takes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    project: Annotated[str, Field(pattern=PROJECT_NAME)]
    title: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_no_nul)] | None = (
        None
    )
    roots: list[Annotated[str, Field(pattern=r"^/[^\x00]*$", max_length=4096)]] = Field(
        default=[],
        max_length=100,
        description="absolute folders whose questions go to this project",
    )


class IngestParameters(BaseModel):
    """What `POST /memory/ingest` takes. Nodes are checked one by one while the job runs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    project: Annotated[str, Field(pattern=PROJECT_NAME)] | None = None
    format: Literal["nodes"]
    nodes: Annotated[
        list[Any],
        Field(min_length=1, json_schema_extra={"items": {"$ref": "#/components/schemas/NodeBody"}}),
        AfterValidator(_storable),
    ]


class ParentBody(BaseModel):
    level: Level
    kind: Kind
    sha256: str
    source: str
    turn: int | None
    text: str
    timestamp: Instant | None
    parents: list["ParentBody"]
    parents_omitted: int = Field(description="parents beyond those shown")

    @classmethod
    def of(cls, parent: Parent) -> Self:
        return cls(
            level=parent.level,
            kind=parent.kind,
            sha256=parent.sha256,
            source=parent.source,
            turn=parent.turn,
            text=parent.text,
            timestamp=parent.timestamp,
            parents=[cls.of(own) for own in parent.parents],
            parents_omitted=parent.parents_omitted,
        )


class Breakdown(BaseModel):
    semantic: Score
    lexical: Score | None
    semantic_weight: float
    lexical_weight: float
    fused: Score
    reason: str


class Result(BaseModel):
    id: str
    sha256: str
    project: str
    level: Level
    kind: Kind
    text: str
    source: str
    title: str | None
    standing_id: str | None
    breadcrumb: list[str]
    section: str | None
    turn: int | None
    timestamp: Instant | None
    tags: list[str]
    metadata: dict[str, Any]
    query_score: Score = Field(description="cosine similarity found by recall, cut at 0")
    rerank_score: Score | None = Field(description="null: this hit was not reranked")
    score: Score = Field(description="rerank_score, else the fused score")
    breakdown: Breakdown
    parents: list[ParentBody]
    parents_omitted: int

    @classmethod
    def of(cls, hit: Hit) -> Self:
        # Distances come from float32 arithmetic: a node's own text may be nearer than 0.
        semantic = min(1.0, hit.semantic)
        breakdown = Breakdown(
            semantic=semantic,
            lexical=None,
            semantic_weight=1.0,
            lexical_weight=0.0,
            fused=semantic,
            reason="semantic",
        )
        return cls(
            id=hit.sha256,
            sha256=hit.sha256,
            project=hit.project,
            level=hit.level,
            kind=hit.kind,
            text=hit.text,
            source=hit.source,
            title=hit.title,
            standing_id=hit.standing_id,
            breadcrumb=list(hit.breadcrumb),
            section=hit.title if hit.kind is Kind.CHUNK else None,
            turn=hit.turn,
            timestamp=hit.timestamp,
            tags=list(hit.tags),
            metadata=dict(hit.metadata),
            query_score=semantic,
            rerank_score=hit.rerank_score,
            score=semantic if hit.rerank_score is None else hit.rerank_score,
            breakdown=breakdown,
            parents=[ParentBody.of(parent) for parent in hit.parents],
            parents_omitted=hit.parents_omitted,
        )


class WarningDetail(BaseModel):
    code: str
    project: str | None
    message: str


class ProjectOutcome(BaseModel):
    project: str
    status: Status
    reason: str | None
    message: str | None
    took_ms: float
    queue_ms: float
    stages_ms: dict[str, float]
    candidates: int
    reranked: int
    task_id: str | None
    pid: int | None
    host: str | None
    started_at: Instant | None

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        return cls(
            project=outcome.project,
            status=outcome.status,
            reason=outcome.reason,
            message=outcome.message,
            took_ms=_ms(outcome.took_ms),
            queue_ms=_ms(outcome.queue_ms),
            stages_ms={name: _ms(spent) for name, spent in outcome.stages_ms.items()},
            candidates=outcome.candidates,
            reranked=outcome.reranked,
            task_id=outcome.task_id,
            pid=outcome.pid,
            host=outcome.host,
            started_at=outcome.started_at,
        )


class Federation(BaseModel):
    """Who was asked and what became of it. The counts always sum to `total`."""

    projects: list[ProjectOutcome]
    total: int
    successful: int
    partial: int
    timed_out: int
    failed: int
    skipped: int
    cancelled: int
    coverage: Score = Field(
        description="share of the projects that answered, partial ones included"
    )
    finalized_by: str

    @classmethod
    def of(cls, answer: Answer) -> Self:
        return cls(
            projects=[ProjectOutcome.of(outcome) for outcome in answer.outcomes],
            total=len(answer.outcomes),
            **{status.value: answer.count(status) for status in Status},
            coverage=answer.coverage,
            finalized_by=answer.finalized_by,
        )


class CacheUse(BaseModel):
    embedding: Literal["hit", "miss"] | None
    projects: dict[str, str | None] = Field(description="memory, redis, flight or miss")


class Metrics(BaseModel):
    """Milliseconds of the slowest project per stage, and what searched."""

    retrieval_time_ms: float
    embed_ms: float
    recall_ms: float
    rerank_ms: float
    walk_ms: float
    merge_ms: float
    queue_ms: float
    semantic_engine: str
    lexical_engine: str | None
    reranker: str | None
    total_docs_searched: int
    cache: CacheUse

    @classmethod
    def of(cls, answer: Answer) -> Self:
        def slowest(stage: str) -> float:
            return _ms(max((o.stages_ms.get(stage, 0.0) for o in answer.outcomes), default=0.0))

        origins = {o.project: o.embedding_cache for o in answer.outcomes}
        known = {origin for origin in origins.values() if origin is not None}
        hit_or_miss: Literal["hit", "miss"] = "miss" if "miss" in known else "hit"
        return cls(
            retrieval_time_ms=_ms(max((o.took_ms for o in answer.outcomes), default=0.0)),
            embed_ms=slowest("embed"),
            recall_ms=slowest("recall"),
            rerank_ms=slowest("rerank"),
            walk_ms=slowest("walk"),
            merge_ms=_ms(answer.merge_ms),
            queue_ms=_ms(max((o.queue_ms for o in answer.outcomes), default=0.0)),
            semantic_engine="pgvector",
            lexical_engine=None,
            reranker=next((o.reranker for o in answer.outcomes if o.reranker), None),
            total_docs_searched=sum(o.documents for o in answer.outcomes),
            cache=CacheUse(embedding=hit_or_miss if known else None, projects=origins),
        )


class Candidate(BaseModel):
    rank: int = Field(description="place in recall's order, from 1")
    sha256: str
    level: Level
    distance: float = Field(description="cosine distance, 0 same .. 2 opposite")
    query_score: float
    rerank_score: float | None
    final_rank: int = Field(description="place within its project after reranking")

    @classmethod
    def of(cls, explained: Explained) -> Self:
        return cls(
            rank=explained.rank,
            sha256=explained.sha256,
            level=explained.level,
            distance=explained.distance,
            query_score=explained.semantic,
            rerank_score=explained.rerank_score,
            final_rank=explained.final_rank,
        )


class ExplainedProject(BaseModel):
    project: str
    candidates: list[Candidate]


class Explanation(BaseModel):
    projects: list[ExplainedProject]


class QueryResponse(BaseModel):
    query_id: str
    query: str
    project: str | None
    project_filter: str | None
    level_filter: list[Level]
    search_method: str
    results: list[Result]
    filters_applied: dict[str, Any]
    projects_searched: list[str]
    warnings: list[str]
    warning_details: list[WarningDetail]
    degraded: bool
    federation: Federation
    metrics: Metrics
    explain: Explanation | None = None
    latency_ms: float
    notes: str

    @classmethod
    def of(cls, parameters: QueryParameters, answer: Answer, latency_s: float) -> Self:
        details = [
            WarningDetail(code=w.code, project=w.project, message=w.message)
            for w in answer.warnings
        ]
        return cls(
            query_id=answer.query_id,
            query=parameters.query,
            project=parameters.project,
            project_filter=parameters.project,
            level_filter=[Level(level) for level in parameters.level],
            search_method="semantic",
            results=[Result.of(hit) for hit in answer.hits],
            filters_applied={},
            projects_searched=[o.project for o in answer.outcomes if o.status.has_answered],
            warnings=[detail.message for detail in details],
            warning_details=details,
            degraded=any(o.status is not Status.SUCCESSFUL for o in answer.outcomes),
            federation=Federation.of(answer),
            metrics=Metrics.of(answer),
            explain=_explanation(answer) if parameters.explain else None,
            latency_ms=_ms(latency_s * 1000),
            notes="; ".join([*_notes(parameters, answer), *parameters.notes()]),
        )


def _explanation(answer: Answer) -> Explanation:
    return Explanation(
        projects=[
            ExplainedProject(
                project=outcome.project,
                candidates=[Candidate.of(explained) for explained in outcome.explained],
            )
            for outcome in answer.outcomes
        ]
    )


def _notes(parameters: QueryParameters, answer: Answer) -> list[str]:
    found = f"{len(answer.hits)} result{'' if len(answer.hits) == 1 else 's'}"
    if not answer.projects:
        return [f"{found}; this memory has no project yet: mem ingest FILE --project NAME adds one"]
    if parameters.project is not None:
        candidates = sum(outcome.candidates for outcome in answer.outcomes)
        return [f"{found} found; reranker reduced from {candidates} candidates"]
    answered = sum(outcome.status.has_answered for outcome in answer.outcomes)
    return [f"Searched {answered} of {len(answer.outcomes)} projects in parallel; {found}"]


class ProjectBody(BaseModel):
    project: str
    title: str | None
    roots: list[str]
    nodes: dict[Level, int]
    created_at: Instant

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        return cls(
            project=row["project"],
            title=row["title"],
            roots=row["roots"],
            nodes={level: row[level.value.lower()] for level in Level},
            created_at=row["created_at"],
        )


class ProjectList(BaseModel):
    projects: list[ProjectBody]


class IngestAccepted(BaseModel):
    id: str
    status: str


class SkippedLine(BaseModel):
    line: int
    reason: str


class IngestFile(BaseModel):
    name: str
    received: int
    stored: int
    updated: int
    unchanged: int
    skipped: list[SkippedLine] = Field(description="the first 1,000")
    skipped_count: int


class IngestError(BaseModel):
    code: str
    message: str


class Progress(BaseModel):
    done: int
    total: int


class IngestStatus(BaseModel):
    id: str
    status: Literal["queued", "running", "completed", "partial", "failed", "cancelled"]
    project: str | None
    format: str
    attempts: int
    error: IngestError | None
    progress: Progress
    files: list[IngestFile]
    created_at: Instant
    started_at: Instant | None
    heartbeat_at: Instant | None
    finished_at: Instant | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        error = None
        if row["error_code"]:
            error = IngestError(code=row["error_code"], message=row["error_message"])
        same = ("project", "format", "status", "attempts", "files")
        instants = ("created_at", "started_at", "heartbeat_at", "finished_at")
        return cls(
            id=str(row["id"]),
            error=error,
            progress=Progress(done=row["progress_done"], total=row["progress_total"]),
            **{name: row[name] for name in (*same, *instants)},
        )


class DependencyState(BaseModel):
    state: Literal["ok", "failed"]
    detail: str


class Readiness(BaseModel):
    status: Literal["ready", "not_ready"]
    dependencies: dict[str, DependencyState]
    workers: list[dict[str, Any]]


class Health(BaseModel):
    status: Literal["ok"]


class Problem(BaseModel):
    """RFC 9457, with `error` as its stable code."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    error: str
    request_id: str | None
    errors: list[dict[str, str]] = Field(default=[], description="parameter and reason")


def read_parameters(model: type[Model], arguments: "MultiDict[str, str]") -> Model:
    """Validate a query string.

    Raises:
        InvalidParameters: naming each wrong parameter, the nearest known one for an unknown.
    """
    twice = [name for name, values in arguments.lists() if len(values) > 1]
    if twice:
        raise InvalidParameters([{"parameter": n, "reason": "was given twice"} for n in twice])
    return validate(model, arguments.to_dict())


def validate(model: type[Model], data: object) -> Model:
    """Validate a body or a query string; errors name the parameter and what it takes.

    Raises:
        InvalidParameters: something is wrong.
    """
    if not isinstance(data, dict):
        raise InvalidParameters.of("body", "is not a JSON object")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise InvalidParameters([_error(model, detail) for detail in details]) from error


def _error(model: type[BaseModel], detail: Any) -> dict[str, str]:
    parameter = ".".join(str(part) for part in detail["loc"][:1]) or "body"
    if detail["type"] == "extra_forbidden":
        known = difflib.get_close_matches(parameter, model.model_fields, n=1, cutoff=0.0)
        return {"parameter": parameter, "reason": f"is unknown; did you mean {known[0]}?"}
    if detail["type"] == "missing":
        return {"parameter": parameter, "reason": "is required"}
    reason = str(detail["msg"]).removeprefix("Value error, ")
    return {"parameter": parameter, "reason": reason[0].lower() + reason[1:]}


def _ms(milliseconds: float) -> float:
    return round(milliseconds, 3)
