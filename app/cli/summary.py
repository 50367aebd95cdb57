"""What became of files that were taken in, as text: counts on stdout, reasons on stderr."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from app.cli.failures import EXIT_FAILED, EXIT_PARTIAL, plain
from app.cli.render import Look, counted, listed
from app.cli.shell import note
from app.cli.taking import COUNTS, OPEN, Report

REASONS_SHOWN, LINES_SHOWN = 20, 10  # of skipped lines; JSON has them all
ROWS_SHOWN = 40  # on a terminal; a pipe and JSON have them all
NAME_ROOM = 16  # columns that a name needs beside the others
ALWAYS = ("received", "stored", "unchanged")

Item = Mapping[str, Any]


def exit_code(reports: Sequence[Report]) -> int:
    """Stored, or failed, if that holds for every file; else partial."""
    codes = {_code(report) for report in reports} or {0}
    return codes.pop() if len(codes) == 1 else EXIT_PARTIAL


def _code(report: Report) -> int:
    if report["status"] in ("failed", "cancelled"):
        return EXIT_FAILED
    return EXIT_PARTIAL if report["status"] == "partial" or report["skipped_count"] else 0


def show_line(report: Report) -> None:
    """One file in a line of its own; if it waits to be stored, the id of its job."""
    name = plain(report["path"])
    show_reasons(report)
    if report["format"] == "nodes" and not report["received"]:
        note(f"warning: {name} holds no nodes")
    if report["status"] in OPEN:
        click.echo(report["job"])
        return
    counts = ", ".join(f"{report[count]} {count}" for count in COUNTS if count != "removed")
    click.echo(f"{name}: {plain(report['status'])}; {counts}, {report['skipped_count']} skipped")


def show_reasons(report: Report) -> None:
    """Why a file failed, which of its lines were skipped, and what was read in another way."""
    name = plain(report["path"])
    for line in _skipped_lines(report):
        note(f"{name}{line}")
    if report["reason"]:
        note(f"{name}: {plain(report['reason'])}")
    for said in report["notes"]:
        note(f"{name}: {plain(said)}")
    if report["error"]:
        error = report["error"]
        note(f"{name}: {plain(error['message'])} ({plain(error['code'])})")


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


def show_table(reports: Sequence[Report], look: Look) -> None:
    """A row a file, then what holds for all of them."""
    for report in reports:
        show_reasons(report)
    waiting = list(dict.fromkeys(r["job"] for r in reports if r["status"] in OPEN and r["job"]))
    for job in waiting:
        click.echo(job)
    ended = [report for report in reports if report["status"] not in OPEN]
    rows = [_row(report) for report in ended]
    if look.width is None:
        for row in rows:
            click.echo("\t".join(row.values()))
    elif rows:
        news = [row for report, row in zip(ended, rows, strict=True) if _is_news(report)]
        show_columns(rows, news, (*COUNTS, "skipped", "redacted"), ALWAYS, look.width)
    for line in _closing_lines(reports):
        note(line)
    if waiting:
        note(f"Follow {'it' if len(waiting) == 1 else 'one'}:  mem jobs wait ID")


def _row(report: Report) -> dict[str, str]:
    """In a pipe, all of it in this order, with tabs between."""
    counts = {name: str(report[name]) for name in COUNTS}
    return {
        "file": plain(report["path"]),
        "status": plain(report["status"]),
        "format": plain(report["format"] or "-"),
        **counts,
        "skipped": str(report["skipped_count"]),
        "redacted": str(sum(report["redacted"].values())),
    }


def show_columns(
    rows: Sequence[dict[str, str]],
    telling: Sequence[dict[str, str]],
    numbers: Sequence[str],
    always: Sequence[str],
    width: int,
) -> None:
    """On a terminal: the rows that tell something, and as much of names as fits.

    numbers: the columns of counts, which are left out if all are 0, but for those of `always`.
    """
    shown = (telling or rows)[:ROWS_SHOWN]
    total = {name: str(sum(int(row[name]) for row in rows)) for name in numbers}
    kept = [name for name in numbers if name in always or total[name] != "0"]
    heading = {name: name.upper() for name in ("file", "format", *kept)}
    last = {"file": counted(len(rows), "file"), "format": "", **total}
    body = [{**row, "format": _told_format(row)} for row in shown]
    table = [heading, *body, *([last] if len(rows) > 1 else [])]
    widths = {name: max(len(row[name]) for row in table) for name in ("format", *kept)}
    room = width - sum(widths.values()) - 2 * len(widths)
    longest = max(len(row["file"]) for row in table)
    for row in table:
        cells = [f"{row['format']:<{widths['format']}}"]
        cells += [f"{row[name]:>{widths[name]}}" for name in kept]
        if room >= min(longest, NAME_ROOM):
            name = _end_of(row["file"], room)
            click.echo("  ".join([f"{name:<{min(longest, room)}}", *cells]).rstrip())
        else:
            click.echo(_end_of(row["file"], width))
            click.echo("  ".join(["", *cells]).rstrip())
    if len(rows) > len(shown):
        note(f"{len(rows) - len(shown)} more files are not shown; --format json has them all.")


def _told_format(row: Mapping[str, str]) -> str:
    """The format, or that there is nothing of it."""
    return row["status"] if row["status"] in ("failed", "cancelled") else row["format"]


def _is_news(report: Report) -> bool:
    return bool(report["status"] != "completed" or report["unchanged"] < report["received"])


def _end_of(name: str, room: int) -> str:
    """The end of a path tells more than its beginning."""
    return name if len(name) <= room else "..." + name[3 - room :]


def _closing_lines(reports: Sequence[Report]) -> Iterator[str]:
    projects = sorted({plain(s["project"]) for report in reports for s in report["sources"]})
    if projects:
        yield f"Stored in {listed(projects, ', ')}."
    growing = sum(report["has_open_end"] for report in reports)
    if growing:
        those = "1 file was" if growing == 1 else f"{growing} files were"
        yield f"{those} still being written; store again later what comes then."
    failed = sum(report["status"] == "failed" for report in reports)
    if failed:
        stored = sum(report["status"] in ("completed", "partial") for report in reports)
        others = " The others are stored." if stored and stored + failed == len(reports) else ""
        yield f"{counted(failed, 'file')} failed.{others}"
