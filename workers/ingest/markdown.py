"""Markdown: front matter, and sections by the headings of CommonMark."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import PurePath
from typing import Any

import regex

from workers.ingest.blocks import Heading, read_blocks
from workers.ingest.clipping import clip
from workers.ingest.decoding import decode
from workers.ingest.front_matter import read_front_matter
from workers.ingest.parsed import Alive, Document, Parsed, Section, Span, unheard

FORMAT = "markdown"
MOST_NAME_BYTES = 255  # of a heading as a name, a title or an anchor; the text keeps all of it

_NOT_IN_SLUGS = regex.compile(r"[^\p{L}\p{M}\p{N}\p{Pc}\- ]")
_DATES = ("date", "created")


def parse(data: bytes, name: str) -> Parsed:
    """One document, from a file's bytes and its name.

    Raises:
        Unreadable: it is not text.
    """
    decoded = decode(data)
    return parse_text(decoded.text, name, decoded.notes)


def parse_text(text: str, name: str, notes: Sequence[str] = (), alive: Alive = unheard) -> Parsed:
    """One document, from text with LF as line end. Blank text is no document.

    The sections' texts, one after the other, are the text behind the front matter. Broken front
    matter belongs to the first section.
    """
    if not text.strip():
        return Parsed(FORMAT, notes=(*notes, "holds no text"))
    front = read_front_matter(text)
    blocks = read_blocks(text[front.body :], alive)
    headings = [_moved(heading, front.body) for heading in blocks.headings]
    sections = _sections(text, 0 if front.is_text else front.end, headings)
    document = Document(
        text=text,
        sections=sections,
        title=_title(front.metadata, headings, name),
        tags=front.tags,
        metadata=front.metadata,
        occurred_at=_instant(front.metadata),
    )
    said = [*notes, *front.notes]
    if not sections:
        said.append("holds front matter only")
    return Parsed(FORMAT, documents=(document,), notes=tuple(said))


def stem(name: str) -> str | None:
    """A title from the name of a file, if it has one."""
    return clip(PurePath(re.split(r"[/\\]", name)[-1]).stem, MOST_NAME_BYTES) or None


def _moved(heading: Heading, by: int) -> Heading:
    return Heading(heading.start + by, heading.level, clip(heading.name, MOST_NAME_BYTES))


def _sections(text: str, start: int, headings: Sequence[Heading]) -> tuple[Section, ...]:
    found: list[Heading | None] = [*headings]
    starts = [heading.start for heading in headings]
    if not starts or start < starts[0]:
        found.insert(0, None)
        starts.insert(0, start)
    anchors, breadcrumbs = _Anchors(), _Breadcrumbs()
    texts = [text[at:end] for at, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    offset = len(text[:start].encode())
    sections = []
    sizes = [len(own.encode()) for own in texts]
    for heading, own, end, size in zip(
        found, texts, accumulate(sizes, initial=offset), sizes, strict=False
    ):
        if not size:  # front matter only
            continue
        sections.append(
            Section(
                heading=heading.name if heading else None,
                level=heading.level if heading else 0,
                breadcrumb=breadcrumbs.above(heading) if heading else (),
                anchor=anchors.take(heading.name) if heading else "",
                text=own,
                span=Span("bytes", end, end + size - 1),
            )
        )
    return tuple(sections)


class _Breadcrumbs:
    """The way to each heading. A heading that its parent had before is numbered in it."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str, dict[str, int]]] = []  # level, name, names below
        self._top: dict[str, int] = {}

    def above(self, heading: Heading) -> tuple[str, ...]:
        while self._open and self._open[-1][0] >= heading.level:
            self._open.pop()
        breadcrumb = tuple(name for _, name, _ in self._open if name)
        siblings = self._open[-1][2] if self._open else self._top
        siblings[heading.name] = count = siblings.get(heading.name, 0) + 1
        name = heading.name if count == 1 or not heading.name else f"{heading.name} ({count})"
        self._open.append((heading.level, name, {}))
        return breadcrumb


class _Anchors:
    """Anchors as GitHub makes them: unique, and the same as long as the headings are."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def take(self, name: str) -> str:
        slug = _NOT_IN_SLUGS.sub("", name.lower()).strip().replace(" ", "-")
        slug = anchor = clip(slug, MOST_NAME_BYTES - len("-1000000")) or "section"
        while anchor in self._taken:
            self._taken[slug] += 1
            anchor = f"{slug}-{self._taken[slug]}"
        self._taken[anchor] = 0
        return anchor


def _title(metadata: dict[str, Any], headings: Sequence[Heading], name: str) -> str | None:
    given = metadata.get("title")
    if isinstance(given, str | int | float) and str(given).strip():
        return clip(str(given).strip(), MOST_NAME_BYTES)
    return next((heading.name for heading in headings if heading.name), stem(name))


def _instant(metadata: dict[str, Any]) -> datetime | None:
    """When it was written; a date alone is its beginning in UTC."""
    for key in _DATES:
        value = metadata.get(key)
        if not isinstance(value, str):
            continue
        try:
            instant = datetime.fromisoformat(value.strip())
            instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
            # At the edges of the calendar there is no other time zone to show it in.
            (instant - timedelta(days=2)).astimezone(UTC)
            (instant + timedelta(days=2)).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
        return instant
    return None
