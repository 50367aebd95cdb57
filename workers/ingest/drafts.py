"""From what was read to the nodes that are to be stored, source by source."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from workers.ingest.chunks import Chunk, Count, chunk_document, chunk_text
from workers.ingest.nodes import node_sha256
from workers.ingest.parsed import Alive, Document, Parsed, Session, Span, Speaker, Turn, unheard
from workers.model import Kind, Level, Node, ProjectName, Sha256
from workers.naming import document_name

ToolOutput = Literal["none", "short", "all"]
Mask = Callable[[str], tuple[str, Mapping[str, int]]]
"""A text without its secrets, and their number by kind."""

SHORT = 2_000  # characters kept of what a tool was asked or returned


@dataclass(frozen=True, slots=True)
class Draft:
    """One node of a source. `key` is what a turn is known by in every file; None in a document."""

    node: Node
    key: str | None = None


@dataclass(frozen=True, slots=True)
class SourceDraft:
    """A session or a document as the nodes it consists of, parents before children."""

    source: str
    format: str
    drafts: tuple[Draft, ...]
    title: str | None = None
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class KnownTurn:
    """A turn, or a part of one, as it is stored."""

    source: str
    sha256: Sha256
    text_sha256: str
    is_abandoned: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What a session's file brings that is not stored already."""

    drafts: tuple[Draft, ...]  # to be saved; some may be stored and only be told anew
    unchanged: int  # the others
    abandoned: tuple[str, ...]  # keys of turns that the file goes on without
    surplus: Mapping[str, tuple[str, ...]]  # keys of parts that a turn lost, by its first part's


@dataclass(slots=True)
class Drafting:
    """Makes nodes of what one file holds, and counts what was left out or masked."""

    name: str
    count: Count
    most_tokens: int
    mask: Mask
    tool_output: ToolOutput = "short"
    keeps_thinking: bool = False
    alive: Alive = unheard  # called at every turn, block and chunk
    masked: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)

    def session(self, project: ProjectName, form: str, session: Session) -> SourceDraft:
        """A session: one node for each turn, or for each part of a turn that is too long."""
        source = session_source(form, session)
        # Often the first words of the talk, and as secret as they are.
        session = replace(session, title=self.mask(session.title)[0] if session.title else None)
        seen: Counter[str] = Counter()
        drafts = tuple(
            draft
            for number, turn in enumerate(session.turns, start=1)
            for draft in self._turn(project, source, form, session, number, turn, seen)
        )
        return SourceDraft(source, form, drafts, session.title, session)

    def document(self, project: ProjectName, form: str, document: Document) -> SourceDraft:
        """A document: its text as evidence, and its chunks as what is found."""
        source = document_source(self.name)
        root = Node(
            project=project,
            sha256=node_sha256(project, Level.L0, Kind.DOCUMENT, source, document.text, 0),
            level=Level.L0,
            kind=Kind.DOCUMENT,
            source=source,
            text=document.text,
            title=document.title,
            occurred_at=document.occurred_at,
            tags=document.tags,
            metadata=document.metadata,
        )
        chunks = chunk_document(document, self.count, self.most_tokens, self.alive)
        seen: Counter[str] = Counter()
        drafts = [Draft(root)]
        for position, chunk in enumerate(_telling(chunks), start=1):
            drafts.append(Draft(_chunk(root, document, chunk, position, seen)))
        return SourceDraft(source, form, tuple(drafts), document.title)

    def _turn(
        self,
        project: ProjectName,
        source: str,
        form: str,
        session: Session,
        number: int,
        turn: Turn,
        seen: Counter[str],
    ) -> Iterator[Draft]:
        text = self._kept(turn)
        if text is None:
            return
        self.alive()
        text, masked = self.mask(text)
        self.masked.update(masked)
        chunks = tuple(_telling(chunk_text(text, self.count, self.most_tokens, self.alive)))
        for part, chunk in enumerate(chunks, start=1):
            own = chunk.text.strip()
            sha256 = node_sha256(project, Level.L0, Kind.TURN, source, own, seen[own])
            seen[own] += 1
            metadata = {**turn.metadata, "speaker": turn.speaker.value}
            if len(chunks) > 1:
                metadata |= {"part_number": part, "parts": len(chunks)}
            node = Node(
                project=project,
                sha256=sha256,
                level=Level.L0,
                kind=Kind.TURN,
                source=source,
                text=own,
                position=number,
                occurred_at=turn.occurred_at,
                title=session.title,
                span=_span(turn.span),
                tags=turn.tags,
                metadata=metadata,
            )
            yield Draft(node, f"{form}:{turn.key}:{part}")

    def _kept(self, turn: Turn) -> str | None:
        """What is remembered of a turn, or None."""
        if "thinking" in turn.tags and not self.keeps_thinking:
            self.ignored["thinking"] += 1
            return None
        if turn.speaker is not Speaker.TOOL or self.tool_output == "all":
            return turn.text
        if self.tool_output == "none":
            self.ignored["tool output"] += 1
            return None
        if len(turn.text) > SHORT:
            self.ignored["tool output beyond its beginning"] += 1
        return turn.text[:SHORT]


def plan_of(
    draft: SourceDraft,
    known: Mapping[str, KnownTurn],
    texts_of: Callable[[Sequence[Sha256]], Mapping[Sha256, str]],
) -> Plan:
    """What to store of a session, given what is known of it. The order of its files is no matter.

    A turn that another session brought, one that this was forked from, stays there. An older copy
    of a file, which lacks turns and brings none, changes nothing; nor does the beginning of a turn
    that is stored whole. A turn's node stays the same one as long as its text does, however many
    turns say the same.
    """
    draft = _apart(draft, known, texts_of)
    given = _by_turn((d.key or "", d) for d in draft.drafts)
    stored = _by_turn((key, turn) for key, turn in known.items() if turn.source == draft.source)
    foreign = {_turn_of(k) for k, turn in known.items() if turn.source != draft.source}
    own = given.keys() - foreign
    differing = {turn for turn in own & stored.keys() if not _is_same(given[turn], stored[turn])}
    shas = [part.sha256 for turn in differing for part in stored[turn].values()]
    texts = texts_of(shas) if shas else {}
    older = {turn for turn in differing if _is_beginning(given[turn], stored[turn], texts)}
    grown = differing - older
    is_new = bool(grown or own - stored.keys())
    gone = [
        key
        for turn, parts in stored.items()
        if turn not in given
        for key, part in parts.items()
        if not part.is_abandoned
    ]
    if not is_new and (gone or older):
        return Plan((), len(draft.drafts), (), {})
    kept = [d for d in draft.drafts if _turn_of(d.key or "") in own - older]
    surplus = {
        next(iter(given[turn])): tuple(stored[turn].keys() - given[turn].keys()) for turn in grown
    }
    return Plan(
        drafts=tuple(_identified(kept, stored)),
        unchanged=len(draft.drafts) - len(kept),
        abandoned=tuple(gone) if is_new else (),
        surplus={first: keys for first, keys in surplus.items() if keys},
    )


def _apart(
    draft: SourceDraft,
    known: Mapping[str, KnownTurn],
    texts_of: Callable[[Sequence[Sha256]], Mapping[Sha256, str]],
) -> SourceDraft:
    """The session with keys of its own for turns that only by chance are called as another's."""
    given = _by_turn((d.key or "", d) for d in draft.drafts)
    foreign = _by_turn((k, turn) for k, turn in known.items() if turn.source != draft.source)
    differing = [turn for turn in foreign if not _is_same(given[turn], foreign[turn])]
    shas = [part.sha256 for turn in differing for part in foreign[turn].values()]
    texts = texts_of(shas) if shas else {}
    clashing = {turn for turn in differing if not _is_alike(given[turn], foreign[turn], texts)}
    if not clashing:
        return draft
    own = hashlib.sha256(draft.source.encode()).hexdigest()[:16]

    def key_of(key: str) -> str:
        turn, _, part = key.rpartition(":")
        return f"{turn}@{own}:{part}" if turn in clashing else key

    return replace(
        draft, drafts=tuple(replace(one, key=key_of(one.key or "")) for one in draft.drafts)
    )


T = TypeVar("T")


def _turn_of(key: str) -> str:
    return key.rpartition(":")[0]


def _by_turn(parts: Iterable[tuple[str, T]]) -> dict[str, dict[str, T]]:
    """Parts by their keys, for each turn, in order."""
    found: dict[str, dict[str, T]] = {}
    for key, part in parts:
        found.setdefault(_turn_of(key), {})[key] = part
    return found


def _is_same(given: Mapping[str, Draft], stored: Mapping[str, KnownTurn]) -> bool:
    return given.keys() == stored.keys() and all(
        _text_sha256(given[key]) == stored[key].text_sha256 for key in given
    )


def _is_beginning(
    given: Mapping[str, Draft], stored: Mapping[str, KnownTurn], texts: Mapping[Sha256, str]
) -> bool:
    """Whether what is given is only the beginning of what is stored."""
    part, whole = _words(given, stored, texts)
    return len(part) < len(whole) and whole.startswith(part)


def _is_alike(
    given: Mapping[str, Draft], stored: Mapping[str, KnownTurn], texts: Mapping[Sha256, str]
) -> bool:
    """Whether one of them is the beginning of the other."""
    one, other = _words(given, stored, texts)
    return one.startswith(other) or other.startswith(one)


def _words(
    given: Mapping[str, Draft], stored: Mapping[str, KnownTurn], texts: Mapping[Sha256, str]
) -> tuple[str, str]:
    """What a turn says and what is stored of it, without blanks: parts have none at their ends."""

    def number(key: str) -> int:
        return int(key.rpartition(":")[2])

    told = "".join(draft.node.text for draft in given.values())
    known = "".join(texts.get(stored[key].sha256, "") for key in sorted(stored, key=number))
    return "".join(told.split()), "".join(known.split())


def _text_sha256(draft: Draft) -> str:
    return hashlib.sha256(draft.node.text.encode()).hexdigest()


def _identified(
    drafts: Sequence[Draft], stored: Mapping[str, Mapping[str, KnownTurn]]
) -> Iterator[Draft]:
    """The drafts under the names they have, or under ones that no other turn has."""
    known = {key: part for parts in stored.values() for key, part in parts.items()}
    taken = {part.sha256 for part in known.values()}
    seen: Counter[str] = Counter()
    for draft in drafts:
        node = draft.node
        own = known.get(draft.key or "")
        if own is not None and own.text_sha256 == _text_sha256(draft):
            yield replace(draft, node=replace(node, sha256=own.sha256))
            continue
        while True:
            same = (node.project, node.level, node.kind, node.source, node.text)
            sha256 = node_sha256(*same, occurrence=seen[node.text])
            seen[node.text] += 1
            if sha256 not in taken:
                break
        taken.add(sha256)
        yield replace(draft, node=replace(node, sha256=sha256))


def session_source(form: str, session: Session) -> str:
    """A session's name: its agent, the day it began, and enough of its id to be unique.

    Ids that begin with the time, as many do, differ at their end.
    """
    day = f"{session.started_at:%Y-%m-%d}-" if session.started_at else ""
    short = session.id if len(session.id) <= 17 else f"{session.id[:8]}-{session.id[-8:]}"
    agent = f"/agent-{session.agent_id}" if session.agent_id else ""
    return f"{form}:{day}{short}{agent}"


def document_source(name: str) -> str:
    """A document's name: that of its file."""
    return document_name(name) or "document"  # before such names were refused, some were accepted


def sources_of(
    parsed: Parsed, drafting: Drafting, project_of: Callable[[Session | None], ProjectName]
) -> Iterator[tuple[ProjectName, SourceDraft]]:
    """The sources that a file holds, each with the project it belongs to."""
    for session in parsed.sessions:
        project = project_of(session)
        yield project, drafting.session(project, parsed.format, session)
    for document in parsed.documents:
        project = project_of(None)
        yield project, drafting.document(project, parsed.format, document)


def _telling(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    return (chunk for chunk in chunks if chunk.text.strip())


def _chunk(root: Node, document: Document, chunk: Chunk, position: int, seen: Counter[str]) -> Node:
    text = chunk.text.strip()
    sha256: Sha256 = node_sha256(root.project, Level.L1, Kind.CHUNK, root.source, text, seen[text])
    seen[text] += 1
    metadata: dict[str, Any] = {"anchor": chunk.anchor} if chunk.anchor else {}
    return Node(
        project=root.project,
        sha256=sha256,
        level=Level.L1,
        kind=Kind.CHUNK,
        source=root.source,
        text=text,
        position=position,
        occurred_at=document.occurred_at,
        title=chunk.section or document.title,
        breadcrumb=chunk.breadcrumb,
        span=_span(chunk.span),
        tags=document.tags,
        metadata=metadata,
        parents=(root.sha256,),
    )


def _span(span: Span) -> dict[str, Any]:
    return {"unit": span.unit, "start": span.start, "end": span.end}
