"""Handing files over to the service in parts, and following what becomes of them."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from app.cli.failures import CommandFailed, plain
from app.cli.node_files import NodeFile
from app.cli.paths import Source, TooLarge
from app.cli.render import counted
from app.cli.shell import infer_project, note

if TYPE_CHECKING:
    from app.client import Body, Client

Job = Mapping[str, Any]
Report = dict[str, Any]

OPEN = ("queued", "running")
COUNTS = ("received", "stored", "updated", "unchanged", "removed")
MOST_BYTES = 32_000_000  # of one request; a larger file goes alone
MOST_FILES = 200  # of one request
LARGEST = 1_000_000_000  # bytes of a file that is read at all; the service says what it takes
MOST_OPEN = 4  # jobs that wait or run at a time: the service keeps what it has not read yet
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 1.0
TRY_AGAIN_S, PATIENCE_S = 1.0, 30.0  # with a service that went away
PLAIN_LINE_S, LONGEST_PLAIN_LINE_S = 2.0, 30.0  # without a terminal, from one line to the next
WAYS = "Name one with --project"


def report_of(path: str, **members: Any) -> Report:
    """What became of one file, before anything is known of it."""
    said: Report = {
        "path": path,
        "name": path,
        "job": None,
        "status": "failed",
        "reason": None,
        "format": None,
        **dict.fromkeys(COUNTS, 0),
        "skipped": [],
        "skipped_count": 0,
        "ignored": {},
        "redacted": {},
        "notes": [],
        "has_open_end": False,
        "sources": [],
        "error": None,
    }
    return said | members


class Submission(Protocol):
    """What goes to the service in one request."""

    @property
    def size(self) -> int:
        """The number of its files."""

    def send(self, client: "Client") -> "Body | None":
        """The job that it became; None if there is nothing to be done."""

    def stage(self, job: Job) -> str:
        """What is being done of it."""

    def reports(self, job: Job | None) -> list[Report]:
        """What became of its files."""

    def halves(self) -> "Sequence[Submission]":
        """The same in two parts; empty if it cannot be parted."""

    def too_large(self) -> list[Report] | None:
        """What to say of it where the service takes no request of its size; None: what it said."""


@dataclass(frozen=True, slots=True)
class Files:
    """Some files, by their names."""

    sources: tuple[Source, ...]
    names: tuple[str, ...]
    contents: tuple[bytes, ...]
    form: str
    project: str | None

    @property
    def size(self) -> int:
        return len(self.sources)

    def only(self, places: Iterable[int]) -> "Files":
        """Those at these places."""
        kept = tuple(places)
        sources = tuple(self.sources[place] for place in kept)
        names = tuple(self.names[place] for place in kept)
        contents = tuple(self.contents[place] for place in kept)
        return Files(sources, names, contents, self.form, self.project)

    def send(self, client: "Client") -> "Body | None":
        files = list(zip(self.names, self.contents, strict=True))
        return client.submit_files(files, form=self.form, project=self.project)

    def stage(self, job: Job) -> str:
        return stage_of(job)

    def reports(self, job: Job | None) -> list[Report]:
        job = job or {}
        told = [*job.get("files", ()), *({} for _ in self.sources)]
        return [
            _file_report(source.shown, name, job, file)
            for source, name, file in zip(self.sources, self.names, told, strict=False)
        ]

    def halves(self) -> "Sequence[Files]":
        middle = len(self.sources) // 2
        if not middle:
            return ()
        return self.only(range(middle)), self.only(range(middle, len(self.sources)))

    def too_large(self) -> list[Report] | None:
        megabytes = len(self.contents[0]) / 1e6
        reason = (
            f"has {megabytes:.0f} MB, more than the service takes at once;"
            " raise POIMEN_INGEST_MAX_MB where it runs"
        )
        return [report_of(self.sources[0].shown, name=self.names[0], reason=reason)]


def _file_report(path: str, name: str, job: Job, file: Mapping[str, Any]) -> Report:
    said = {name: value for name, value in file.items() if name != "name"}
    status = said.get("status", "queued")
    if status == "queued":  # its job ended before its turn came, or has not ended
        status = job.get("status", "queued")
        said["reason"] = (job.get("error") or {}).get("message")
    return report_of(path, name=name, job=job.get("id")) | said | {"status": status}


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of one file."""

    found: NodeFile
    project: str | None
    size: int = 1

    def send(self, client: "Client") -> "Body | None":
        if not self.found.nodes:
            return None
        project = self.project
        if project is None and any(not node.get("project") for node in self.found.nodes):
            project = infer_project(client.list_projects(), WAYS)
        return client.submit_ingest(self.found.nodes, project=project)

    def stage(self, job: Job) -> str:
        progress = job.get("progress") or {}
        done, total = progress.get("done", 0), progress.get("total") or "?"
        return _waiting(job) or f"{self.found.name}: {done} of {total} nodes"

    def reports(self, job: Job | None) -> list[Report]:
        """The service's counts and ours in one: its `line` is a place in what was sent."""
        found = self.found
        job = job or {"status": "failed" if found.refused else "completed"}
        files = job.get("files") or []
        theirs = [
            {"line": found.line_of(skipped["line"]), "reason": skipped["reason"]}
            for file in files
            for skipped in file["skipped"]
        ]
        counts = {name: sum(file.get(name, 0) for file in files) for name in COUNTS}
        counts["received"] = len(found.nodes) + len(found.refused)
        skipped_count = len(found.refused) + sum(file["skipped_count"] for file in files)
        report = report_of(
            found.name,
            job=job.get("id"),
            status=job["status"],
            format="nodes",
            **counts,
            skipped=sorted([*found.refused, *theirs], key=lambda skipped: skipped["line"]),
            skipped_count=skipped_count,
            error=job.get("error"),
        )
        return [report]

    def halves(self) -> "Sequence[Submission]":
        return ()

    def too_large(self) -> list[Report] | None:
        return None


def stage_of(job: Job) -> str:
    """What is being done of a submission."""
    return _waiting(job) or str(job.get("stage") or "")


def reports_of(job: Job) -> list[Report]:
    """What became of each file of a submission that somebody else may have made."""
    return [_file_report(file["name"], file["name"], job, file) for file in job.get("files") or ()]


def _waiting(job: Job) -> str | None:
    if job["status"] != "queued":
        return None
    error = job.get("error")
    return f"waiting to try again: {error['message']}" if error else "waiting for a worker"


def in_parts(
    sources: Iterable[tuple[Source, str]], form: str, project: str | None, emit: "Emit"
) -> Iterator[Files]:
    """The files in parts that fit into a request; those that cannot be read are told at once.

    sources: each with the name that the service is told.
    """
    part: list[tuple[Source, str, bytes]] = []
    size = 0
    for source, name in sources:
        try:
            data = source.read(LARGEST)
        except (OSError, TooLarge) as error:
            emit(report_of(source.shown, name=name, reason=why_unreadable(error)))
            continue
        if part and (size + len(data) > MOST_BYTES or len(part) == MOST_FILES):
            yield _part(part, form, project)
            part, size = [], 0
        part.append((source, name, data))
        size += len(data)
    if part:
        yield _part(part, form, project)


def why_unreadable(error: OSError | TooLarge) -> str:
    return f"cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)


def _part(files: Sequence[tuple[Source, str, bytes]], form: str, project: str | None) -> Files:
    sources, names, contents = zip(*files, strict=True)
    return Files(sources, names, contents, form, project)


Emit = Callable[[Report], None]


class Told(Protocol):
    """Shows how far it is."""

    def __call__(self, done: float, stage: str) -> None:
        """So many files are done, and this is what is being done now."""


@dataclass(slots=True)
class Taking:
    """Hands submissions over, a few at a time, and tells what becomes of each file."""

    client: "Client"
    emit: Emit
    progress: Told
    waits: bool = True
    most_open: int = MOST_OPEN
    _open: deque[tuple[str, Submission]] = field(default_factory=deque)
    _done: int = 0
    _any_sent: bool = False
    _all_sent: bool = False

    def run(self, submissions: Iterable[Submission]) -> None:
        from app.client import ClientError, Unreachable

        try:
            for submission in submissions:
                self._send(submission)
            self._all_sent = True
            while self._open:
                self._follow_first()
        except (KeyboardInterrupt, ClientError, Unreachable, CommandFailed) as error:
            is_stopped = isinstance(error, KeyboardInterrupt)
            if is_stopped or self._any_sent or isinstance(error, Unreachable):
                self._tell_open(is_stopped=is_stopped)
            raise

    def _send(self, submission: Submission) -> None:
        from app.client import ClientError

        try:
            job = submission.send(self.client)
        except ClientError as error:
            if error.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            halves = submission.halves()
            for half in halves:
                self._send(half)
            if not halves:
                told = submission.too_large()
                if told is None:
                    raise
                self._end(submission, told)
            return
        self._any_sent = True
        if job is None or not self.waits:
            self._end(submission, submission.reports(job))
            return
        self._open.append((job["id"], submission))
        if len(self._open) == self.most_open:
            self._follow_first()

    def _follow_first(self) -> None:
        job_id, submission = self._open[0]
        pause_s = FIRST_WAIT_S
        while (job := look(self.client, job_id, self._tell_trouble))["status"] in OPEN:
            told = job.get("progress") or {}
            share = told.get("done", 0) / (told.get("total") or 1)
            self.progress(self._done + share * submission.size, submission.stage(job))
            time.sleep(pause_s)
            pause_s = min(LONGEST_WAIT_S, pause_s * 1.5)
        self._open.popleft()
        self._end(submission, submission.reports(job))

    def _tell_trouble(self) -> None:
        self.progress(self._done, "the service does not answer; trying again")

    def _end(self, submission: Submission, reports: Sequence[Report]) -> None:
        self._done += submission.size
        for report in reports:
            self.emit(report)

    def _tell_open(self, *, is_stopped: bool) -> None:
        if is_stopped:
            note("Stopped.")
        if self._open:
            note(f"The service goes on with {counted(len(self._open), 'job')}:")
            for job_id, _ in self._open:
                note(f"  mem jobs wait {job_id}")
            note("End one:  mem jobs cancel ID.")
        if not self._all_sent:
            note("The rest was not sent. Do it again later: what is stored by then costs little.")


def look(client: "Client", job_id: str, tell_trouble: Callable[[], None]) -> "Body":
    """A job as it is; a service that is busy, or away for less than PATIENCE_S, is asked again."""
    from app.client import ClientError, Unreachable

    give_up_at = None
    while True:
        try:
            return client.show_ingest(job_id)
        except Unreachable as error:
            failure: Exception = error
            pause_s: float | None = TRY_AGAIN_S
        except ClientError as error:
            failure = error
            pause_s = error.retry_after_s
        give_up_at = give_up_at or time.monotonic() + PATIENCE_S
        if pause_s is None or time.monotonic() + pause_s > give_up_at:
            raise failure
        tell_trouble()
        time.sleep(pause_s)


@contextmanager
def progress_display(total: int, noun: str = "file") -> Iterator[Told]:
    """A bar on a terminal, a line now and then elsewhere; stderr both."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _Lines(total, noun)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn(f"{noun}s  {{task.description}}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def told(done: float, stage: str) -> None:
            bar.update(task, completed=done, description=plain(stage).replace("[", r"\["))

        yield told


class _Lines:
    """A line when something has changed, less and less often."""

    def __init__(self, total: int, noun: str) -> None:
        self._total = counted(total, noun)
        self._pause_s = PLAIN_LINE_S
        self._next_at = time.monotonic() + self._pause_s
        self._told: str | None = None

    def __call__(self, done: float, stage: str) -> None:
        line = f"{int(done)} of {self._total}; {plain(stage)}"
        if line == self._told or time.monotonic() < self._next_at:
            return
        self._pause_s = min(LONGEST_PLAIN_LINE_S, self._pause_s * 1.2)
        self._next_at = time.monotonic() + self._pause_s
        self._told = line
        note(line)
