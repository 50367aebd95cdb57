"""Codex's rollout files: messages written in up to three families, compacted, rolled back, forked.

Messages have no ids. A turn's key is made of the session it began in, who said what, and how often
that had been said before; a fork has the keys of the session that it was forked from.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from workers.ingest.lines import JsonLines, Record, instant, object_of, text_of
from workers.ingest.parsed import Alive, Parsed, Session, Speaker, Unreadable, unheard
from workers.ingest.rollout_document import items_of, opens_document
from workers.ingest.talk import Talk, call_text, joined, stem_of

FORMAT = "codex"
_EXEC_STREAM = re.compile(r"(thread|turn|item)\.[a-z_]+")
_NAME = re.compile(r"rollout-.*?([0-9a-f]{8}-[0-9a-f-]{27})$")

_MACHINE = (
    "# AGENTS.md instructions", "<environment_context>", "<INSTRUCTIONS>", "</INSTRUCTIONS>",
    "<user_instructions>", "<user_shell_command>", "<recommended_plugins>", "<hook_prompt",
    "<turn_aborted>", "<subagent_notification>", "<permissions instructions>",
    "<collaboration_mode>", "<model_switch>", "<personality_spec>", "<apps_instructions>",
    "<plugins_instructions>", "<skills_instructions>", "<skill>",
)  # fmt: skip
_MACHINE_KINDS = ("user_instructions", "environment_context")  # of events
_PICTURE_TAG = re.compile(r"</?image\b[^<>]*>")
# What an editor sets before a person's words.
_CONTEXT = (
    "# Context from my IDE setup:",
    "# Files mentioned by the user:",
    "This block is automatically supplied",
)
_REQUEST = "## My request for Codex:"

_TEXT_BLOCKS = ("input_text", "output_text", "text", "Text")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


def parse(data: bytes, name: str, alive: Alive = unheard) -> Parsed:
    """The session in a rollout file, or in a document of the first versions.

    Raises:
        Unreadable: the file has lines, and none is Codex's; or it is what `codex exec --json`
            prints.
    """
    lines = JsonLines(data, alive)
    rollout = _Rollout(lines, stem_of(name))
    if opens_document(lines.data):
        for number, last_line, record in items_of(lines):
            rollout.read_item(number, last_line, record)
    else:
        for number, record in lines:
            rollout.read(number, record)
    return lines.parsed(FORMAT, "line of a Codex session", rollout.sessions(), rollout.is_known)


def is_exec_stream(record: Record) -> bool:
    """Whether a line is of what `codex exec --json` prints: alike, but no session file."""
    kind = text_of(record, "type") or ""
    return _EXEC_STREAM.fullmatch(kind) is not None and "payload" not in record


@dataclass(slots=True)
class _Run:
    """What one role said since another one did: the families write the same messages again."""

    turns: dict[str, int] = field(default_factory=dict)  # by text
    written: Counter[tuple[str, str]] = field(default_factory=Counter)  # by family and text

    def is_new(self, family: str, text: str) -> bool:
        """Whether no other family has written it; a repeat within one family is meant."""
        self.written[family, text] += 1
        if self.written[family, text] <= self.turns.get(text, 0):
            return False
        self.turns[text] = self.written[family, text]
        return True


class _Rollout:
    def __init__(self, lines: JsonLines, stem: str) -> None:
        self.is_known = False
        self._lines = lines
        self._talk = Talk(lines)
        self._stem = stem
        self._id: str | None = None
        self._parent_id: str | None = None
        self._forks: dict[str, str] = {}  # session -> the one that it was forked from
        self._origin: str | None = None
        self._agent_id: str | None = None
        self._is_agent = False
        self._cwd: str | None = None
        self._branch: str | None = None
        self._model: str | None = None
        self._runs = {role: _Run() for role in ("user", "assistant", "thinking")}
        self._prompts: list[int] = []  # where users' turns begin that are still in the context
        self._kept: list[int] = []  # all that still is
        self._last_line: int | None = None  # of what spans several
        self._tools: set[tuple[str, ...]] = set()

    def read(self, number: int, record: Record) -> None:
        kind = text_of(record, "type") or ""
        if is_exec_stream(record) and not self.is_known:
            raise Unreadable(
                "is what `codex exec --json` prints, an exec stream and not a session file;"
                " take the rollout file below ~/.codex/sessions"
            )
        self._talk.pass_time(instant(record.get("timestamp")))
        payload = record.get("payload")
        if not isinstance(payload, dict):
            self._bare(number, record, kind)
            return
        self.is_known = self.is_known or bool(kind)
        if kind == "session_meta":
            self._meta(payload)
            self._lines.ignore(kind)
        elif kind == "turn_context":
            self._cwd = self._cwd or text_of(payload, "cwd")
            self._model = text_of(payload, "model") or self._model
            self._lines.ignore(kind)
        elif kind == "response_item":
            self._item(number, payload)
        elif kind == "event_msg":
            self._event(number, payload)
        elif kind == "compacted":
            # Its replacement history repeats what the file has above.
            self._say(number, "summary", Speaker.SUMMARY, payload.get("message"))
        else:
            self._lines.ignore(kind or "line without a type")

    def read_item(self, number: int, last_line: int, record: Record) -> None:
        """One member of a document, or what the document says of its session."""
        self.is_known = True
        self._last_line = last_line
        self._talk.pass_time(instant(record.get("timestamp")))
        if "role" in record or "type" in record:
            self._item(number, record)
        else:
            self._meta(record)

    def sessions(self) -> tuple[Session, ...]:
        return self._talk.session(
            self._id or self._named_id(),
            cwd=self._cwd,
            parent_id=self._parent_id,
            agent_id=self._agent_id,
        )

    def _named_id(self) -> str:
        named = _NAME.match(self._stem)
        return named[1] if named else self._stem

    def _bare(self, number: int, record: Record, kind: str) -> None:
        """A line without an envelope, as the first versions wrote them."""
        is_item = isinstance(record.get("role"), str) and "content" in record
        if is_item or kind in (*_CALLS, *_RESULTS, "reasoning"):
            self.is_known = True
            self._item(number, record)
        elif not kind and text_of(record, "id") and "timestamp" in record:
            self.is_known = True
            self._meta(record)
        elif kind:
            self._lines.ignore(kind)
        else:
            self._lines.ignore("line without a type")

    def _meta(self, meta: Record) -> None:
        session_id, forked_from = text_of(meta, "id"), text_of(meta, "forked_from_id")
        if session_id and forked_from:
            self._forks.setdefault(session_id, forked_from)
        self._cwd = self._cwd or text_of(meta, "cwd")
        self._branch = self._branch or text_of(object_of(meta, "git"), "branch")
        if self._id is not None or session_id is None:
            return  # the first is the file's own; a fork repeats those of its parents
        self._id = session_id
        source = object_of(meta, "source")
        spawn = object_of(object_of(source, "subagent"), "thread_spawn")
        self._parent_id = forked_from or text_of(spawn, "parent_thread_id")
        names = ("agent_nickname", "agent_path", "agent_role", "agent_type")
        self._agent_id = next(
            (said for name in names if (said := text_of(meta, name) or text_of(spawn, name))), None
        )
        self._is_agent = self._agent_id is not None or "subagent" in source

    def _key_parts(self, *parts: str) -> tuple[str, ...]:
        if self._origin is None:
            origin = self._id or self._named_id()
            passed = {origin}
            while (parent := self._forks.get(origin)) and parent not in passed:
                passed.add(origin := parent)
            self._origin = origin
        return FORMAT, self._origin, *parts

    def _item(self, number: int, item: Record) -> None:
        kind = text_of(item, "type") or "message"
        if kind == "message":
            self._message(number, item)
        elif kind == "reasoning":
            summary, content = item.get("summary"), item.get("content")
            parts = summary if isinstance(summary, list) and summary else content
            for part in parts if isinstance(parts, list) else ():
                text = part.get("text") if isinstance(part, dict) else part
                self._heard(number, "response_item", "thinking", text)
        elif kind in _CALLS:
            self._call(number, item, kind)
        elif kind in _RESULTS:
            self._result(number, item)
        else:
            self._lines.ignore(kind)

    def _message(self, number: int, item: Record) -> None:
        role, content = text_of(item, "role") or "", item.get("content")
        if role not in ("user", "assistant"):
            self._lines.ignore(f"message of {role}")
            return
        if not isinstance(content, str | list):
            self._lines.skip(number, "has no content")
            return
        blocks = content if isinstance(content, list) else [content]
        if role == "assistant":
            text: str | None = joined(blocks, _TEXT_BLOCKS, self._lines)
        else:
            text = self._words_of_user(blocks)
        phase = text_of(item, "phase")
        if text is not None:
            metadata = {"phase": phase} if phase else {}
            self._heard(number, "response_item", role, text, metadata)

    def _words_of_user(self, blocks: list[Any]) -> str | None:
        """What a person wrote, of all that stands in the user's name; None if that is nothing."""
        said, is_machine = [], False
        for block in blocks:
            text = joined([block], _TEXT_BLOCKS, self._lines)
            start = text.lstrip()
            if start.startswith(_MACHINE):
                is_machine = True
            elif text and not _PICTURE_TAG.fullmatch(text.strip()):
                before, marker, request = text.partition(_REQUEST)
                is_wrapped = marker and (not before.strip() or start.startswith(_CONTEXT))
                said.append(request.strip() if is_wrapped else text)
        if is_machine and not said:
            self._lines.ignore("machine text")
            return None
        return "\n".join(said)

    def _event(self, number: int, event: Record) -> None:
        kind = text_of(event, "type") or "event without a type"
        if kind == "user_message":
            if event.get("kind") in _MACHINE_KINDS:
                self._lines.ignore("machine text")
                return
            text = self._words_of_user([event.get("message")])
            if text is not None:
                self._heard(number, "event", "user", text)
        elif kind == "agent_message":
            self._heard(number, "event", "assistant", event.get("message"))
        elif kind == "agent_reasoning":
            self._heard(number, "event", "thinking", event.get("text"))
        elif kind == "item_completed":
            self._completed(number, object_of(event, "item"))
        elif kind == "thread_rolled_back":
            self._roll_back(event.get("num_turns"))
            self._lines.ignore(kind)
        else:
            self._lines.ignore(kind)

    def _completed(self, number: int, item: Record) -> None:
        kind, content = text_of(item, "type") or "", item.get("content")
        blocks = content if isinstance(content, list) else [content] if content else []
        if kind == "UserMessage":
            text = self._words_of_user(blocks)
            if text is not None:
                self._heard(number, "item", "user", text)
        elif kind == "AgentMessage":
            text = joined(blocks, _TEXT_BLOCKS, self._lines)
            self._heard(number, "item", "assistant", text)
        else:
            self._lines.ignore(f"item_completed {kind}".rstrip())

    def _heard(
        self,
        number: int,
        family: str,
        role: str,
        said: object,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """A message, unless another family has written it already."""
        text = self._talk.words(said, number)
        if text is None:
            self._lines.ignore("empty text")
            return
        # A copy stands beside its message: once somebody else spoke, the same is said anew.
        others = {"user": ("assistant", "thinking"), "assistant": ("user",), "thinking": ()}
        for other in others[role]:
            if self._runs[other].turns:
                self._runs[other] = _Run()
        if not self._runs[role].is_new(family, text.strip()):
            return
        if role != "user":
            tag = "thinking" if role == "thinking" else None
            model = {"model": self._model} if self._model else {}
            self._say(number, role, Speaker.ASSISTANT, text, tag, model | (metadata or {}))
            return
        self._prompts.append(len(self._talk.drafts))
        if self._is_agent:
            # The model that spawned the agent asks it: no person said this.
            self._say(number, role, Speaker.ASSISTANT, text, "delegated")
        else:
            self._say(number, role, Speaker.USER, text)

    def _say(
        self,
        number: int,
        role: str,
        speaker: Speaker,
        said: object,
        tag: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        text = self._talk.words(said, number)
        if text is None:
            self._lines.ignore("empty text")
            return
        key = self._talk.occurrence(*self._key_parts(role, text.strip()))
        branch = {"branch": self._branch} if self._branch else {}
        self._kept.append(len(self._talk.drafts))
        self._talk.add(
            key,
            speaker,
            text,
            number,
            last_line=self._last_line,
            tags=(tag,) if tag else (),
            metadata=branch | (metadata or {}),
        )

    def _roll_back(self, turns: object) -> None:
        """So many of the user's turns were taken back, with all that followed them."""
        self._runs = {role: _Run() for role in self._runs}
        if not isinstance(turns, int) or turns < 1 or not self._prompts:
            return
        first = self._prompts[-min(turns, len(self._prompts))]
        del self._prompts[-turns:]
        while self._kept and self._kept[-1] >= first:
            self._talk.drafts[self._kept.pop()].tags.add("abandoned")

    def _call(self, number: int, item: Record, kind: str) -> None:
        call_id = text_of(item, "call_id")
        if kind == "local_shell_call":
            tool, arguments = "shell", item.get("action")
            command = object_of(item, "action").get("command")
            if isinstance(command, list):
                arguments = " ".join(part for part in command if isinstance(part, str))
        elif kind == "web_search_call":
            tool, arguments = "web_search", item.get("action")
        else:
            tool = text_of(item, "name") or "tool"
            arguments = self._loaded(number, item.get("arguments", item.get("input")))
        text = call_text(tool, arguments)
        self._tool(number, "call", call_id, text, self._talk.called(tool, call_id))

    def _result(self, number: int, item: Record) -> None:
        call_id, output = text_of(item, "call_id"), self._loaded(number, item.get("output"))
        if isinstance(output, dict):
            # Older versions wrap the text together with the exit code.
            output = output.get("output", output.get("content"))
        blocks = output if isinstance(output, list) else [output] if output else []
        text = joined(blocks, _TEXT_BLOCKS, self._lines)
        self._tool(number, "result", call_id, text, self._talk.returned(call_id))

    def _tool(
        self, number: int, part: str, call_id: str | None, text: str, metadata: dict[str, Any]
    ) -> None:
        if call_id is not None:
            if (part, call_id, text) in self._tools:
                return
            self._tools.add((part, call_id, text))
        said = f"{part} {call_id or ''}"
        self._say(number, said, Speaker.TOOL, text, None, metadata)

    def _loaded(self, number: int, value: object) -> object:
        """The object that a text of JSON holds; anything else as it is."""
        if not isinstance(value, str):
            return value
        loaded = self._lines.object_in(number, value)
        return value if loaded is None else loaded
