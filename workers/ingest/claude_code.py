"""Claude Code's session files: messages spread over lines, repeated, forked, rewound, compacted.

A turn is one block of one message: a text, a thought, a call of a tool, its result. Lines that
repeat a block, in this file or another, give the same key; of growing copies the longest is kept.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from workers.ingest.lines import JsonLines, Record, instant, object_of, text_of
from workers.ingest.parsed import Alive, Parsed, Session, Speaker, unheard
from workers.ingest.talk import (
    Draft,
    Talk,
    call_text,
    joined,
    key_of,
    kind_of_block,
    stem_of,
    without_spans,
)

FORMAT = "claude_code"
_CONVERSATION = ("user", "assistant", "message")  # `message`: of old tools, without an envelope
_MEMBERS = ("message", "leafUuid", "sessionId", "uuid", "messageId")
KINDS = frozenset(
    {
        *_CONVERSATION, "system", "attachment", "progress", "summary", "file-history-snapshot",
        "queue-operation", "custom-title", "ai-title", "agent-name", "agent-setting",
        "last-prompt", "mode", "permission-mode", "pr-link", "bridge-session",
    }
)  # fmt: skip
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle"}  # a person's before the model's

_RECAP = "This session is being continued"
_MACHINE = (
    "<command-name>", "<command-message>", "<command-args>", "<local-command-", "<bash-input>",
    "<bash-stdout>", "<bash-stderr>", "<task-notification>", "<user-prompt-submit-hook>",
    "<ide_", "[Request interrupted", "Stop hook feedback:", "Caveat: The messages below",
)  # fmt: skip
_REMINDER = ("<system-reminder>", "</system-reminder>")
_NO_MODEL = "<synthetic>"  # said by the program in the model's place
# Calls that the provider numbers are unique everywhere; a gateway begins anew in every session.
_UNIQUE_CALL = "toolu_"
_COMPARED = 8  # blocks of a message that a growing copy is looked for in, latest first


def parse(data: bytes, name: str, alive: Alive = unheard) -> Parsed:
    """The session in a file, or no session where nothing was said.

    Raises:
        Unreadable: the file has lines, and none is Claude Code's.
    """
    lines = JsonLines(data, alive)
    transcript = _Transcript(lines, stem_of(name))
    for number, record in lines:
        transcript.read(number, record)
    return lines.parsed(
        FORMAT, "line of a Claude Code session", transcript.sessions(), transcript.is_known
    )


def is_line(record: Record) -> bool:
    """Whether it is a line of a session, of a known kind."""
    kind = record.get("type")
    if kind == "message":
        return "role" in record
    return isinstance(kind, str) and kind in KINDS and any(name in record for name in _MEMBERS)


@dataclass(slots=True)
class _Tree:
    """How the lines of a file hang on one another. A parent stands before its children."""

    nodes: dict[str, int] = field(default_factory=dict)  # by uuid
    parents: list[int] = field(default_factory=list)
    is_main: list[bool] = field(default_factory=list)
    prompts: set[int] = field(default_factory=set)

    def grow(self, record: Record) -> int:
        uuid = text_of(record, "uuid")
        if uuid is None:
            return -1
        if uuid not in self.nodes:
            parent = text_of(record, "parentUuid") or text_of(record, "logicalParentUuid")
            self.parents.append(self.nodes.get(parent or "", -1))
            self.nodes[uuid] = len(self.parents) - 1
            self.is_main.append(record.get("isSidechain") is not True)
        return self.nodes[uuid]

    def abandoned(self) -> list[bool]:
        """What was left behind when a person went back and asked otherwise.

        Only two prompts under one parent say so for sure: tools that run side by side and repeated
        lines fork the tree as well.
        """
        latest = [node if main else -1 for node, main in enumerate(self.is_main)]
        for node in range(len(latest) - 1, -1, -1):
            parent = self.parents[node]
            if parent >= 0:
                latest[parent] = max(latest[parent], latest[node])
        followed: dict[int, int] = {}  # by parent, the latest line below a prompt
        for node in self.prompts:
            parent = self.parents[node]
            followed[parent] = max(followed.get(parent, -1), latest[node])
        is_abandoned: list[bool] = []
        for node, parent in enumerate(self.parents):
            is_left = node in self.prompts and latest[node] < followed[parent]
            is_abandoned.append(parent >= 0 and (is_left or is_abandoned[parent]))
        return is_abandoned


@dataclass(slots=True)
class _Line:
    """What the blocks of one line have in common."""

    number: int
    group: str | None  # the message it belongs to; None if nothing names it
    node: int
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    is_side: bool
    is_delegated: bool
    origin: tuple[str, str]  # session and time, of what has no identity
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    used: set[int] = field(default_factory=set)  # drafts that blocks of this line are part of


class _Transcript:
    def __init__(self, lines: JsonLines, stem: str) -> None:
        self.is_known = False
        self._lines = lines
        self._talk = Talk(lines)
        self._stem = stem
        self._tree = _Tree()
        self._session_id: str | None = None
        self._other_id: str | None = None
        self._has_own_id = False  # the file's name is a session that it holds lines of
        self._agent_id = stem.removeprefix("agent-") if stem.startswith("agent-") else None
        self._has_begun = False
        self._cwd: str | None = None
        self._titles: dict[str, str] = {}
        self._summaries: dict[str, str] = {}  # by the uuid of the last line they tell of
        self._messages: dict[str, str] = {}  # message id -> group
        self._unsure: dict[tuple[str, str], str] = {}  # session and message id -> group
        self._blocks: dict[tuple[str, str], list[Draft]] = {}  # the last ones by group and kind
        self._counts: Counter[tuple[str, str]] = Counter()
        self._exact: dict[tuple[str, str, str, int], Draft] = {}
        self._calls: dict[str, Draft] = {}
        self._delegated: set[str] = set()  # prompts that the model wrote for its agents

    def read(self, number: int, record: Record) -> None:
        kind = text_of(record, "type")
        if kind is None:
            self._lines.ignore("line without a type")
            return
        self.is_known = self.is_known or is_line(record) or "sessionId" in record
        self._talk.pass_time(instant(record.get("timestamp")))
        self._note_session(record)
        node = self._tree.grow(record)
        if kind in _CONVERSATION:
            self._message(number, record, kind, node)
            return
        if kind == "attachment":
            self._attachment(number, record, node)
            return
        if kind in _TITLES:
            title = text_of(record, _TITLES[kind]) or text_of(record, "title")
            self._titles |= {kind: title} if title else {}
        elif kind == "summary":
            leaf, summary = text_of(record, "leafUuid"), text_of(record, "summary")
            self._summaries |= {leaf: summary} if leaf and summary else {}
        elif kind == "progress":
            progress = object_of(record, "data")
            self._link(text_of(record, "parentToolUseID"), text_of(progress, "agentId"))
        elif kind == "system":
            kind = f"system {text_of(record, 'subtype') or ''}".rstrip()
        self._lines.ignore(kind)

    def sessions(self) -> tuple[Session, ...]:
        is_abandoned = self._tree.abandoned()
        for draft in self._talk.drafts:
            if draft.node >= 0 and is_abandoned[draft.node]:
                draft.tags.add("abandoned")
        own = self._stem if self._has_own_id else self._session_id or self._stem
        parent = self._other_id if self._has_own_id else None
        if self._agent_id:
            own, parent = f"{own}/agent-{self._agent_id}", own
        return self._talk.session(
            own,
            title=self._best_title(),
            cwd=self._cwd,
            parent_id=parent,
            agent_id=self._agent_id,
        )

    def _note_session(self, record: Record) -> None:
        session_id = text_of(record, "sessionId")
        if session_id:
            self._session_id = self._session_id or session_id
            if session_id == self._stem:
                self._has_own_id = True
            else:
                self._other_id = self._other_id or session_id
        self._cwd = self._cwd or text_of(record, "cwd")

    def _best_title(self) -> str | None:
        # A summary often tells of another session: of this one if it names one of its lines.
        own = [said for leaf, said in self._summaries.items() if leaf in self._tree.nodes]
        named = [self._titles[kind] for kind in _TITLES if kind in self._titles]
        return next(iter((*named, *own[-1:])), None)

    def _message(self, number: int, record: Record, kind: str, node: int) -> None:
        message = record if kind == "message" else record.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            content = [content]
        if not isinstance(message, dict) or not isinstance(content, list):
            self._lines.skip(number, "has no message with a content")
            return
        role = text_of(message, "role") if kind == "message" else kind
        if role not in ("user", "assistant"):
            self._lines.ignore(f"message of {role}")
            return
        line = self._line(number, record, message, node)
        if role == "assistant":
            self._assistant(line, record, message, content)
        elif record.get("isMeta") is True and record.get("isCompactSummary") is not True:
            self._lines.ignore("machine text")
        elif self._user(line, record, content) and not line.is_side and node >= 0:
            self._tree.prompts.add(node)
        if not content:
            self._lines.ignore("empty text")

    def _line(self, number: int, record: Record, message: Record, node: int) -> _Line:
        is_side = record.get("isSidechain") is True
        agent_id = text_of(record, "agentId") if is_side else None
        if not self._has_begun:
            self._has_begun = True
            # A name alone may say agent- of anything.
            self._agent_id = agent_id or (self._agent_id if is_side else None)
        branch = text_of(record, "gitBranch")
        return _Line(
            number,
            self._group(record, message),
            node,
            ("sidechain",) if is_side else (),
            {"branch": branch} if branch else {},
            is_side,
            is_delegated=bool(agent_id or self._agent_id),
            origin=(text_of(record, "sessionId") or self._stem, str(record.get("timestamp"))),
        )

    def _group(self, record: Record, message: Record) -> str | None:
        """What says that lines belong together, the same in every file that holds them."""
        message_id, uuid = text_of(message, "id"), text_of(record, "uuid")
        if message_id is None:
            return f"line {uuid}" if uuid else None
        if text_of(record, "requestId"):
            return self._messages.setdefault(message_id, f"message {message_id}")
        if message_id in self._messages:
            return self._messages[message_id]
        # A gateway numbers its messages anew in every session, and copies get another session.
        session_id = text_of(record, "sessionId") or self._stem
        first = f"line {uuid}" if uuid else f"message {session_id} {message_id}"
        return self._unsure.setdefault((session_id, message_id), first)

    def _assistant(self, line: _Line, record: Record, message: Record, content: list[Any]) -> None:
        model = text_of(message, "model")
        if record.get("isApiErrorMessage") is True or model == _NO_MODEL:
            self._lines.ignore("machine text")
            return
        metadata = {"model": model} if model else {}
        for block in content:
            kind = block.get("type") if isinstance(block, dict) else None
            if isinstance(block, str):
                self._put(line, "text", Speaker.ASSISTANT, block, metadata)
            elif kind == "text" and "text" in block:
                self._put(line, "text", Speaker.ASSISTANT, block["text"], metadata)
            elif kind == "thinking" and "thinking" in block:
                text = block["thinking"]
                self._put(line, "thinking", Speaker.ASSISTANT, text, metadata, tag="thinking")
            elif kind == "tool_use":
                self._call(line, block)
            else:
                self._block(line, record, block)

    def _user(self, line: _Line, record: Record, content: list[Any]) -> bool:
        """Take what a line in the user's name holds. Whether a person said some of it."""
        said, recap = [], []
        for block in content:
            is_text = isinstance(block, dict) and block.get("type") == "text"
            text = text_of(block, "text") if is_text else block
            if not isinstance(text, str):
                self._block(line, record, block)
                continue
            bare = without_spans(text, *_REMINDER)
            if record.get("isCompactSummary") is True or bare.lstrip().startswith(_RECAP):
                recap.append(bare)
            elif bare.lstrip().startswith(_MACHINE) or (text.strip() and not bare.strip()):
                self._lines.ignore("machine text")
            elif bare.strip():
                said.append(bare)
            else:
                self._lines.ignore("empty text")
        if recap:
            self._put(line, "recap", Speaker.SUMMARY, "\n".join(recap), {})
        if not said:
            return False
        text = "\n".join(said)
        if line.is_delegated or (line.is_side and text.strip() in self._delegated):
            # The model asks its agent: no person said this.
            self._put(line, "prompt", Speaker.ASSISTANT, text, {}, tag="delegated")
            return False
        return self._put(line, "prompt", Speaker.USER, text, {}) is not None

    def _attachment(self, number: int, record: Record, node: int) -> None:
        attachment = object_of(record, "attachment")
        prompt = attachment.get("prompt")
        is_typed = (
            attachment.get("type") == "queued_command"
            and attachment.get("isMeta") is not True
            and attachment.get("commandMode", "prompt") == "prompt"
            and object_of(attachment, "origin").get("kind", "human") == "human"
            and isinstance(prompt, str | list)
        )
        if not is_typed:
            self._lines.ignore(f"attachment {text_of(attachment, 'type') or ''}".rstrip())
            return
        # What a person types while the model works is written as an attachment only.
        said = {**record, "uuid": attachment.get("source_uuid") or record.get("uuid")}
        line = self._line(number, said, {}, node)
        self._user(line, said, prompt if isinstance(prompt, list) else [prompt])

    def _call(self, line: _Line, block: Record) -> None:
        call_id, tool = text_of(block, "id"), text_of(block, "name") or "tool"
        arguments = block.get("input")
        prompt = text_of(arguments, "prompt") if isinstance(arguments, dict) else None
        if prompt:
            self._delegated.add(prompt.strip())
        metadata = self._talk.called(tool, call_id)
        kind = f"call {call_id or ''}"
        draft = self._put(line, kind, Speaker.TOOL, call_text(tool, arguments), metadata)
        if draft and call_id:
            self._calls[call_id] = draft

    def _block(self, line: _Line, record: Record, block: object) -> None:
        """A block that is no text: what a tool returned, an attached document, or else."""
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(block, dict) or kind not in ("tool_result", "document"):
            self._lines.ignore(kind_of_block(block))
            return
        if kind == "document":
            source = object_of(block, "source")
            if source.get("type") == "text":
                self._put(line, kind, Speaker.TOOL, source.get("data"), {}, tag="attached")
            else:
                self._lines.ignore(kind_of_block(block))
            return
        call_id, content = text_of(block, "tool_use_id"), block.get("content")
        self._link(call_id, text_of(object_of(record, "toolUseResult"), "agentId"))
        blocks = content if isinstance(content, list) else [content] if content else []
        text = without_spans(joined(blocks, ("text",), self._lines), *_REMINDER)
        metadata = self._talk.returned(call_id)
        if block.get("is_error") is True:
            metadata["is_error"] = True
        is_unique = call_id is not None and call_id.startswith(_UNIQUE_CALL)
        group = f"call {call_id}" if is_unique else line.group
        kind = f"result {call_id or ''}"
        self._put(line, kind, Speaker.TOOL, text, metadata, group=group)

    def _link(self, call_id: str | None, agent_id: str | None) -> None:
        if call_id in self._calls and agent_id:
            self._calls[call_id].metadata["agent_id"] = agent_id

    def _put(
        self,
        line: _Line,
        kind: str,
        speaker: Speaker,
        said: object,
        metadata: dict[str, Any],
        *,
        tag: str | None = None,
        group: str | None = None,
    ) -> Draft | None:
        """Take one block, unless an earlier line has it already."""
        text = self._talk.words(said, line.number)
        if text is None:
            self._lines.ignore("empty text")
            return None
        group = group or line.group
        line.seen[kind, text] += 1
        exact = (group or "", kind, text, line.seen[kind, text])
        known = None
        if group is not None:
            known = self._exact.get(exact) or self._grown(line, group, kind, text)
        if known is None:
            known = self._new(line, group, kind, speaker, text, line.metadata | metadata)
            known.tags.update((*line.tags, tag) if tag else line.tags)
        elif len(text) > len(known.text):
            known.text, known.line, known.last_line = text, line.number, line.number
        if not line.is_side:
            known.tags.discard("sidechain")
        line.used.add(id(known))
        if group is not None:
            self._exact[exact] = known
        return known

    def _grown(self, line: _Line, group: str, kind: str, text: str) -> Draft | None:
        """The block that this one is a longer or a shorter copy of."""
        for draft in reversed(self._blocks.get((group, kind), ())):
            is_copy = text.startswith(draft.text) or draft.text.startswith(text)
            if is_copy and id(draft) not in line.used:
                return draft
        return None

    def _new(
        self,
        line: _Line,
        group: str | None,
        kind: str,
        speaker: Speaker,
        text: str,
        metadata: dict[str, Any],
    ) -> Draft:
        if group is None:
            key = self._talk.occurrence(FORMAT, *line.origin, kind, text)
        else:
            count = self._counts[group, kind]
            self._counts[group, kind] = count + 1
            key = key_of(FORMAT, group, kind, str(count))
        draft = self._talk.add(key, speaker, text, line.number, metadata=metadata, node=line.node)
        if group is not None:
            blocks = self._blocks.setdefault((group, kind), [])
            blocks.append(draft)
            del blocks[:-_COMPARED]
        return draft
