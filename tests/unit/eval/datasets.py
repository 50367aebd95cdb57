"""Small datasets for tests, written to disk as a user would."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Lines = Sequence[dict[str, Any] | str]

CORPUS: list[dict[str, Any]] = [
    {
        "id": "t1",
        "project": "talk",
        "level": "L0",
        "kind": "turn",
        "source": "s:1",
        "text": "The disk is full.",
    },
    {
        "id": "t2",
        "project": "talk",
        "level": "L0",
        "kind": "turn",
        "source": "s:1",
        "text": "Old snapshots were deleted.",
    },
    {
        "id": "n1",
        "project": "talk",
        "level": "L1",
        "kind": "note",
        "source": "notes",
        "text": "Snapshots filled the disk.",
        "parents": ["t2", "t1"],
    },
    {
        "id": "d1",
        "project": "docs",
        "level": "L0",
        "kind": "document",
        "source": "a.md",
        "text": "# A\n\nBackups run at night.",
    },
    {
        "id": "c1",
        "project": "docs",
        "level": "L1",
        "kind": "chunk",
        "source": "a.md",
        "text": "Backups run at night.",
        "parents": ["d1"],
    },
]
QUERIES: list[dict[str, Any]] = [
    {"id": "q1", "project": "talk", "text": "why no room?", "type": "why"},
    {"id": "q2", "project": "docs", "text": "when are backups made?", "type": "when"},
]
QRELS = ["query-id\tcorpus-id\tscore", "q1\tt1\t1", "q2\tc1\t2"]


def write_dataset(
    folder: Path, corpus: Lines = CORPUS, queries: Lines = QUERIES, qrels: Sequence[str] = QRELS
) -> Path:
    for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (folder / name).write_text("".join(f"{line}\n" for line in text))
    (folder / "qrels.tsv").write_text("".join(f"{line}\n" for line in qrels))
    return folder


def changed(lines: Sequence[dict[str, Any]], place: int, **changes: Any) -> list[dict[str, Any]]:
    """The lines with one of them changed; a value of None takes the key away."""
    body = {**lines[place], **changes}
    own = {name: value for name, value in body.items() if value is not None}
    return [*lines[:place], own, *lines[place + 1 :]]
