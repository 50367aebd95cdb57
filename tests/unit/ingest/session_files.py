"""Session files of the three agents, made line by line."""

import base64
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from workers.ingest import claude_code, codex, pi
from workers.ingest.parsed import Parsed, Speaker, Turn

Record = dict[str, Any]
SESSION = "5e551017-0000-4000-8000-00000000000a"
OTHER = "5e551017-0000-4000-8000-00000000000b"
PICTURE = base64.b64encode(random.Random(5).randbytes(600)).decode()


def file_of(
    records: Iterable[Record | bytes], *, end: bytes = b"\n", ascii_only: bool = True
) -> bytes:
    """One line per object; bytes are lines as they are."""
    return b"".join(
        (
            record
            if isinstance(record, bytes)
            else json.dumps(record, ensure_ascii=ascii_only).encode()
        )
        + end
        for record in records
    )


def at(second: int) -> str:
    return f"2026-04-05T{6 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"


# Claude Code


def cc(number: int, parent: int | None, kind: str, message: Any, **members: Any) -> Record:
    return {
        "type": kind,
        "uuid": f"uuid-{number}",
        "parentUuid": None if parent is None else f"uuid-{parent}",
        "sessionId": SESSION,
        "timestamp": at(number),
        "cwd": "/home/ann/weather",
        "gitBranch": "storm",
        "isSidechain": False,
        "message": message,
    } | members


def cc_user(number: int, parent: int | None, content: Any, **members: Any) -> Record:
    return cc(number, parent, "user", {"role": "user", "content": content}, **members)


def cc_model(
    number: int, parent: int | None, *blocks: Any, message: str | None = None, **members: Any
) -> Record:
    """A model's line; `message` names the message that it is a part of."""
    message = message or f"msg_{number}"
    members = {"requestId": f"req_{message}"} | members
    body = {"id": message, "role": "assistant", "model": "m-1", "content": list(blocks)}
    return cc(number, parent, "assistant", body, **members)


def cc_result(number: int, parent: int | None, call: str, content: Any, **members: Any) -> Record:
    block = {"type": "tool_result", "tool_use_id": call, "content": content}
    return cc_user(number, parent, [block], **members)


def said(text: str) -> Record:
    return {"type": "text", "text": text}


def use(call: str, tool: str, **arguments: Any) -> Record:
    return {"type": "tool_use", "id": call, "name": tool, "input": arguments}


# Codex


def cx(second: int, kind: str, /, **payload: Any) -> Record:
    return {"timestamp": at(second), "type": kind, "payload": payload}


def cx_meta(session: str = SESSION, **members: Any) -> Record:
    return cx(0, "session_meta", id=session, cwd="/home/ann/weather", **members)


def cx_item(second: int, role: str, *texts: str, **members: Any) -> Record:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text} for text in texts]
    return cx(second, "response_item", type="message", role=role, content=content, **members)


def cx_event(second: int, kind: str, **members: Any) -> Record:
    return cx(second, "event_msg", type=kind, **members)


def cx_call(second: int, call: str, arguments: Any, tool: str = "shell") -> Record:
    members = {"name": tool, "call_id": call, "arguments": arguments}
    return cx(second, "response_item", type="function_call", **members)


def cx_output(second: int, call: str, output: Any) -> Record:
    return cx(second, "response_item", type="function_call_output", call_id=call, output=output)


def cx_typed(second: int, text: str) -> Record:
    return cx_event(second, "user_message", message=text)


def cx_answered(second: int, text: str) -> Record:
    return cx_event(second, "agent_message", message=text)


# pi


def pi_header(session: str = SESSION, **members: Any) -> Record:
    head = {"type": "session", "version": 3, "id": session, "cwd": "/home/ann/weather"}
    return head | {"timestamp": at(0)} | members


def pi_entry(number: int, parent: int | None, kind: str, **members: Any) -> Record:
    parent_id = None if parent is None else f"{parent:08x}"
    entry = {"type": kind, "id": f"{number:08x}", "parentId": parent_id, "timestamp": at(number)}
    return entry | members


def pi_message(number: int, parent: int | None, role: str, content: Any, **members: Any) -> Record:
    message = {"role": role, "content": content, "timestamp": 1_775_368_800_000 + number} | members
    return pi_entry(number, parent, "message", message=message)


PI_THOUGHT = {"type": "thinking", "thinking": "rime-2 first"}
PI_CALL = {"type": "toolCall", "id": "t", "name": "bash", "arguments": {"command": "cat rime-2"}}

# All of them


@dataclass(frozen=True)
class Agent:
    """One agent's format, as far as all formats are alike."""

    format: str
    parse: Callable[[bytes, str], Parsed]
    sample: Sequence[Record]  # one of everything; each turn has a word of its own
    talk: Callable[[Sequence[tuple[str, str]]], list[Record]]  # of user and assistant

    def __str__(self) -> str:
        return self.format


def cc_talk(turns: Sequence[tuple[str, str]]) -> list[Record]:
    return [
        cc_user(number, number - 1 if number else None, text)
        if role == "user"
        else cc_model(number, number - 1 if number else None, said(text))
        for number, (role, text) in enumerate(turns)
    ]


def cx_talk(turns: Sequence[tuple[str, str]]) -> list[Record]:
    return [cx_meta(), *(cx_item(second, *turn) for second, turn in enumerate(turns, start=1))]


def pi_talk(turns: Sequence[tuple[str, str]]) -> list[Record]:
    return [
        pi_header(),
        *(
            pi_message(number, number - 1 if number > 1 else None, role, [said(text)])
            for number, (role, text) in enumerate(turns, start=1)
        ),
    ]


AGENTS = (
    Agent(
        claude_code.FORMAT,
        claude_code.parse,
        [
            {"type": "summary", "summary": "Rain gauges", "leafUuid": "uuid-9"},
            cc_user(1, None, "Which gauge overflows? rime-1"),
            cc_model(2, 1, {"type": "thinking", "thinking": "rime-2 first"}, message="a"),
            cc_model(3, 2, said("Reading the log: rime-3"), message="a"),
            cc_model(4, 3, use("toolu_4", "Read", path="/var/log/rime-4"), message="a"),
            cc_result(5, 4, "toolu_4", [said("gauge 7 full: rime-5 Größe 木")]),
            cc_user(6, 5, "Compacted: rime-6", isCompactSummary=True),
            cc_user(7, 6, ["Empty it. rime-7", said("And log it. rime-7")]),
            cc_model(9, 7, said("Done: rime-9")),
        ],
        cc_talk,
    ),
    Agent(
        codex.FORMAT,
        codex.parse,
        [
            cx_meta(git={"branch": "storm"}),
            cx(1, "turn_context", model="m-2", cwd="/home/ann/weather"),
            cx_typed(2, "Which gauge overflows? rime-1"),
            cx_item(2, "user", "Which gauge overflows? rime-1"),
            cx_event(3, "agent_reasoning", text="rime-2 first"),
            cx_call(4, "c", '{"cmd": "cat rime-4"}'),
            cx_output(5, "c", "gauge 7 full: rime-5 Größe 木"),
            cx(6, "compacted", message="Compacted: rime-6", replacement_history=[]),
            cx_item(7, "assistant", "Done: rime-7"),
            cx_answered(7, "Done: rime-7"),
        ],
        cx_talk,
    ),
    Agent(
        pi.FORMAT,
        pi.parse,
        [
            pi_header(),
            pi_message(1, None, "user", "Which gauge overflows? rime-1"),
            pi_message(2, 1, "assistant", [PI_THOUGHT, PI_CALL], model="m-3"),
            pi_message(3, 2, "toolResult", [said("gauge 7 full: rime-3 Größe 木")], toolCallId="t"),
            pi_entry(4, 3, "compaction", summary="Compacted: rime-4", firstKeptEntryId="00000002"),
            pi_message(5, 4, "user", [said("Empty it. rime-5")]),
            pi_message(6, 5, "assistant", [said("Done: rime-6")]),
        ],
        pi_talk,
    ),
)  # fmt: skip


def turns_of(parsed: Parsed) -> list[Turn]:
    return [turn for session in parsed.sessions for turn in session.turns]


def spoken(parsed: Parsed) -> list[tuple[Speaker, str]]:
    return [(turn.speaker, turn.text) for turn in turns_of(parsed)]


def texts_by(parsed: Parsed, speaker: Speaker) -> list[str]:
    return [text for who, text in spoken(parsed) if who is speaker]
