"""The `nodes` format: nodes with levels and edges, checked one by one."""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from workers.contracts import NodeBody
from workers.model import EmbeddingModel, Level, Node, ProjectName, Sha256
from workers.nesting import DEEPEST_NODE, is_nested_beyond
from workers.wording import place_of, wrong

FAULTS_TOLD = 10
"""Of one node: a list may hold a fault in each member."""

MOST_EQUAL = 100_000
"""Nodes of one source that are alike in everything their names are made of."""

FindNodes = Callable[[ProjectName, Iterable[Sha256]], Mapping[Sha256, Level]]
"""Which of these sha256s a project already holds, with their levels."""

# U+0000 as JSON writes it; after an odd number of backslashes it is the text of an escape.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that was not taken. `line` counts from 1 in the submission."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Draft:
    """An accepted node, its parents still labels or sha256s."""

    line: int
    label: str | None
    node: Node
    parents: tuple[str, ...]


def node_sha256(
    project: ProjectName, level: str, kind: str, source: str, text: str, occurrence: int
) -> Sha256:
    """A node's identity: SHA-256 over a compact UTF-8 JSON array of what it is.

    `occurrence` tells equal texts of one source apart (0, 1, ...), so that a paragraph inserted
    above re-keys nothing, and equal text in two projects is two nodes.
    """
    hashed = _hashed_but_for_occurrence(project, level, kind, source, text)
    hashed.update(f"{occurrence}]".encode())
    return hashed.hexdigest()


def find_occurrence(
    project: ProjectName, level: str, kind: str, source: str, text: str, sha256: Sha256
) -> int | None:
    """Which of its equals a node is: the one number that its name does not tell.

    None: this is not the name of such a node, or there are more than MOST_EQUAL of them.
    """
    begun = _hashed_but_for_occurrence(project, level, kind, source, text)
    for occurrence in range(MOST_EQUAL):
        hashed = begun.copy()
        hashed.update(f"{occurrence}]".encode())
        if hashed.hexdigest() == sha256:
            return occurrence
    return None


def _hashed_but_for_occurrence(
    project: ProjectName, level: str, kind: str, source: str, text: str
) -> "hashlib._Hash":
    array = [project, level, kind, source, text]
    data = json.dumps(array, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256((data[:-1] + ",").encode())


def read_nodes(
    bodies: Sequence[object],
    project: ProjectName | None,
    writable: AbstractSet[ProjectName] | None,
    model: EmbeddingModel,
    find: FindNodes,
) -> tuple[list[Node], list[Refusal]]:
    """The nodes of one submission, parents before children, and what was refused.

    A refused node takes the nodes that stand on it with it; its other neighbours are taken. The
    order of the submission does not matter.
    """
    drafts, refusals = _drafts(bodies, project, writable, model)
    refused = {label: refusal.line for refusal in refusals if (label := _label(bodies, refusal))}
    nodes, unresolved = _resolve(drafts, refused, find)
    return nodes, sorted((*refusals, *unresolved), key=lambda refusal: refusal.line)


def _drafts(
    bodies: Sequence[object],
    project: ProjectName | None,
    writable: AbstractSet[ProjectName] | None,
    model: EmbeddingModel,
) -> tuple[list[Draft], list[Refusal]]:
    drafts: list[Draft] = []
    refusals: list[Refusal] = []
    seen: Counter[tuple[str, ...]] = Counter()
    labels: dict[tuple[ProjectName, str], int] = {}
    for line, raw in enumerate(bodies, start=1):
        try:
            body = NodeBody.model_validate(raw)
            check_node(body, raw)
            draft = _draft(line, body, _project_of(body, project, writable), seen, model)
            _check_label(draft, labels)
        except ValidationError as error:
            refusals.append(Refusal(line, reason_of(error)))
        except ValueError as error:
            refusals.append(Refusal(line, str(error)))
        else:
            drafts.append(draft)
    return drafts, refusals


def _check_label(draft: Draft, labels: dict[tuple[ProjectName, str], int]) -> None:
    if draft.label is None:
        return
    first = labels.setdefault((draft.node.project, draft.label), draft.line)
    if first != draft.line:
        raise ValueError(f"id {draft.label!r} was already used in line {first}")


def _project_of(
    body: NodeBody, project: ProjectName | None, writable: AbstractSet[ProjectName] | None
) -> ProjectName:
    if body.project and project and body.project != project:
        raise ValueError(f"project {body.project!r} conflicts with the submission's {project!r}")
    name = body.project or project
    if name is None:
        raise ValueError("no project: give the node or the submission one")
    if writable is not None and name not in writable:
        raise ValueError(f"this key may not write to project {name!r}")
    return name


def _draft(
    line: int,
    body: NodeBody,
    project: ProjectName,
    seen: Counter[tuple[str, ...]],
    model: EmbeddingModel,
) -> Draft:
    if body.level is not Level.L0 and not body.parents:
        raise ValueError(f"an {body.level} node needs a parent: it would have no provenance")
    identity = (project, body.level.value, body.kind.value, body.source, body.text)
    sha256 = node_sha256(*identity, occurrence=seen[identity])
    seen[identity] += 1
    node = Node(
        project=project,
        sha256=sha256,
        level=body.level,
        kind=body.kind,
        source=body.source,
        text=body.text,
        position=body.position,
        occurred_at=body.occurred_at,
        title=body.title,
        breadcrumb=tuple(body.breadcrumb),
        span=body.span,
        standing_id=body.standing_id,
        tags=tuple(body.tags),
        metadata=body.metadata,
        embedding=_embedding(body, model),
        line=line,
    )
    return Draft(line, body.id, node, tuple(dict.fromkeys(body.parents)))


def check_node(body: NodeBody, raw: object) -> None:
    """
    Raises:
        ValueError: it cannot be stored as it is.
    """
    if not body.text.strip():
        raise ValueError("text: is blank")
    _check_instant(body.occurred_at)
    check_storable(raw)


def check_storable(raw: object) -> None:
    """
    Raises:
        ValueError: it holds what PostgreSQL or JSON cannot hold.
    """
    if is_nested_beyond(raw, DEEPEST_NODE):
        raise ValueError(f"is nested more than {DEEPEST_NODE} levels deep")
    try:
        data = json.dumps(raw, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("holds half of a surrogate pair, which is not text") from error
    except ValueError as error:
        raise ValueError("holds NaN or infinity, which JSON does not have") from error
    if _NUL.search(data):
        raise ValueError("holds U+0000, which PostgreSQL cannot store")


def _check_instant(instant: datetime | None) -> None:
    # PostgreSQL has years that Python has not: read back in another time zone, an instant at the
    # very edge would end every query that finds its node.
    if instant is None:
        return
    try:
        for day in (timedelta(days=-1), timedelta(days=1)):
            (instant + day).astimezone(UTC) + day
    except OverflowError as error:
        raise ValueError("occurred_at: is outside of the years 1 to 9999") from error


def _embedding(body: NodeBody, model: EmbeddingModel) -> tuple[float, ...] | None:
    if body.embedding is None:
        if body.embedding_model is not None:
            raise ValueError("embedding_model: given without an embedding")
        return None
    if body.embedding_model != model.name:
        raise ValueError(
            f"embedding_model: {body.embedding_model!r} is not this memory's {model.name!r};"
            " leave the embedding out and it is made here"
        )
    if len(body.embedding) != model.dimension:
        raise ValueError(
            f"embedding: has {len(body.embedding)} numbers, {model.name} has {model.dimension}"
        )
    norm = math.hypot(*body.embedding)
    if not math.isfinite(norm) or norm < 1e-6:
        raise ValueError("embedding: is too long, or all zeros")
    return tuple(number / norm for number in body.embedding)


def reason_of(error: ValidationError) -> str:
    """What is wrong with a node, in words that quote nothing of it."""
    said = []
    for detail in error.errors(include_url=False, include_input=False)[:FAULTS_TOLD]:
        where = place_of(detail["loc"])
        said.append(f"{where}: {wrong(detail)}" if where else wrong(detail))
    if error.error_count() > FAULTS_TOLD:
        said.append(f"and {error.error_count() - FAULTS_TOLD} more")
    return "; ".join(said)


def _label(bodies: Sequence[object], refusal: Refusal) -> str | None:
    raw = bodies[refusal.line - 1]
    label = raw.get("id") if isinstance(raw, dict) else None
    return label if isinstance(label, str) else None


def _resolve(
    drafts: Sequence[Draft], refused: Mapping[str, int], find: FindNodes
) -> tuple[list[Node], list[Refusal]]:
    """Replace labels by sha256s. Levels only descend, so one pass from L0 up is enough."""
    labels = {(d.node.project, d.label): d for d in drafts if d.label is not None}
    stored = _find_outside(drafts, labels, find)
    known: dict[tuple[ProjectName, Sha256], Level] = {}
    nodes: list[Node] = []
    refusals: list[Refusal] = []
    for draft in sorted(drafts, key=lambda draft: draft.node.level):
        project = draft.node.project
        try:
            parents = [
                _parent(draft, labels.get((project, name)), name, refused, known, stored)
                for name in draft.parents
            ]
        except ValueError as error:
            refusals.append(Refusal(draft.line, str(error)))
            continue
        known[project, draft.node.sha256] = draft.node.level
        nodes.append(replace(draft.node, parents=tuple(dict.fromkeys(parents))))
    return nodes, refusals


def _find_outside(
    drafts: Sequence[Draft],
    labels: Mapping[tuple[ProjectName, str], Draft],
    find: FindNodes,
) -> dict[tuple[ProjectName, Sha256], Level]:
    wanted: dict[ProjectName, set[str]] = {}
    for draft in drafts:
        outside = {p for p in draft.parents if (draft.node.project, p) not in labels}
        wanted.setdefault(draft.node.project, set()).update(outside)
    return {
        (project, sha256): level
        for project, names in wanted.items()
        if names
        for sha256, level in find(project, names).items()
    }


def _parent(
    draft: Draft,
    labelled: Draft | None,
    name: str,
    refused: Mapping[str, int],
    known: Mapping[tuple[ProjectName, Sha256], Level],
    stored: Mapping[tuple[ProjectName, Sha256], Level],
) -> Sha256:
    project = draft.node.project
    sha256 = labelled.node.sha256 if labelled else name
    if labelled and labelled.node.level >= draft.node.level:
        raise ValueError(f"parent {name!r} is {labelled.node.level}: parents are of a lower level")
    level = known.get((project, sha256)) or stored.get((project, sha256))
    if level is None:
        line = labelled.line if labelled else refused.get(name)
        said = "does not exist" if line is None else f"was refused (line {line})"
        raise ValueError(f"parent {name!r} {said} in project {project!r}")
    if level >= draft.node.level:
        raise ValueError(f"parent {name!r} is {level}: parents are of a lower level")
    return sha256
