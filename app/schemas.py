"""The bodies of answers, made from domain values.

The OpenAPI document is generated from these same classes.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    computed_field,
)

from app.parameters import QueryParameters
from workers.model import Answer, Hit, Kind, Level, Status

Instant = Annotated[
    datetime,
    PlainSerializer(lambda value: value.astimezone(UTC).isoformat().replace("+00:00", "Z")),
]
Score = Annotated[float, Field(ge=0, le=1)]
Milliseconds = Annotated[float, AfterValidator(lambda value: round(value, 3))]


class Body(BaseModel):
    """A part of an answer; read off a domain value whose attributes have the same names."""

    model_config = ConfigDict(from_attributes=True)


class ParentBody(Body):
    level: Level
    kind: Kind
    sha256: str
    source: str
    turn: int | None
    text: str
    is_excerpt: bool = Field(description="the text is longer than its beginning shown here")
    timestamp: Instant | None
    parents: list["ParentBody"]
    parents_omitted: int = Field(description="parents beyond those shown")


class Breakdown(BaseModel):
    semantic: Score
    lexical: Score | None
    semantic_weight: float
    lexical_weight: float
    fused: Score
    reason: str


class Result(Body):
    id: str
    sha256: str
    project: str
    level: Level
    kind: Kind
    text: str
    is_excerpt: bool = Field(description="the text is longer than its beginning shown here")
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
        breakdown = Breakdown(
            semantic=hit.semantic,
            lexical=None,
            semantic_weight=1.0,
            lexical_weight=0.0,
            fused=hit.fused,
            reason="semantic",
        )
        values = {name: getattr(hit, name) for name in cls.model_fields if hasattr(hit, name)}
        return cls.model_validate(
            values
            | {
                "id": hit.sha256,
                "section": hit.title if hit.kind is Kind.CHUNK else None,
                "query_score": hit.semantic,
                "score": hit.fused if hit.rerank_score is None else hit.rerank_score,
                "breakdown": breakdown,
            }
        )


class WarningDetail(Body):
    code: str
    project: str | None
    message: str


class ProjectOutcome(Body):
    project: str
    status: Status
    reason: str | None
    message: str | None
    took_ms: Milliseconds
    queue_ms: Milliseconds
    stages_ms: dict[str, Milliseconds]
    plan: str | None = Field(description="how recall looked: exact or hnsw")
    requested: int = Field(description="candidates asked of recall")
    candidates: int
    reranked: int
    task_id: str | None
    pid: int | None
    host: str | None
    started_at: Instant | None

    @computed_field(description="candidates recall found")  # type: ignore[prop-decorator]
    @property
    def got(self) -> int:
        return self.candidates


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
            projects=[ProjectOutcome.model_validate(outcome) for outcome in answer.outcomes],
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

    retrieval_time_ms: Milliseconds
    embed_ms: Milliseconds
    recall_ms: Milliseconds
    rerank_ms: Milliseconds
    walk_ms: Milliseconds
    merge_ms: Milliseconds
    queue_ms: Milliseconds
    semantic_engine: str
    lexical_engine: str | None
    reranker: str | None
    total_docs_searched: int
    cache: CacheUse

    @classmethod
    def of(cls, answer: Answer) -> Self:
        def slowest(stage: str) -> float:
            return max((o.stages_ms.get(stage, 0.0) for o in answer.outcomes), default=0.0)

        origins = {o.project: o.embedding_cache for o in answer.outcomes}
        known = {origin for origin in origins.values() if origin is not None}
        hit_or_miss: Literal["hit", "miss"] = "miss" if "miss" in known else "hit"
        return cls(
            retrieval_time_ms=max((o.took_ms for o in answer.outcomes), default=0.0),
            embed_ms=slowest("embed"),
            recall_ms=slowest("recall"),
            rerank_ms=slowest("rerank"),
            walk_ms=slowest("walk"),
            merge_ms=answer.merge_ms,
            queue_ms=max((o.queue_ms for o in answer.outcomes), default=0.0),
            semantic_engine="pgvector",
            lexical_engine=None,
            reranker=next((o.reranker for o in answer.outcomes if o.reranker), None),
            total_docs_searched=sum(o.documents for o in answer.outcomes),
            cache=CacheUse(embedding=hit_or_miss if known else None, projects=origins),
        )


class Candidate(Body):
    rank: int = Field(description="place in recall's order, from 1")
    sha256: str
    level: Level
    distance: float = Field(description="cosine distance, 0 same .. 2 opposite")
    query_score: float = Field(validation_alias="semantic")
    rerank_score: float | None
    final_rank: int = Field(description="place within its project after reranking")


class ExplainedProject(Body):
    project: str
    candidates: list[Candidate] = Field(validation_alias="explained")


class Explanation(Body):
    projects: list[ExplainedProject] = Field(validation_alias="outcomes")


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
    latency_ms: Milliseconds
    notes: str

    @classmethod
    def of(cls, parameters: QueryParameters, answer: Answer, latency_s: float) -> Self:
        details = [WarningDetail.model_validate(warning) for warning in answer.warnings]
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
            explain=Explanation.model_validate(answer) if parameters.explain else None,
            latency_ms=latency_s * 1000,
            notes="; ".join([*_notes(parameters, answer), *parameters.notes()]),
        )


def _notes(parameters: QueryParameters, answer: Answer) -> list[str]:
    found = f"{len(answer.hits)} result{'' if len(answer.hits) == 1 else 's'}"
    if not answer.projects:
        how = "mem ingest FILE --as nodes --project NAME adds one"
        return [f"{found}; this memory has no project yet: {how}"]
    if parameters.project is not None:
        candidates = sum(outcome.candidates for outcome in answer.outcomes)
        if candidates <= len(answer.hits):
            return [f"{found} found"]
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
    state: Literal["ok", "degraded", "failed"]
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
