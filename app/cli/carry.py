"""`mem export` and `mem import`: a project as JSON lines, out of one memory and into another."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from app.cli.failures import CommandFailed, plain
from app.cli.render import Look, counted
from app.cli.shell import (
    connected,
    echo_json,
    format_option,
    infer_project,
    known_projects,
    note,
    use_color,
)
from app.cli.summary import exit_code, show_table
from app.cli.taking import COUNTS, Report, Taking, progress_display, report_of

if TYPE_CHECKING:
    from app.client import Body, Client

PART_BYTES = 32_000_000  # of one request
PLAIN_LINE_S = 2.0
RECORDS = ("project", "source", "node", "end")


@click.command(
    epilog="""\b
Examples:
  mem export poimen -o poimen.jsonl
  mem export poimen | gzip > poimen.jsonl.gz
  mem export poimen | mem import - -p poimen-copy

\b
It holds the project's title and root folders, the sources, all nodes with their vectors and what
they rest on, and a last line that says that it is complete. What is stored meanwhile may be
missing.
Exit codes: 0 complete; 1 it broke off, and FILE is not touched; 2 unknown project."""
)
@click.argument("project")
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    show_default="standard output",
    help="Where to write it.",
)
def export(project: str, target: Path) -> None:
    """Write PROJECT as JSON lines, to keep or to carry elsewhere."""
    with connected() as client, known_projects(client, [project]):
        own = [each for each in client.list_projects() if each["project"] == project]
        total = sum(sum(each["nodes"].values()) for each in own)
        with _written(target) as stream, _counting(total) as told:
            count = _copy(client.export(project), stream, told)
    note(f"Exported {counted(count, 'node')} of {plain(project)}.")


def _copy(lines: Iterable[bytes], stream: IO[bytes], told: Callable[[int], None]) -> int:
    """
    Raises:
        CommandFailed: the last line is not the one that says that nothing is missing.
    """
    count, last = 0, b""
    for line in lines:
        stream.write(line)
        last = line
        count += line.startswith(b'{"type": "node"')
        told(count)
    end = _end_of(last)
    if end is None or end.get("nodes") != count:
        raise CommandFailed(
            "the export broke off.",
            "Do it again; what was written of it cannot be imported.",
            code="export_incomplete",
        )
    return count


def _end_of(line: bytes) -> Mapping[str, Any] | None:
    """The last line of an export that is complete; None if it is another."""
    try:
        end = json.loads(line)
    except ValueError:
        return None
    return end if isinstance(end, dict) and end.get("type") == "end" else None


@contextmanager
def _written(target: Path) -> Iterator[IO[bytes]]:
    """A file that is there once it is complete, or standard output."""
    if str(target) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise CommandFailed(
            f"{target} cannot be written ({error.strerror}).",
            "Name a file in a folder that exists and that you may write to.",
            code="output_failed",
        ) from error
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def _counting(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, a line now and then elsewhere; stderr both."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("nodes"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=total or None)
            yield lambda done: bar.update(task, completed=done)
        return
    next_at = time.monotonic() + PLAIN_LINE_S

    def told(done: int) -> None:
        nonlocal next_at
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + PLAIN_LINE_S
            note(f"{done} of {counted(total, 'node')}")

    yield told


@click.command(
    "import",
    epilog="""\b
Examples:
  mem import poimen.jsonl -p poimen
  mem import poimen.jsonl -p poimen-copy --format json
  gunzip -c poimen.jsonl.gz | mem import - -p poimen

\b
Into a project of the same name the round trip is exact. What is there already stays; vectors of
another model are made anew. A root folder that another project has is left to it.
It is sent in parts of 32 MB; a part may have the POIMEN_INGEST_MAX_MB of the service at most.
Exit codes: 0 all stored; 1 failed, or FILE is no complete export; 3 some lines were skipped, or
some parts failed.""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-p", "--project", help="Where to store it; it is made if it is missing.")
@format_option
@click.pass_context
def import_command(context: click.Context, /, file: str, project: str | None, output: str) -> None:
    """Store what `mem export` wrote to FILE (`-`: standard input)."""
    with click.open_file(file, "rb") as given, _seekable(given) as stream, connected() as client:
        layout = _Layout.of(stream, file)
        if project is None:
            project = infer_project(client.list_projects(), "Name one with --project")
        ends: list[Report] = []
        parts = list(layout.parts())
        with progress_display(len(parts), "part") as told:
            submissions = (layout.submission(part, file, project) for part in parts)
            Taking(client, ends.append, told, most_open=1).run(submissions)
    report = _joined(file, ends, layout)
    if output == "json":
        echo_json({"files": [report]})
    else:
        show_table([report], Look.of(use_color("never")))
    context.exit(exit_code([report]))


@contextmanager
def _seekable(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    if stream.seekable():
        yield stream
        return
    with tempfile.TemporaryFile() as copy:
        while piece := stream.read(2**20):
            copy.write(piece)
        copy.seek(0)
        yield copy


@dataclass(frozen=True, slots=True)
class _Line:
    """Where a line of an export stands, and the lines that it rests on by their places."""

    number: int
    start: int
    size: int
    is_node: bool
    parents: tuple[int, ...] = ()


@dataclass(slots=True)
class _Layout:
    """An export in parts that fit into a request. Each holds all that its nodes rest on."""

    stream: IO[bytes]
    lines: list[_Line] = field(default_factory=list)

    @classmethod
    def of(cls, stream: IO[bytes], name: str) -> "_Layout":
        """
        Raises:
            CommandFailed: it is no export, or is cut off.
        """
        found = cls(stream)
        places: dict[str, int] = {}
        start, last = stream.tell(), b""
        for number, line in enumerate(stream, start=1):
            if line.strip():
                last = line
                record = _record(line, name, number)
                ids = [places[own] for own in record.get("parents") or () if own in places]
                is_node = record["type"] == "node"
                if is_node:
                    places[str(record.get("id"))] = len(found.lines)
                if record["type"] != "end":
                    found.lines.append(_Line(number, start, len(line), is_node, tuple(ids)))
            start += len(line)
        end = _end_of(last)
        if end is None or end.get("nodes") != sum(line.is_node for line in found.lines):
            cut = "it is cut off: its last line is missing"
            raise _no_export(name, cut if end is None else "it has lost lines, or got some twice")
        return found

    def parts(self) -> Iterator[list[int]]:
        """The places of each part's lines, in their order."""
        part: set[int] = set()
        size = 0
        for place in range(len(self.lines)):
            added = self._with_parents(place) - part
            more = sum(self.lines[each].size for each in added)
            if part and size + more > PART_BYTES:
                yield sorted(part)
                part, size = set(), 0
                added = self._with_parents(place)
                more = sum(self.lines[each].size for each in added)
            part |= added
            size += more
        yield sorted(part)

    def _with_parents(self, place: int) -> set[int]:
        found = {place}
        waiting = [place]
        while waiting:
            new = set(self.lines[waiting.pop()].parents) - found
            found |= new
            waiting += new
        return found

    def submission(self, part: list[int], file: str, project: str) -> "_Part":
        lines = [self.lines[place].number for place in part]
        return _Part(file, project, self._data(part), lines)

    def _data(self, part: Iterable[int]) -> bytes:
        """A part as an export of its own."""
        pieces, nodes = [], 0
        for place in part:
            line = self.lines[place]
            self.stream.seek(line.start)
            pieces.append(self.stream.read(line.size).rstrip(b"\r\n"))
            nodes += line.is_node
        return b"\n".join([*pieces, json.dumps({"type": "end", "nodes": nodes}).encode(), b""])


def _record(line: bytes, name: str, number: int) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if number == 1 and line.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        raise _no_export(name, "it is compressed; expand it first, as mem import --help shows")
    if record is None and not line.endswith(b"\n"):
        raise _no_export(name, "it is cut off in the midst of its last line")
    if not isinstance(record, dict) or record.get("type") not in RECORDS:
        raise _no_export(name, f"line {number} is none of an export")
    return record


def _no_export(name: str, said: str) -> CommandFailed:
    return CommandFailed(
        f"{name} cannot be imported: {said}.",
        "Write it again with `mem export PROJECT -o FILE`; other files go in by `mem ingest`.",
        code="no_export",
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an export, as it goes to the service."""

    file: str
    project: str
    data: bytes
    lines: list[int]
    size: int = 1

    def send(self, client: "Client") -> "Body":
        return client.import_lines(self.project, self.data)

    def stage(self, job: Mapping[str, Any]) -> str:
        return str(job.get("stage") or "waiting for a worker")

    def reports(self, job: Mapping[str, Any] | None) -> list[Report]:
        job = job or {}
        file: dict[str, Any] = next(iter(job.get("files") or ()), {})
        status = job.get("status", "failed")
        skipped = [
            {"line": self._line_of(skipped["line"]), "reason": skipped["reason"]}
            for skipped in file.get("skipped", ())
        ]
        said = {name: value for name, value in file.items() if name not in ("name", "status")}
        told = {"job": job.get("id"), "status": status, "error": job.get("error")}
        return [report_of(self.file) | said | told | {"skipped": skipped}]

    def _line_of(self, place: int) -> int:
        return self.lines[place - 1] if 0 < place <= len(self.lines) else place

    def halves(self) -> tuple[()]:
        return ()

    def too_large(self) -> list[Report]:
        megabytes = len(self.data) / 1e6
        reason = (
            f"a part of it has {megabytes:.0f} MB, more than the service takes at once;"
            " raise POIMEN_INGEST_MAX_MB where it runs, and import it again"
        )
        return [report_of(self.file, reason=reason)]


def _joined(file: str, parts: list[Report], layout: _Layout) -> Report:
    """One report for all parts, in which what several of them held counts once."""
    report = parts[0] | {"name": file, "path": file}
    for name in COUNTS:
        report[name] = sum(part[name] for part in parts)
    twice = max(0, report["received"] - sum(line.is_node for line in layout.lines))
    report["received"] -= twice
    report["unchanged"] -= twice
    report["skipped"] = [skipped for part in parts for skipped in part["skipped"]]
    report["skipped_count"] = sum(part["skipped_count"] for part in parts)
    statuses = {part["status"] for part in parts}
    report["status"] = statuses.pop() if len(statuses) == 1 else "partial"
    for name in ("reason", "error"):
        report[name] = next((part[name] for part in parts if part[name]), None)
    return report
