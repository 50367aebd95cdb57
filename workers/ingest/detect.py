"""Which format a file has: by its content first, its name only helps."""

import re

from workers.ingest import claude_code, codex, pi
from workers.ingest.decoding import SAMPLE_BYTES, decode
from workers.ingest.lines import JsonLines, Record, object_of, text_of
from workers.ingest.parsed import Alive, unheard
from workers.ingest.rollout_document import opens_document

NODES, MARKDOWN, TEXT = "nodes", "markdown", "text"

_MOST_OBJECTS = 1_000
"""Objects that are looked at until one tells; a log has no end of others."""
_ENDING = re.compile(r"\.([a-z0-9]{1,12})$")
_DOCUMENT_BEGINNING = 2**20
_LINES = ("jsonl", "ndjson")
_PROSE = {
    "md": MARKDOWN, "markdown": MARKDOWN, "mdown": MARKDOWN, "mkd": MARKDOWN, "mdx": MARKDOWN,
    "txt": TEXT, "text": TEXT, "rst": TEXT, "log": TEXT,
}  # fmt: skip
_FOLDERS = ((codex.FORMAT, "/.codex/"), (pi.FORMAT, "/.pi/"), (claude_code.FORMAT, "/.claude/"))
_OBJECT = re.compile(rb"[\s\0]*\{")
_NOTHING_YET = re.compile(rb"[\s\0]*(\{|\Z)")
# A lone # begins a comment in many files; front matter and lower headings are a page's.
_STRUCTURE = re.compile(r"\A\s*---[ \t]*$|^#{2,6} \S", re.MULTILINE)
_NODE_MEMBERS = {"level", "kind", "text"}
_CODEX_META = ("instructions", "git", "originator", "cli_version")


def detect(data: bytes, name: str, alive: Alive = unheard) -> str:
    """The format of a file: claude_code, codex, pi, nodes, markdown or text.

    Lines that are damaged or of no known kind are passed over until an object tells. What
    `codex exec --json` prints counts as codex, whose parser says what to take instead.

    Raises:
        Unreadable: it is not text.
    """
    path = "/" + re.sub(r"\.(gz|zst)$", "", name.lower().replace("\\", "/"))
    found = _ENDING.search(path)
    ending = found[1] if found else None
    lines = JsonLines(data, alive)
    if opens_document(lines.data) and b'"role"' in lines.data[:_DOCUMENT_BEGINNING]:
        return codex.FORMAT
    if ending in (*_LINES, "json") or _begins_with_an_object(lines.data):
        told = _told_by_objects(lines)
        if told is not None:
            return told
        if ending in _LINES and lines.is_empty and _NOTHING_YET.match(lines.data):
            # A session that has not begun, or whose first line is still being written.
            return _told_by_path(path)
    text = decode(data[:SAMPLE_BYTES]).text
    if ending in _PROSE:
        return _PROSE[ending]
    return MARKDOWN if ending is None and _STRUCTURE.search(text) else TEXT


def _begins_with_an_object(data: bytes) -> bool:
    # A page may quote a session's line in its midst: of other files the beginning decides.
    return _OBJECT.match(data) is not None


def _told_by_objects(lines: JsonLines) -> str | None:
    for count, (_, record) in enumerate(lines):
        told = _told_by(record)
        if told is not None or count >= _MOST_OBJECTS:
            return told
    return None


def _told_by_path(path: str) -> str:
    if path.rpartition("/")[2].startswith("rollout-"):
        return codex.FORMAT
    return next((told for told, folder in _FOLDERS if folder in path), claude_code.FORMAT)


def _told_by(record: Record) -> str | None:
    kind = text_of(record, "type")
    if kind is None:
        if text_of(record, "id") and any(member in record for member in _CODEX_META):
            return codex.FORMAT
        return NODES if record.keys() >= _NODE_MEMBERS else None
    if kind == "session" and isinstance(record.get("id"), str):
        return pi.FORMAT
    if kind == "message" and "parentId" in record and "role" in object_of(record, "message"):
        return pi.FORMAT
    if codex.is_exec_stream(record):
        return codex.FORMAT
    if isinstance(record.get("payload"), dict):
        is_line = kind == "session_meta" or "timestamp" in record
        return codex.FORMAT if is_line else None
    return claude_code.FORMAT if claude_code.is_line(record) else None
