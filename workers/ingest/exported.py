"""The lines of an export, read back: a project, its sources, its nodes, and an end."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from workers.contracts import NodeBody
from workers.ingest.nodes import check_node, check_storable, node_sha256, reason_of
from workers.ingest.parsed import Skipped
from workers.model import EmbeddingModel, Level, Node, ProjectName, Sha256
from workers.wording import ABSOLUTE_FOLDER

Instant = Annotated[AwareDatetime, Field(strict=False)]


class ExportedProject(BaseModel):
    """What is known of the project itself, but for its name: an import gives it one."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["project"]
    title: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    roots: list[Annotated[str, Field(pattern=ABSOLUTE_FOLDER, max_length=4096)]] = []
    semantic_weight: Annotated[float, Field(ge=0, le=1)] | None = None
    created_at: Instant | None = None


class ExportedSource(BaseModel):
    """A session or a document, as an export tells it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["source"]
    source: Annotated[str, Field(min_length=1, max_length=1000)]
    format: str
    title: str | None = None
    names: list[str] = []
    session: str | None = None
    parent: str | None = None
    cwd: str | None = None
    started_at: Instant | None = None
    created_at: Instant | None = None
    updated_at: Instant | None = None


class ExportedNode(NodeBody):
    """A node as an export tells it: `id` and `parents` are the names it had there."""

    type: Literal["node"]
    id: Annotated[str, Field(min_length=1, max_length=200)]
    text: Annotated[str, Field(min_length=1)]
    title: str | None = None
    tags: Annotated[list[str], Field(default_factory=list)]
    occurrence: Annotated[int, Field(ge=0)] = 0
    turns: Annotated[list[str], Field(default_factory=list)]
    created_at: Instant | None = None
    updated_at: Instant | None = None
    stale_since: Instant | None = None


class ExportedEnd(BaseModel):
    """The last line: without it the export was cut off."""

    type: Literal["end"]
    nodes: int


Record = ExportedProject | ExportedSource | ExportedNode | ExportedEnd
_EXPORTED: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="type")])


@dataclass(frozen=True, slots=True)
class Line:
    """One line that could be read, or why not."""

    number: int
    record: Record | Skipped


def read_lines(data: bytes) -> Iterator[Line]:
    """The lines of an export, those that cannot be read with their reason."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = _EXPORTED.validate_json(line)
            if isinstance(record, ExportedProject | ExportedSource):
                check_storable(record.model_dump(mode="json"))
            yield Line(number, record)
        except ValidationError as error:
            yield Line(number, Skipped(number, reason_of(error)))
        except ValueError as error:
            yield Line(number, Skipped(number, str(error)))


def node_of(
    exported: ExportedNode,
    project: ProjectName,
    names: Mapping[str, Sha256],
    model: EmbeddingModel,
) -> Node:
    """The node, under the name it has in this project.

    Args:
        names: of the nodes read before, from the names they had to those they have.
        model: whose vectors are kept; others are made anew.

    Raises:
        ValueError: it cannot be stored, or rests on nothing that was read before.
    """
    check_node(exported, exported.model_dump(mode="json", exclude={"embedding"}))
    parents = tuple(names[name] for name in exported.parents if name in names)
    if exported.level is not Level.L0 and not parents:
        raise ValueError("nothing that it rests on was taken")
    level, kind = exported.level.value, exported.kind.value
    same = (project, level, kind, exported.source, exported.text)
    embedding: Any = exported.embedding
    if exported.embedding_model != model.name or not _has_direction(embedding, model.dimension):
        embedding = None
    return Node(
        project=project,
        sha256=node_sha256(*same, occurrence=exported.occurrence),
        level=exported.level,
        kind=exported.kind,
        source=exported.source,
        text=exported.text,
        position=exported.position,
        occurred_at=exported.occurred_at,
        title=exported.title,
        breadcrumb=tuple(exported.breadcrumb),
        span=exported.span,
        standing_id=exported.standing_id,
        tags=tuple(exported.tags),
        metadata=exported.metadata,
        parents=parents,
        embedding=embedding,
    )


def _has_direction(embedding: Sequence[float] | None, dimension: int) -> bool:
    if embedding is None or len(embedding) != dimension:
        return False
    return 1e-6 < math.hypot(*embedding) < 1e6  # what single precision can surely hold
