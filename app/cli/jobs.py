"""`mem jobs`: questions that are answered in the background."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from app.cli.failures import (
    EXIT_FAILED,
    EXIT_PARTIAL,
    EXIT_STILL_RUNNING,
    EXIT_USAGE,
    CommandFailed,
    plain,
)
from app.cli.query import LONGEST_JOB_TIMEOUT_S
from app.cli.render import Look, closing_lines, counted, coverage, listed, show_hits
from app.cli.shell import color_option, connected, echo_json, format_option, note, use_color
from app.cli.watch import follow, progress_display, projects_done, timeout_s

if TYPE_CHECKING:
    from app.client import Client

Item = Mapping[str, Any]

STATUSES = ("running", "ended", "queued", "completed", "partial", "failed", "cancelled")
SHOWN = 20  # jobs that `list` shows without --all
PAGE = 100
QUESTION_ROOM = 20  # columns that a question needs beside the others
AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
JOB_ID = re.compile("[0-9a-f]{32}")


@click.group(
    epilog="""\b
Examples:
  mem query -A --async "how are registry tokens rotated?"
  mem jobs wait 5f0c6a1e9d3b4c7f8a2e1d0b9c8f7a6e
  mem jobs list --status running

\b
Jobs are asked with `mem query --async`; their ids are those that it prints.
Exit codes of show, wait and stop: 0 answered; 1 failed or cancelled; 2 unknown id; 3 partial
answer; 124 still running."""
)
def jobs() -> None:
    """Follow, stop and cancel questions that run as jobs."""


def _read_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    job_id = value.strip().lower()
    if not JOB_ID.fullmatch(job_id):
        raise click.BadParameter(
            f"{value!r} is no id of a job, which is 32 hex digits. Yours: mem jobs list",
            context,
            parameter,
        )
    return job_id


def _job_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("job_id", metavar="ID", callback=_read_id)(command)


@contextmanager
def _connected_about(job_id: str) -> Iterator["Client"]:
    """A client to ask about one job; a job that is not there is told in our words."""
    from app.client import ClientError

    with connected() as client:
        try:
            yield client
        except ClientError as error:
            missing = _missing(job_id, error.problem)
            if missing is None:
                raise
            raise missing from error


def _missing(job_id: str, problem: Item) -> CommandFailed | None:
    code = problem.get("error")
    if code == "job_not_found":
        return CommandFailed(
            f"there is no job {job_id}, or it is not yours.",
            "Yours: mem jobs list",
            code=code,
            exits_with=EXIT_USAGE,
            problem=problem,
        )
    if code == "job_expired":
        return CommandFailed(
            f"job {job_id} has expired or was removed, and its answer with it.",
            'Ask again: mem query --async "..."; what is still kept: mem jobs list',
            code=code,
            problem=problem,
        )
    return None


@jobs.command(
    "list",
    epilog="""\b
Examples:
  mem jobs list
  mem jobs list --status running
  mem jobs list --all --format json

\b
In a pipe: tab-separated id, status, time of submission, projects done, question.""",
)
@click.option("--status", type=click.Choice(STATUSES), help="Only these.")
@click.option("--all", "is_all", is_flag=True, help=f"All of them, not only the last {SHOWN}.")
@format_option
def list_command(status: str | None, is_all: bool, output: str) -> None:
    """Your jobs, newest first."""
    with connected() as client:
        page_size = PAGE if is_all else SHOWN + 1
        every = client.list_jobs(status=status, page_size=page_size)
        found = list(every if is_all else itertools.islice(every, SHOWN + 1))
    shown = found if is_all else found[:SHOWN]
    if output == "json":
        echo_json({"jobs": shown})
        return
    for line in table(shown, Look.of(color=False)):
        click.echo(line)
    if len(found) > len(shown):
        note("Older ones:  mem jobs list --all")
    elif not found:
        asked = f"No job is {status}." if status else "No job yet."
        note(f'{asked} Asking makes one:  mem query --async "..."')


def table(found: Sequence[Item], look: Look) -> Iterator[str]:
    """One line a job in a pipe; on a terminal columns, and the question as far as it fits."""
    if look.width is None:
        for job in found:
            columns = (job["id"], job["status"], job["submitted_at"], _done(job), job["query"])
            yield "\t".join(plain(column) for column in columns)
        return
    if not found:
        return
    rows = [("ID", "STATUS", "AGE", "PROJECTS")]
    rows += [(job["id"], job["status"], _age(job["submitted_at"]), _done(job)) for job in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = look.width - sum(widths) - 2 * len(widths)
    questions = ["QUESTION", *(plain(job["query"]) for job in found)]
    for row, question in zip(rows, questions, strict=True):
        cells = "  ".join(
            f"{plain(cell):<{width}}" for cell, width in zip(row, widths, strict=True)
        )
        if left >= QUESTION_ROOM:
            yield f"{cells}  {_cut(question, left)}"
        else:
            yield cells.rstrip()
            yield f"  {_cut(question, look.width - 2)}"


def _done(job: Item) -> str:
    return f"{job['progress']['done']} of {job['progress']['total']}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 3].rstrip() + "..."


def _age(submitted_at: str) -> str:
    age_s = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(submitted_at)).total_seconds())
    size, unit = next((unit for unit in AGES if age_s >= unit[0]), AGES[-1])
    return f"{age_s // size:.0f} {unit}"


@jobs.command(
    epilog="""\b
Examples:
  mem jobs show 5f0c6a1e9d3b4c7f8a2e1d0b9c8f7a6e
  mem jobs show 5f0c6a1e9d3b4c7f8a2e1d0b9c8f7a6e --format json
  mem jobs show "$(mem jobs list | head -n 1 | cut -f 1)"

\b
Exit codes: 0 answered; 1 failed or cancelled; 2 unknown id; 3 partial answer; 124 still running."""
)
@_job_argument
@format_option
@color_option
@click.pass_context
def show(context: click.Context, /, job_id: str, output: str, color: str) -> None:
    """The state of job ID, and what it has found so far."""
    with _connected_about(job_id) as client:
        job = client.show_job(job_id)
    look = Look.of(use_color(color))
    if output == "text":
        for line in _state_lines(job, look):
            look.echo(line)
    _finish(context, job, output, look)


def _state_lines(job: Item, look: Look) -> Iterator[str]:
    line = f"{job['id']}  {plain(job['status'])}  {projects_done(job)}"
    if job.get("expires_at"):
        line += f"  kept until {_instant(job['expires_at'], look)}"
    yield line
    yield f"  {plain(job['query'])}"
    yield ""


def _instant(timestamp: str, look: Look) -> str:
    if look.width is None:
        return plain(timestamp)
    return f"{datetime.fromisoformat(timestamp).astimezone():%d %b %Y %H:%M}"


@jobs.command(
    epilog="""\b
Examples:
  mem jobs wait 5f0c6a1e9d3b4c7f8a2e1d0b9c8f7a6e
  mem jobs wait 5f0c6a1e9d3b4c7f8a2e1d0b9c8f7a6e --timeout 20
  mem jobs wait "$(mem query -A --async "how are tokens rotated?")" --format json

\b
Ctrl-C ends the waiting only; the job goes on.
Exit codes: 0 answered; 1 failed or cancelled; 2 unknown id; 3 partial answer; 124 still running
when --timeout was over, with what it had found by then."""
)
@_job_argument
@click.option(
    "--timeout", type=click.IntRange(min=0), help="Seconds to wait; without it, until the end."
)
@format_option
@color_option
@click.pass_context
def wait(
    context: click.Context, /, job_id: str, timeout: int | None, output: str, color: str
) -> None:
    """Wait for the end of job ID, then show its answer."""
    with _connected_about(job_id) as client:
        job = client.show_job(job_id)
        if job["is_running"]:
            job = _watch(client, job, timeout)
    _finish(context, job, output, Look.of(use_color(color)))


def _watch(client: "Client", job: dict[str, Any], timeout: int | None) -> dict[str, Any]:
    from app.client import Unreachable

    try:
        with progress_display() as display:
            return follow(client, job, display, timeout)
    except KeyboardInterrupt:
        note(f"Stopped watching; job {job['id']} goes on.")
        _tell_ways(job["id"])
        raise
    except Unreachable:
        note(f"Job {job['id']} needs nobody to watch it. Once the service is there again:")
        _tell_ways(job["id"])
        raise


def _tell_ways(job_id: str) -> None:
    note(f"Follow it:                        mem jobs wait {job_id}")
    note(f"End it and keep what it found:    mem jobs stop {job_id}")
    note(f"End it and keep nothing:          mem jobs cancel {job_id}")


@jobs.command(
    epilog="""\b
Examples:
  mem jobs stop 5f0c6a1e9d3b4c7f8a2e1d0b9c8f7a6e
  mem jobs stop 5f0c6a1e9d3b4c7f8a2e1d0b9c8f7a6e --format json
  mem jobs stop "$(mem jobs list --status running | head -n 1 | cut -f 1)"

\b
A job that had already ended is shown as it is.
Exit codes: 0 answered; 1 failed, or nothing was found yet; 2 unknown id; 3 partial answer."""
)
@_job_argument
@format_option
@color_option
@click.pass_context
def stop(context: click.Context, /, job_id: str, output: str, color: str) -> None:
    """End job ID now, and show and keep what it has found."""
    with _connected_about(job_id) as client:
        job = client.stop_job(job_id)
    _finish(context, job, output, Look.of(use_color(color)))


@jobs.command(
    epilog="""\b
Examples:
  mem jobs cancel 5f0c6a1e9d3b4c7f8a2e1d0b9c8f7a6e
  mem jobs cancel 5f0c6a1e9d3b4c7f8a2e1d0b9c8f7a6e --format json
  mem jobs cancel "$(mem jobs list --status running | head -n 1 | cut -f 1)"

\b
A job that had already ended is left as it is. `mem jobs stop` keeps what was found.
Exit codes: 0 cancelled, or had already ended; 1 failed; 2 unknown id."""
)
@_job_argument
@format_option
def cancel(job_id: str, output: str) -> None:
    """End job ID now, and keep nothing of it."""
    with _connected_about(job_id) as client:
        job = client.cancel_job(job_id)
    if output == "json":
        echo_json(job)
    elif job["status"] == "cancelled":
        click.echo(f"Job {job_id} is cancelled; nothing of it was kept.")
    else:
        click.echo(f"Job {job_id} had already ended ({plain(job['status'])}) and stays as it is.")
        note(f"See it:  mem jobs show {job_id}")


def exit_code(job: Item) -> int:
    """By how a job ended, or that it has not."""
    if job["is_running"]:
        return EXIT_STILL_RUNNING
    if job["status"] in ("failed", "cancelled"):
        return EXIT_FAILED
    return EXIT_PARTIAL if job["status"] == "partial" or job["degraded"] else 0


def _finish(context: click.Context, job: Item, output: str, look: Look) -> None:
    """Show what a job has found, as `mem query` does, and exit by how it ended.

    Raises:
        CommandFailed: it failed or was cancelled.
    """
    if output == "json":
        echo_json(job)
        context.exit(exit_code(job))
    if job["status"] == "cancelled":
        raise CommandFailed(
            f"job {job['id']} was cancelled, and nothing of it was kept.",
            'Ask again: mem query --async "..."',
            code="job_cancelled",
        )
    show_hits(job, look)
    if job["is_running"]:
        lines = _lines_so_far(job)
    else:
        longer_s = min(LONGEST_JOB_TIMEOUT_S, 2 * timeout_s(job))
        lines = closing_lines(job, job["query"], "mem query --async", longer_s)
    for line in lines:
        note(line)
    if job["status"] == "failed":
        raise _failure(job)
    if job["is_running"]:
        _tell_ways(job["id"])
    context.exit(exit_code(job))


def _lines_so_far(job: Item) -> Iterator[str]:
    missing = [
        plain(part["project"])
        for part in job["federation"]["projects"]
        if part["status"] == "running"
    ]
    line = f"{counted(len(job['results']), 'hit')} so far from {coverage(job)}."
    yield f"{line} STILL RUNNING: {listed(missing, ', ')}." if missing else f"{line} STILL RUNNING."


def _failure(job: Item) -> CommandFailed:
    problem = job["error"] or {}
    return CommandFailed(
        f"job {job['id']} failed: {problem.get('title') or 'for a reason that is not known'}.",
        str(problem.get("detail") or "`mem doctor` says more."),
        code=str(problem.get("error") or "job_failed"),
        problem=problem,
    )
