"""The turns of a session while its file is being read: what the parsers of all agents share."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from workers.ingest.clipping import clip
from workers.ingest.lines import JsonLines, text_of
from workers.ingest.parsed import Session, Span, Speaker, Turn

MOST_TITLE_BYTES = 120
MOST_NAME_BYTES = 300
"""Of what identifies a session."""

_BLOB_MARK = "[base64]"
_SHORTEST_BLOB = 256  # characters; no word, path or key is as long without a break
_WINDOW = _SHORTEST_BLOB // 2  # every blob holds one that begins at a multiple of its length
_IS_BLOB = re.compile(rf"[A-Za-z0-9+/_-]{{{_WINDOW}}}")
_BLOB = re.compile(rf"[A-Za-z0-9+/_-]{{{_SHORTEST_BLOB},}}={{0,2}}")
_DATA_URL = re.compile(r"data:[\w.+-]{1,80}/[\w.+-]{1,80};base64,[A-Za-z0-9+/=_-]*")
_FEWEST_KINDS = 24  # of characters in a blob: a ruler, a hex dump or a genome has fewer


@dataclass(slots=True)
class Draft:
    """A turn that later lines may still change."""

    key: str
    speaker: Speaker
    text: str
    line: int
    last_line: int
    occurred_at: datetime | None
    tags: set[str]
    metadata: dict[str, Any]
    node: int  # where it stands in the tree of its file's lines

    def turn(self) -> Turn:
        span = Span("lines", self.line, self.last_line)
        tags = tuple(sorted(self.tags))
        return Turn(self.key, self.speaker, self.text, span, self.occurred_at, tags, self.metadata)


@dataclass(slots=True)
class Talk:
    """The turns of one session, in the order of the file."""

    lines: JsonLines
    drafts: list[Draft] = field(default_factory=list)
    at: datetime | None = None  # of the last line that had a time
    started_at: datetime | None = None
    _tools: dict[str, str] = field(default_factory=dict)  # by the id of their call
    _seen: Counter[str] = field(default_factory=Counter)

    def pass_time(self, at: datetime | None) -> None:
        """A line was met. What has no time of its own has that of the line before it."""
        if at is not None:
            self.at = at
            self.started_at = self.started_at or at

    def words(self, text: object, line: int) -> str | None:
        """A text as it is remembered: without pictures and the like; None if nothing is left."""
        if not isinstance(text, str) or not text.strip():
            return None
        bare, blobs = _without_blobs(text)
        if not blobs:
            return text
        self.lines.note("runs of base64 left out", line, blobs)
        return bare if bare.replace(_BLOB_MARK, "").strip() else None

    def add(
        self,
        key: str,
        speaker: Speaker,
        text: str,
        line: int,
        *,
        last_line: int | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        node: int = -1,
    ) -> Draft:
        """A turn at the end of the talk, said at the time of the last line that had one."""
        draft = Draft(
            key,
            speaker,
            text,
            line,
            last_line or line,
            self.at,
            set(tags),
            dict(metadata or {}),
            node,
        )
        self.drafts.append(draft)
        return draft

    def occurrence(self, *parts: str) -> str:
        """A key for what has no identity but its content: equal ones are told apart by number."""
        plain = key_of(*parts)
        self._seen[plain] += 1
        return key_of(plain, str(self._seen[plain]))

    def has_said(self, *parts: str) -> bool:
        return key_of(*parts) in self._seen

    def called(self, tool: str, call_id: str | None) -> dict[str, Any]:
        """The metadata of a tool's call, which its result will be linked to."""
        if call_id is None:
            return {"tool": tool, "part": "call"}
        self._tools[call_id] = tool
        return {"tool": tool, "part": "call", "call_id": call_id}

    def returned(self, call_id: str | None, tool: str | None = None) -> dict[str, Any]:
        """The metadata of a tool's result; of an orphan the tool is not known."""
        members = {"tool": tool or self._tools.get(call_id or ""), "part": "result"}
        members["call_id"] = call_id
        return {name: value for name, value in members.items() if value is not None}

    def session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        cwd: str | None = None,
        parent_id: str | None = None,
        agent_id: str | None = None,
    ) -> tuple[Session, ...]:
        """The session, or none: what nobody said anything in is no session."""
        if not self.drafts:
            return ()
        asked = [draft for draft in self.drafts if draft.speaker is Speaker.USER]
        asked = asked or [draft for draft in self.drafts if "delegated" in draft.tags]
        first = asked[0].text if asked else ""
        session = Session(
            id=clip(session_id, MOST_NAME_BYTES),
            turns=tuple(draft.turn() for draft in self.drafts),
            title=title_of(title or "") or title_of(first),
            cwd=cwd,
            started_at=self.started_at,
            parent_id=clip(parent_id, MOST_NAME_BYTES) if parent_id else None,
            agent_id=clip(agent_id, MOST_NAME_BYTES) if agent_id else None,
        )
        return (session,)


def key_of(*parts: str) -> str:
    """A turn's key: 32 hex digits of a hash. U+0000 is in no part, so it can stand between them."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def stem_of(name: str) -> str:
    """A file's name without folders and endings, of any system."""
    base = re.split(r"[/\\]", name.replace("\0", ""))[-1]
    base = base.encode(errors="replace").decode()
    return re.sub(r"(\.jsonl|\.json|\.ndjson)?(\.gz|\.zst)?$", "", base)


def title_of(text: str) -> str | None:
    """The first line with words in it, cut to a title's length."""
    first = next((line for line in text[:10_000].splitlines() if line.strip()), "")
    title = " ".join(first.split())
    if len(title.encode()) <= MOST_TITLE_BYTES:
        return title or None
    return clip(title, MOST_TITLE_BYTES - len("…".encode())).rstrip() + "…"


def without_spans(text: str, opening: str, closing: str) -> str:
    """The text without what stands between these marks; an opening that is not closed is text."""
    if opening not in text:
        return text
    kept, start = [], 0
    while (begin := text.find(opening, start)) >= 0:
        end = text.find(closing, begin)
        if end < 0:
            break
        kept.append(text[start:begin])
        start = end + len(closing)
    return "".join((*kept, text[start:])).strip() if start else text


def call_text(tool: str, arguments: object) -> str:
    """What a tool was asked, one member a line."""
    if isinstance(arguments, dict):
        said = "\n".join(f"{name}: {_plain(value)}" for name, value in arguments.items())
    else:
        said = "" if arguments is None else _plain(arguments)
    return f"{tool}\n{said}" if said.strip() else tool


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def joined(blocks: Iterable[object], kinds: tuple[str, ...], lines: JsonLines) -> str:
    """The texts of a list of blocks. Pictures and unknown kinds are counted, not taken."""
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, dict) and block.get("type") in kinds:
            texts.append(text_of(block, "text") or "")
        else:
            lines.ignore(kind_of_block(block))
    return "\n".join(text for text in texts if text.strip())


def kind_of_block(block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        return "block without a type"
    return "image" if kind in ("image", "input_image") else f"block {kind}"


def _without_blobs(text: str) -> tuple[str, int]:
    count = 0

    def replaced(found: re.Match[str]) -> str:
        nonlocal count
        run = found[0]
        is_data_url = run.startswith("data:")
        if not (is_data_url or _is_encoded(run)):
            return run
        count += 1
        return _BLOB_MARK

    if ";base64," in text:
        text = _DATA_URL.sub(replaced, text)
    last = len(text) - _WINDOW
    if any(_IS_BLOB.match(text, start) for start in range(0, last + 1, _WINDOW)):
        text = _BLOB.sub(replaced, text)
    return text, count


def _is_encoded(run: str) -> bool:
    kinds = set(run[:4096])
    return (
        len(kinds) >= _FEWEST_KINDS
        and any(map(str.isdigit, kinds))
        and any(map(str.islower, kinds))
        and any(map(str.isupper, kinds))
    )
