"""What every format is read into: sessions of turns, or documents of sections.

A parser is one function, `parse(data, name)`, from a file's bytes to `Parsed`. It never fails for
what single lines hold: those are counted or skipped with their reason. It raises `Unreadable` for a
file that is not of its format at all. Those of sessions also take what to call at every line, so
that they can be seen to be at work.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

Alive = Callable[[], None]
"""Called often while something large is read; it may raise to end that."""


def unheard() -> None:
    """Where nobody waits for a sign of life."""


class Unreadable(Exception):
    """A file that cannot be read as this format. The message says why, fit to be shown."""


class Speaker(StrEnum):
    """Who said it. What a machine wrote in a person's name is never `user`."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"  # what a tool was asked, or returned
    SUMMARY = "summary"  # a recap that a machine wrote of what was said before


@dataclass(frozen=True, slots=True)
class Span:
    """Where in the file it stands: lines or bytes, from `start` up to and including `end`.

    Lines count from 1, bytes from 0.
    """

    unit: str  # lines, or bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line that could not be read, and why; `line` counts from 1."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing said in a session. `text` is never blank and can be stored as it is."""

    key: str  # the same in every file that holds this turn, within its format
    speaker: Speaker
    text: str
    span: Span
    occurred_at: datetime | None = None
    tags: tuple[str, ...] = ()  # sidechain, abandoned, thinking, ...
    metadata: Mapping[str, Any] = field(default_factory=dict)  # model, tool, branch, ...


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation with an agent, in order."""

    id: str
    turns: tuple[Turn, ...]
    title: str | None = None
    cwd: str | None = None  # the folder it worked in
    started_at: datetime | None = None
    parent_id: str | None = None  # the session that it was forked from, or is a part of
    agent_id: str | None = None  # of a sub-agent's session


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it, up to the next heading."""

    heading: str | None  # None: what stands before the first one
    level: int  # 1 for `#`; 0 without a heading
    breadcrumb: tuple[str, ...]  # the headings above, outermost first
    anchor: str  # unique in the document
    text: str  # with its heading line
    span: Span  # bytes of the decoded text in UTF-8


@dataclass(frozen=True, slots=True)
class Document:
    """One text with its structure."""

    text: str
    sections: tuple[Section, ...]
    title: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of its front matter, as JSON
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """What one file holds."""

    format: str
    sessions: tuple[Session, ...] = ()
    documents: tuple[Document, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    unlisted: int = 0  # lines skipped beyond those listed
    ignored: Mapping[str, int] = field(default_factory=dict)  # by kind: what holds no memory
    notes: tuple[str, ...] = ()  # what was read otherwise than written: encodings, cleaned text
    has_open_end: bool = False  # the last line is still being written
