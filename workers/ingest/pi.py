"""pi's session files: a tree of entries, of which the last one's branch is the talk.

A turn's key is made of its entry's time and content: these are the same in a fork, and in a file
of the first version after pi has given its entries ids.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from workers.ingest.lines import JsonLines, Record, instant, object_of, text_of
from workers.ingest.parsed import Alive, Parsed, Session, Speaker, unheard
from workers.ingest.talk import (
    Talk,
    call_text,
    joined,
    kind_of_block,
    stem_of,
    without_spans,
)

FORMAT = "pi"
_TEXT_BLOCKS = ("text",)
_SUMMARIES = ("branchSummary", "compactionSummary")
_EXTENSION_ROLES = ("custom", "hookMessage")
# What pi itself puts into a person's message: a skill that was called by name, files.
_INSERTED = (("<skill name=", "</skill>"), ("<file name=", "</file>"))
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}$")


def parse(data: bytes, name: str, alive: Alive = unheard) -> Parsed:
    """The session in a file, or no session where nothing was said.

    Raises:
        Unreadable: the file has lines, and none is a pi session's header or message.
    """
    lines = JsonLines(data, alive)
    session = _Session(lines, stem_of(name))
    for number, record in lines:
        session.read(number, record)
    return lines.parsed(
        FORMAT,
        "header of a pi session, and no message of one",
        session.sessions(),
        session.is_known,
    )


@dataclass(slots=True)
class _Tree:
    """Entries by number. A parent stands before its children."""

    parents: list[int] = field(default_factory=list)
    leaf: int = -1
    _nodes: dict[str, int] = field(default_factory=dict)

    def grow(self, entry: Record) -> bool:
        """Go on to this entry. Whether it is met for the first time."""
        entry_id = text_of(entry, "id")
        if entry_id in self._nodes:
            self.leaf = self._nodes[entry_id]
            return False
        # The first version has neither ids nor parents, and a damaged line takes its id along:
        # then an entry follows the one above it.
        parent = self.leaf
        if entry_id and "parentId" in entry:
            named = entry["parentId"]
            parent = self._nodes.get(named, parent) if isinstance(named, str) else -1
        self.leaf = len(self.parents)
        self.parents.append(parent)
        if entry_id:
            self._nodes[entry_id] = self.leaf
        return True

    def active(self) -> set[int]:
        """The branch that ends in the last entry."""
        node, path = self.leaf, set()
        while node >= 0:
            path.add(node)
            node = self.parents[node]
        return path


class _Session:
    def __init__(self, lines: JsonLines, stem: str) -> None:
        self.is_known = False
        self._lines = lines
        self._talk = Talk(lines)
        self._stem = stem
        self._header: Record = {}
        self._title: str | None = None
        self._tree = _Tree()
        self._entry_key: tuple[str, ...] = ()
        self._is_repeated = False
        self._line = 0

    def read(self, number: int, entry: Record) -> None:
        kind = text_of(entry, "type") or "line without a type"
        self._line = number
        if kind == "session" and text_of(entry, "id"):
            # Forks before the first answer may have several; the first is the file's own.
            self.is_known = True
            self._header = self._header or entry
            self._talk.pass_time(instant(entry.get("timestamp")))
            self._lines.ignore(kind)
            return
        message = object_of(entry, "message") if kind == "message" else {}
        # The header may be damaged: what else has a role and a parent is pi's as well.
        self.is_known = self.is_known or ("role" in message and "parentId" in entry)
        own_time = instant(entry.get("timestamp"))
        self._talk.pass_time(own_time or instant(message.get("timestamp")))
        self._is_repeated = not self._tree.grow(entry)
        stamp = entry.get("timestamp") or message.get("timestamp")
        self._entry_key = self._identity(stamp, text_of(entry, "id"))
        if kind == "message":
            self._message(message)
        elif kind in ("compaction", "branch_summary"):
            self._say("summary", Speaker.SUMMARY, entry.get("summary"))
        elif kind == "custom_message":
            self._extension(entry)
        else:
            if kind == "session_info":
                self._title = text_of(entry, "name")
            self._lines.ignore(kind)

    def sessions(self) -> tuple[Session, ...]:
        active = self._tree.active()
        for draft in self._talk.drafts:
            if draft.node not in active:
                draft.tags.add("abandoned")
        forked_from = text_of(self._header, "parentSession")
        named = _session_of(self._stem)
        return self._talk.session(
            text_of(self._header, "id") or named,
            title=self._title,
            cwd=text_of(self._header, "cwd"),
            parent_id=_session_of(forked_from) if forked_from else None,
        )

    def _identity(self, stamp: object, entry_id: str | None) -> tuple[str, ...]:
        if isinstance(stamp, str | int | float):
            return FORMAT, str(stamp)
        own = text_of(self._header, "id") or self._stem
        return FORMAT, own, entry_id or ""

    def _message(self, message: Record) -> None:
        role, content = text_of(message, "role") or "", message.get("content")
        blocks: list[Any] = content if isinstance(content, list) else [content]
        if role == "bashExecution":
            self._shell(message)
        elif role in _SUMMARIES:
            self._say("summary", Speaker.SUMMARY, message.get("summary"))
        elif role in _EXTENSION_ROLES:
            self._extension(message)
        elif role not in ("user", "assistant", "toolResult"):
            if message:
                self._lines.ignore(f"message of {role or 'nobody'}")
            else:
                self._lines.skip(self._line, "has no message")
        elif not isinstance(content, str | list):
            self._lines.skip(self._line, "has no content")
        elif role == "user":
            self._user(blocks)
        elif role == "assistant":
            self._assistant(message, blocks)
        else:
            self._result(message, blocks)

    def _user(self, blocks: list[Any]) -> None:
        text = joined(blocks, _TEXT_BLOCKS, self._lines)
        bare = text
        for opening, closing in _INSERTED:
            if bare.lstrip().startswith(opening):
                bare = without_spans(bare, opening, closing)
        if text.strip() and not bare.strip():
            self._lines.ignore("machine text")
        else:
            self._say("user", Speaker.USER, bare)

    def _assistant(self, message: Record, blocks: list[Any]) -> None:
        names = ("model", "provider")
        metadata = {name: said for name in names if (said := text_of(message, name))}
        if not blocks:
            self._lines.ignore("empty text")
        for block in blocks:
            kind = block.get("type") if isinstance(block, dict) else None
            if isinstance(block, str):
                self._say("assistant", Speaker.ASSISTANT, block, metadata)
            elif kind == "text":
                self._say("assistant", Speaker.ASSISTANT, block.get("text"), metadata)
            elif kind == "thinking":
                # A redacted thought is sealed: nobody can read it.
                said = None if block.get("redacted") is True else block.get("thinking")
                self._say("thinking", Speaker.ASSISTANT, said, metadata, "thinking")
            elif kind == "toolCall":
                tool, call_id = text_of(block, "name") or "tool", text_of(block, "id")
                text = call_text(tool, block.get("arguments"))
                called = self._talk.called(tool, call_id)
                self._say(f"call {call_id or ''}", Speaker.TOOL, text, called)
            else:
                self._lines.ignore(kind_of_block(block))

    def _result(self, message: Record, blocks: list[Any]) -> None:
        call_id = text_of(message, "toolCallId")
        metadata = self._talk.returned(call_id, text_of(message, "toolName"))
        if message.get("isError") is True:
            metadata["is_error"] = True
        text = joined(blocks, _TEXT_BLOCKS, self._lines)
        self._say(f"result {call_id or ''}", Speaker.TOOL, text, metadata)

    def _shell(self, message: Record) -> None:
        if message.get("excludeFromContext") is True:
            # The person kept it from the model, which a memory would hand it to.
            self._lines.ignore("shell output kept from the model")
            return
        command = text_of(message, "command") or ""
        output = text_of(message, "output") or ""
        said = "\n".join(part for part in (f"$ {command}" if command else "", output) if part)
        self._say("shell", Speaker.TOOL, said, {"tool": "bash", "part": "result"})

    def _extension(self, message: Record) -> None:
        content = message.get("content")
        if message.get("display") is not True:
            self._lines.ignore("hidden message of an extension")
            return
        blocks = content if isinstance(content, list) else [content] if content else []
        kind = text_of(message, "customType")
        metadata = {"extension": kind} if kind else {}
        text = joined(blocks, _TEXT_BLOCKS, self._lines)
        self._say("extension", Speaker.TOOL, text, metadata, "extension")

    def _say(
        self,
        role: str,
        speaker: Speaker,
        said: object,
        metadata: dict[str, Any] | None = None,
        tag: str | None = None,
    ) -> None:
        text = self._talk.words(said, self._line)
        if text is None:
            self._lines.ignore("empty text")
            return
        parts = (*self._entry_key, role, text)
        if self._is_repeated and self._talk.has_said(*parts):
            self._lines.ignore("repeated entry")
            return
        key = self._talk.occurrence(*parts)
        tags = (tag,) if tag else ()
        self._talk.add(
            key, speaker, text, self._line, tags=tags, metadata=metadata, node=self._tree.leaf
        )


def _session_of(path: str) -> str:
    """The session that a file's path names."""
    stem = stem_of(path)
    found = _UUID.search(stem)
    return found[0] if found else stem
