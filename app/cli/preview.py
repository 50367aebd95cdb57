"""What files hold, found out with the readers of the service and without the service."""

import io
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import click
from pydantic import ValidationError

from app.cli.failures import plain
from app.cli.node_files import holds_nodes, read_nodes
from app.cli.paths import Source, TooLarge, name_of
from app.cli.render import Look
from app.cli.summary import show_columns, show_reasons
from app.cli.taking import Report, why_unreadable
from workers.contracts import NodeBody
from workers.ingest.detect import MARKDOWN, TEXT
from workers.ingest.drafts import Drafting
from workers.ingest.nodes import reason_of
from workers.ingest.parsed import Parsed, Unreadable
from workers.ingest.reading import read_file

LONGEST_S = 40.0  # for one file
NO_LIMIT = 10**12  # tokens: nothing is cut, as the embedder that is used is not known here
COUNTS = ("sessions", "turns", "documents", "sections", "nodes")


class _TooSlow(BaseException):
    """No `except Exception` of a reader is to hold this up."""


@dataclass(frozen=True, slots=True)
class Preview:
    """Reads files as the service would; secrets are not looked for, and nothing is embedded."""

    form: str
    most_bytes: int
    stdin_name: str

    def of(self, source: Source) -> Report:
        """What one file holds. Never fails: what cannot be read is told with its reason."""
        report: Report = {
            "path": source.shown,
            "status": "failed",
            "reason": None,
            "format": None if self.form == "auto" else self.form,
            "counts": {},
            "sources": [],
            "skipped": [],
            "skipped_count": 0,
            "ignored": {},
            "notes": [],
            "has_open_end": False,
            "error": None,
        }
        try:
            with _limited():
                self._read(source, report)
        except _TooSlow:
            report["reason"] = f"takes more than {LONGEST_S:.0f} s to read"
        except Unreadable as error:
            report["reason"] = str(error)
        except (OSError, TooLarge) as error:
            report["reason"] = why_unreadable(error)
        except MemoryError:
            report["reason"] = "needs more memory than there is"
        except Exception as error:  # noqa: BLE001 - one file's fault is not the others'
            report["reason"] = f"a fault of mem itself: {type(error).__name__}"
        if report["reason"] is None:
            report["status"] = "partial" if report["skipped_count"] else "completed"
        return report

    def _read(self, source: Source, report: Report) -> None:
        data = source.read(self.most_bytes)
        if self.form == "nodes" or (self.form == "auto" and holds_nodes(data)):
            _tell_nodes(source, data, report)
            return
        # What a project's roots are is not known here, and no reader needs it.
        name = name_of(source, (), self.stdin_name)
        parsed, _ = read_file(data, name, self.form, _unmasked, self.most_bytes)
        _tell(parsed, name, report)


def _unmasked(text: str) -> tuple[str, dict[str, int]]:
    return text, {}


def _tell(parsed: Parsed, name: str, report: Report) -> None:
    drafting = Drafting(name, lambda _: 2, NO_LIMIT, _unmasked)
    turns: Counter[str] = Counter()
    for session in parsed.sessions:
        draft = drafting.session("preview", parsed.format, session)
        turns.update(str(each.node.metadata["speaker"]) for each in draft.drafts)
        report["sources"].append(draft.source)
    sections = [
        section
        for document in parsed.documents
        for section in document.sections
        if section.text.strip()
    ]
    if parsed.format in (MARKDOWN, TEXT):
        told: dict[str, Any] = {"documents": len(parsed.documents), "sections": len(sections)}
    else:
        told = {"sessions": len(parsed.sessions), "turns": dict(turns)}
    report |= {
        "format": parsed.format,
        "counts": told,
        "skipped": [{"line": each.line, "reason": each.reason} for each in parsed.skipped],
        "skipped_count": len(parsed.skipped) + parsed.unlisted,
        "ignored": dict(Counter(parsed.ignored) + drafting.ignored),
        "notes": list(parsed.notes),
        "has_open_end": parsed.has_open_end,
    }


def _tell_nodes(source: Source, data: bytes, report: Report) -> None:
    found = read_nodes(source.shown, io.BytesIO(data))
    skipped = list(found.refused)
    for node, line in zip(found.nodes, found.lines, strict=True):
        try:
            NodeBody.model_validate(node)
        except ValidationError as error:
            skipped.append({"line": line, "reason": reason_of(error)})
    report |= {
        "format": "nodes",
        "counts": {"nodes": len(found.nodes) + len(found.refused) - len(skipped)},
        "skipped": sorted(skipped, key=lambda each: each["line"]),
        "skipped_count": len(skipped),
    }
    if skipped and not report["counts"]["nodes"]:
        report["reason"] = "holds no node that could be stored"


@contextmanager
def _limited() -> Iterator[None]:
    """End what takes too long, by an alarm: readers have no deadline of their own."""

    def alarm(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal's signature
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def show_previews(reports: Sequence[Report], look: Look) -> None:
    """A row a file on stdout, reasons on stderr."""
    for report in reports:
        show_reasons(report)
    rows = [_row(report) for report in reports]
    if look.width is None:
        for row in rows:
            click.echo("\t".join(row.values()))
    else:
        show_columns(rows, rows, (*COUNTS, "skipped", "ignored"), (), look.width)


def _row(report: Report) -> dict[str, str]:
    counts = report["counts"]
    turns = sum(counts.get("turns", {}).values())
    return {
        "file": plain(report["path"]),
        "status": plain(report["status"]),
        "format": plain(report["format"] or "-"),
        **{name: str(turns if name == "turns" else counts.get(name, 0)) for name in COUNTS},
        "skipped": str(report["skipped_count"]),
        "ignored": str(sum(report["ignored"].values())),
    }
