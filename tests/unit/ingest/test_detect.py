"""Which format a file has, whatever it is called."""

import json
import random
import zlib

import pytest

from tests.unit.ingest.session_files import AGENTS, Agent, cc_user, file_of
from workers.ingest.detect import detect
from workers.ingest.parsed import Unreadable

NAMES = ("file.jsonl", "page.md", "notes.txt", "upload", "rollout-x.jsonl.zst", "a.pi.json")
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + random.Random(3).randbytes(4_000)
each_agent = pytest.mark.parametrize("agent", AGENTS, ids=str)


@each_agent
@pytest.mark.parametrize("name", NAMES)
def test_a_session_is_known_by_its_content_under_any_name(agent: Agent, name: str) -> None:
    data = file_of(agent.sample)

    for written in (data, b"\xef\xbb\xbf" + data, b"\r\n\r\n" + data, b"\0" * 4096 + b"\n" + data):
        assert detect(written, name) == agent.format
    assert detect(data.decode().encode("utf-16"), "file.jsonl") == agent.format


@each_agent
@pytest.mark.parametrize(
    "damage", [b"{torn", b"nonsense", b"17", b'"text"', b"{}", b'{"type": "novel"}', b"[" * 9_999]
)
def test_damaged_and_unknown_lines_are_passed_over(agent: Agent, damage: bytes) -> None:
    assert detect(file_of([damage, *agent.sample]), "file.jsonl") == agent.format


@each_agent
def test_a_session_without_its_first_line_is_still_known(agent: Agent) -> None:
    assert detect(file_of([b"{torn", *agent.sample[1:]]), "file.jsonl") == agent.format


@pytest.mark.parametrize(
    "first",
    [
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s"},
        {"type": "permission-mode", "permissionMode": "plan", "sessionId": "s"},
        {"type": "summary", "summary": "s", "leafUuid": "u"},
        {"type": "user", "message": {"content": "x"}, "timestamp": "2026-04-05T06:00:00Z"},
        {"type": "message", "role": "user", "content": "x"},
    ],
)
def test_any_first_line_of_claude_code_tells(first: dict[str, object]) -> None:
    assert detect(file_of([first]), "upload") == "claude_code"


@pytest.mark.parametrize(
    "first",
    [
        {"timestamp": "2026-04-05T06:00:00Z", "type": "world_state", "payload": {}},
        {"id": "x", "timestamp": "2026-04-05T06:00:00Z", "instructions": None},
        {"type": "thread.started", "thread_id": "t"},
        {"session": {"id": "x"}, "items": [{"role": "user", "content": "x"}]},
        {"items": [{"role": "user", "content": "x"}]},
    ],
)
def test_any_first_line_of_codex_tells(first: dict[str, object]) -> None:
    assert detect(file_of([first]), "upload") == "codex"


def test_a_document_over_many_lines_is_codex_only_with_what_was_said() -> None:
    said = {"session": {"id": "x"}, "items": [{"role": "user", "content": "x"}]}
    other = {"items": [{"name": "bolt", "price": 3}]}

    assert detect(json.dumps(said, indent=2).encode(), "old.json") == "codex"
    assert detect(json.dumps(other, indent=2).encode(), "stock.json") == "text"


def test_nodes_are_known_by_their_members() -> None:
    node = {"level": "L0", "kind": "turn", "source": "pi:1", "text": "it broke"}

    assert detect(file_of([node]), "anything") == "nodes"


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("session.jsonl", "claude_code"),
        ("rollout-2026.jsonl", "codex"),
        ("/home/a/.codex/sessions/x.jsonl", "codex"),
        ("C:\\Users\\a\\.pi\\agent\\sessions\\x.jsonl", "pi"),
        ("page.md", "markdown"),
        ("notes.txt", "text"),
        ("upload", "text"),
    ],
)
def test_a_file_that_says_nothing_yet_is_known_by_its_name(name: str, format_name: str) -> None:
    for data in (b"", b"\n\n"):
        assert detect(data, name) == format_name
    if name.endswith(".jsonl"):
        assert detect(b'{"type":"us', name) == format_name
        assert detect(b"\0" * 99 + b"\n", name) == format_name


@pytest.mark.parametrize(
    ("data", "name", "format_name"),
    [
        (b"# Title\n\ntext\n", "page.md", "markdown"),
        (b"# Title\n\ntext\n", "PAGE.MD", "markdown"),
        (b"---\ntitle: x\n---\ntext\n", "README", "markdown"),
        (b"Title\n\n## Part\n", "README", "markdown"),
        (b"# a comment\nall: build\n", "Makefile", "text"),
        (b"## heading\n", "notes.txt", "text"),
        (b"just words", "upload", "text"),
        (b'{"name": "x"}', "package.json", "text"),
        (b'{"level": "info", "msg": "x"}\n' * 5_000, "service.log", "text"),
        (b"[0.5, 0.25]", "vector.json", "text"),
        ("Gr\u00f6\u00dfe 9".encode("cp1252"), "notes.txt", "text"),
        ("Gr\u00f6\u00dfe 9".encode("utf-16"), "notes.txt", "text"),
        (b"one \0 zero among the words", "page.md", "markdown"),
    ],
)
def test_other_text_is_markdown_or_text(data: bytes, name: str, format_name: str) -> None:
    assert detect(data, name) == format_name


@pytest.mark.parametrize("name", ["page.md", "notes.txt", "upload"])
def test_a_page_that_quotes_a_session_is_no_session(name: str) -> None:
    data = b"How a session looks:\n\n" + file_of([cc_user(1, None, "hi")])

    assert detect(data, name) in ("markdown", "text")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", [PNG, zlib.compress(b"abc" * 9_999), b"%PDF-1.7\n%\xe2\xe3"])
def test_what_is_no_text_is_refused(name: str, data: bytes) -> None:
    with pytest.raises(Unreadable, match="not text"):
        detect(data, name)
