"""`mem ingest`: hand files over for storing, and tell what became of every line."""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from app.cli.failures import EXIT_FAILED, EXIT_PARTIAL, plain
from app.cli.shell import connected, echo_json, format_option, infer_project, note

if TYPE_CHECKING:
    from app.client import Client

OPEN = ("queued", "running")
COUNTS = ("received", "stored", "updated", "unchanged")
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 1.0
REASONS_SHOWN, LINES_SHOWN = 20, 10  # of skipped lines; JSON has them all
PLAIN_LINE_S = 2.0  # without a terminal, progress is told at most this often

Report = dict[str, Any]
Told = Callable[[Mapping[str, Any]], None]


@dataclass(slots=True)
class NodeFile:
    """A file of JSON lines: the nodes in it, each with its line number, and what is none."""

    name: str
    nodes: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    def line_of(self, place: int) -> int:
        """The file's line that holds the node at this 1-based place."""
        return self.lines[place - 1] if 0 < place <= len(self.lines) else place


def read_nodes(name: str, stream: IO[bytes]) -> NodeFile:
    """Read JSON lines; a line that is no JSON object is refused, and the others stay.

    A file that is one JSON document over many lines is refused as a whole, by its first line.
    """
    found = NodeFile(name)
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, as some editors write
        if not line.strip():
            continue
        shape = None if found.nodes or found.refused else _other_shape(line.strip())
        if shape:
            found.refused.append({"line": number, "reason": shape})
            return found
        try:
            node = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 (byte 0x{line[error.start]:02x})"
        except json.JSONDecodeError as error:
            reason = f"not JSON: {error.msg}, column {error.colno}"
        except (ValueError, RecursionError) as error:
            reason = f"not JSON: {error}"
        else:
            if isinstance(node, dict):
                found.nodes.append(node)
                found.lines.append(number)
                continue
            reason = "not a JSON object"
        found.refused.append({"line": number, "reason": reason})
    return found


def _other_shape(first_line: bytes) -> str | None:
    """What a file looks like whose first line is not a whole JSON object, or None."""
    opens_array = first_line[:1] == b"[" and first_line[1:].lstrip()[:1] in (b"", b"{")
    if opens_array:
        return "one object a line is expected; this looks like an array"
    if first_line == b"{":
        return "one object a line is expected; this looks like one over several lines"
    return None


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


@click.command(
    epilog="""\b
Examples:
  mem ingest notes.jsonl --as nodes -p poimen
  mem ingest *.jsonl --as nodes
  mem ingest big.jsonl --as nodes -p poimen --no-wait

\b
A node is one JSON object a line: id, level (L0, L1, L2), kind, source, text; L1 and L2 also
parents (ids of the same file). Storing the same file again changes nothing.
Exit codes: 0 all stored; 1 failed; 3 some lines were skipped, each is named on stderr."""
)
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True, path_type=Path),
)
@click.option("--as", "kind", type=click.Choice(["nodes"]), required=True, help="What FILE holds.")
@click.option("-p", "--project", help="Where to store nodes that name no project themselves.")
@click.option("--no-wait", is_flag=True, help="Print the job's id and do not wait for its end.")
@format_option
@click.pass_context
def ingest(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    kind: str,  # noqa: ARG001 - one format so far, named so that more can come
    project: str | None,
    no_wait: bool,
    output: str,
) -> None:
    """Store the memories in FILE... (`-`: standard input)."""
    reports: list[Report] = []
    with connected() as client:
        for path in files:
            with click.open_file(str(path), "rb") as stream:
                found = read_nodes(str(path), stream)
            report = store(client, found, project, wait=not no_wait)
            reports.append(report)
            if output == "text":
                show_report(report)
    if output == "json":
        echo_json({"files": reports})
    context.exit(max((exit_code(report) for report in reports), key=_gravity))


def _gravity(code: int) -> int:
    return (0, EXIT_PARTIAL, EXIT_FAILED).index(code)


def exit_code(report: Report) -> int:
    """Failed beats partial beats stored."""
    if report["status"] in ("failed", "cancelled"):
        return EXIT_FAILED
    return EXIT_PARTIAL if report["status"] == "partial" or report["skipped_count"] else 0


def store(client: "Client", found: NodeFile, project: str | None, *, wait: bool = True) -> Report:
    """Store one file's nodes and report what became of its lines, by the file's numbers."""
    if not found.nodes:
        return _report(found, {"status": "failed" if found.refused else "completed"})
    if project is None and any(not node.get("project") for node in found.nodes):
        project = infer_project(client.list_projects(), "Name one with --project")
    job: Mapping[str, Any] = client.submit_ingest(found.nodes, project=project)
    if wait:
        job = _wait(client, job["id"], found.name)
    return _report(found, job)


def _wait(client: "Client", job_id: str, name: str) -> dict[str, Any]:
    pause = FIRST_WAIT_S
    try:
        with _progress(name) as told:
            while (job := client.show_ingest(job_id))["status"] in OPEN:
                told(job)
                time.sleep(pause)
                pause = min(LONGEST_WAIT_S, pause * 1.5)
    except KeyboardInterrupt:
        note(f"Stopped watching; job {job_id} goes on. Storing the file again costs nothing.")
        raise
    return job


@contextmanager
def _progress(name: str) -> Iterator[Told]:
    """A bar on a terminal, a line now and then elsewhere; stderr both."""
    if not sys.stderr.isatty():
        yield _plain_progress(name)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(plain(name).replace("[", r"\["), total=None)

        def told(job: Mapping[str, Any]) -> None:
            progress = job.get("progress") or {}
            bar.update(task, completed=progress.get("done", 0), total=progress.get("total") or None)

        yield told


def _plain_progress(name: str) -> Told:
    next_at = time.monotonic() + PLAIN_LINE_S

    def told(job: Mapping[str, Any]) -> None:
        nonlocal next_at
        if time.monotonic() < next_at:
            return
        next_at = time.monotonic() + PLAIN_LINE_S
        progress = job.get("progress") or {}
        done, total = progress.get("done", 0), progress.get("total") or "?"
        note(f"{plain(name)}: {plain(job['status'])}, {done} of {total} nodes")

    return told


def _report(found: NodeFile, job: Mapping[str, Any]) -> Report:
    """The service's counts and ours in one: its `line` is a place in what was sent."""
    files = job.get("files") or []
    theirs = [
        {"line": found.line_of(skipped["line"]), "reason": skipped["reason"]}
        for file in files
        for skipped in file["skipped"]
    ]
    counts = {name: sum(file[name] for file in files) for name in COUNTS}
    counts["received"] = len(found.nodes) + len(found.refused)
    return {
        "file": found.name,
        "job": job.get("id"),
        "status": job["status"],
        **counts,
        "skipped": sorted([*found.refused, *theirs], key=lambda skipped: skipped["line"]),
        "skipped_count": len(found.refused) + sum(file["skipped_count"] for file in files),
        "error": job.get("error"),
    }


def _skipped_lines(report: Report) -> Iterator[str]:
    """Each reason once, with the lines it holds for; as many as a person would read."""
    places: dict[str, list[int]] = {}
    for skipped in report["skipped"]:
        places.setdefault(plain(skipped["reason"]), []).append(skipped["line"])
    told = 0
    for reason, lines in itertools.islice(places.items(), REASONS_SHOWN):
        told += len(lines)
        more = len(lines) - LINES_SHOWN
        numbers = ", ".join(str(line) for line in lines[:LINES_SHOWN])
        which = f"line{'' if len(lines) == 1 else 's'} {numbers}"
        yield f" {which}{f' and {more} more' if more > 0 else ''}: {reason}"
    if report["skipped_count"] > told:
        yield f": and {report['skipped_count'] - told} more lines were skipped"


def show_report(report: Report) -> None:
    """The counts on stdout, each skipped line on stderr."""
    name = plain(report["file"])
    for line in _skipped_lines(report):
        note(f"{name}{line}")
    if not report["received"]:
        note(f"warning: {name} holds no nodes")
    if report["error"]:
        error = report["error"]
        note(f"{name}: {plain(error['message'])} ({plain(error['code'])})")
    if report["status"] in OPEN:
        click.echo(report["job"])
        return
    counts = ", ".join(f"{report[count]} {count}" for count in COUNTS)
    click.echo(f"{name}: {plain(report['status'])}; {counts}, {report['skipped_count']} skipped")
