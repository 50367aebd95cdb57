"""`mem jobs`: what is done in the background: questions, and what is being stored."""

import itertools
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

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
INGEST_STATUSES = ("open", "completed", "partial", "failed", "cancelled")
SHOWN = 20  # jobs that `list` shows without --all
PAGE = 100
LOOK_AGAIN_S = 0.5  # between two looks at a submission of files
QUESTION_ROOM = 20  # columns that a question needs beside the others
AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
JOB_ID = re.compile("[0-9a-f]{32}")
INGEST_ID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@click.group(
    epilog="""\b
Examples:
  mem jobs list --status running
  mem jobs list --ingest
  mem jobs wait 5f0c6a1e9d3b4c7f8a2e1d0b9c8f7a6e

\b
Questions become jobs by `mem query --async`, files by `mem ingest`. The id of a question has no
dashes, that of a submission of files has four.
Exit codes of show, wait and stop: 0 answered, or all stored; 1 failed or cancelled; 2 unknown id;
3 partial; 124 still running."""
)
def jobs() -> None:
    """Follow, stop and cancel what runs in the background."""


def _read_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    job_id = value.strip().lower()
    if not JOB_ID.fullmatch(job_id) and not is_ingest(job_id):
        raise click.BadParameter(
            f"{value!r} is no id of a job, which is 32 hex digits. Yours: mem jobs list",
            context,
            parameter,
        )
    return job_id


def is_ingest(job_id: str) -> bool:
    """Whether an id is that of a submission of files, and not of a question."""
    return INGEST_ID.fullmatch(job_id) is not None


def _other_kind(job_id: str, said: str, advice: str) -> CommandFailed:
    return CommandFailed(
        f"{job_id} is {said}.", advice, code="other_kind_of_job", exits_with=EXIT_USAGE
    )


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
    if code == "ingest_not_found":
        return CommandFailed(
            f"there is no submission {job_id}, or it is not yours.",
            "Yours: mem jobs list --ingest",
            code=code,
            exits_with=EXIT_USAGE,
            problem=problem,
        )
    if code == "nothing_to_retry":
        return CommandFailed(
            f"nothing of {job_id} could go better a second time.",
            f"Why it failed:  mem jobs show {job_id}",
            code=code,
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
  mem jobs list --all --format json
  mem jobs list --ingest --status failed

\b
In a pipe: tab-separated id, status, time of submission, projects done, question; of submissions
of files: id, status, time of submission, files done, project.""",
)
@click.option("--ingest", "of_files", is_flag=True, help="Submissions of files, not questions.")
@click.option(
    "--status",
    type=click.Choice(tuple(dict.fromkeys((*STATUSES, *INGEST_STATUSES)))),
    help="Only these; open: submissions that wait or run.",
)
@click.option("--all", "is_all", is_flag=True, help=f"All of them, not only the last {SHOWN}.")
@format_option
def list_command(of_files: bool, status: str | None, is_all: bool, output: str) -> None:
    """Your jobs, newest first."""
    known = INGEST_STATUSES if of_files else STATUSES
    if status is not None and status not in known:
        raise click.UsageError(f"--status of these is one of {', '.join(known)}.")
    with connected() as client:
        page_size = PAGE if is_all else SHOWN + 1
        lister = client.list_ingest if of_files else client.list_jobs
        every = lister(status=status, page_size=page_size)
        found = list(every if is_all else itertools.islice(every, SHOWN + 1))
    shown = found if is_all else found[:SHOWN]
    if output == "json":
        echo_json({"jobs": shown})
        return
    rows = submissions_table if of_files else table
    for line in rows(shown, Look.of(color=False)):
        click.echo(line)
    if len(found) > len(shown):
        note(f"Older ones:  mem jobs list {'--ingest ' if of_files else ''}--all")
    elif not found and of_files:
        note(f"No submission {f'is {status}' if status else 'yet'}. `mem ingest` makes one.")
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


def submissions_table(found: Sequence[Item], look: Look) -> Iterator[str]:
    """One line a submission of files or nodes."""
    is_piped = look.width is None
    rows = [] if is_piped or not found else [("ID", "STATUS", "AGE", "DONE", "PROJECT")]
    rows += [
        (
            job["id"],
            plain(job["status"]),
            plain(job["created_at"]) if is_piped else _age(job["created_at"]),
            _done(job),
            plain(job["project"] or "-"),
        )
        for job in found
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "\t".join(row) if is_piped else "  ".join(cells).rstrip()


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
    """The state of job ID, and what it has found or stored so far."""
    if is_ingest(job_id):
        with _connected_about(job_id) as client:
            _finish_ingest(context, client.show_ingest(job_id), output)
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
    """Wait for the end of job ID, then show its answer or what it has stored."""
    if is_ingest(job_id):
        with _connected_about(job_id) as client:
            _finish_ingest(context, _watch_ingest(client, job_id, timeout), output)
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
    if is_ingest(job_id):
        advice = f"End it, and keep what it has stored:  mem jobs cancel {job_id}"
        raise _other_kind(job_id, "a submission of files, not a question", advice)
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
A job that had already ended is left as it is. `mem jobs stop` keeps what was found. What a
submission of files has stored by then stays.
Exit codes: 0 cancelled, or had already ended; 1 failed; 2 unknown id."""
)
@_job_argument
@format_option
def cancel(job_id: str, output: str) -> None:
    """End job ID now, and keep nothing of its answer."""
    if is_ingest(job_id):
        with _connected_about(job_id) as client:
            job = client.cancel_ingest(job_id)
        if output == "json":
            echo_json(job)
        elif job["status"] == "cancelled":
            click.echo(f"Submission {job_id} is cancelled; what it has stored stays.")
        else:
            click.echo(f"Submission {job_id} had already ended ({plain(job['status'])}).")
        return
    with _connected_about(job_id) as client:
        job = client.cancel_job(job_id)
    if output == "json":
        echo_json(job)
    elif job["status"] == "cancelled":
        click.echo(f"Job {job_id} is cancelled; nothing of it was kept.")
    else:
        click.echo(f"Job {job_id} had already ended ({plain(job['status'])}) and stays as it is.")
        note(f"See it:  mem jobs show {job_id}")


@jobs.command(
    epilog="""\b
Examples:
  mem jobs list --ingest --status failed
  mem jobs retry 1c9f9a52-6c51-4a4e-9a0e-6a0b6c1d2e3f
  mem jobs retry "$(mem jobs list --ingest --status failed | head -n 1 | cut -f 1)"

\b
For submissions whose attempts all failed, while the embedding server was away for example.
Exit codes: 0 it is tried again; 1 there is nothing that a second try could help; 2 unknown id."""
)
@_job_argument
@format_option
def retry(job_id: str, output: str) -> None:
    """Try again what failed of the submission ID."""
    if not is_ingest(job_id):
        raise _other_kind(job_id, "a question", 'Ask it again:  mem query --async "..."')
    with _connected_about(job_id) as client:
        job = client.retry_ingest(job_id)
    if output == "json":
        echo_json(job)
        return
    click.echo(f"Submission {job_id} is tried again.")
    note(f"Follow it:  mem jobs wait {job_id}")


def _watch_ingest(client: "Client", job_id: str, timeout: int | None) -> dict[str, Any]:
    from app.cli.taking import OPEN, look, progress_display, stage_of

    ends_at = math.inf if timeout is None else time.monotonic() + timeout
    job = client.show_ingest(job_id)
    total = (job.get("progress") or {}).get("total") or 1
    try:
        with progress_display(total) as told:
            while job["status"] in OPEN and time.monotonic() < ends_at:
                progress = job.get("progress") or {}
                told(progress.get("done", 0), stage_of(job))
                time.sleep(max(0.0, min(LOOK_AGAIN_S, ends_at - time.monotonic())))
                job = look(client, job_id, lambda: None)
    except KeyboardInterrupt:
        note(f"Stopped watching; submission {job_id} goes on. End it:  mem jobs cancel {job_id}")
        raise
    return job


def _finish_ingest(context: click.Context, job: Item, output: str) -> NoReturn:
    """Show what became of each file, and exit by it."""
    from app.cli.summary import exit_code as code_of
    from app.cli.summary import show_table
    from app.cli.taking import OPEN, reports_of, stage_of

    reports = reports_of(job)
    if output == "json":
        echo_json(job)
    else:
        stage = f"  {plain(stage_of(job))}" if job["status"] in OPEN else ""
        click.echo(f"{job['id']}  {plain(job['status'])}  {_done(job)} done{stage}")
        show_table([each for each in reports if each["status"] not in OPEN], Look.of(color=False))
        error = job.get("error")
        if error:
            note(f"{plain(error['message'])} ({plain(error['code'])})")
    if job["status"] in OPEN:
        context.exit(EXIT_STILL_RUNNING)
    is_lost = job["status"] in ("failed", "cancelled")
    context.exit(EXIT_FAILED if is_lost else code_of(reports))


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
