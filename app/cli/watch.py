"""Following a job to its end, and showing meanwhile how far it is."""

import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from app.cli.failures import plain
from app.cli.render import counted, ref, score
from app.cli.shell import note

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from app.client import Body, Client

Item = Mapping[str, Any]

LOOK_S = 20.0  # one look waits this long for news
PACE_S = 0.2  # from one look to the next, however fast news comes
NO_NEWS_S = 1.0  # the same, when there was none and the service did not wait for it
TRY_AGAIN_S = 1.0
PATIENCE_S = 30.0  # with a service that went away
PLAIN_LINE_S = 2.0  # without a terminal, progress is told at most this often

ROWS = 8  # projects shown at once
OTHER_LINES = 7  # of the display, with one to spare
NAME_LENGTH, BAR_LENGTH = 40, 30
STYLES = {"successful": "green", "partial": "yellow", "running": ""}
WORST_FIRST = ("failed", "timed_out", "cancelled", "skipped", "partial", "running", "successful")


class Display(Protocol):
    """What shows a job while it runs."""

    def show(self, job: Item) -> None:
        """This is how far it is now."""

    def tell_trouble(self, reason: str) -> None:
        """How far it is cannot be seen at the moment; it will be tried again."""


def follow(client: "Client", job: "Body", display: Display, timeout_s: float | None) -> "Body":
    """The job as it ended, or as it is when the time is over.

    A service that is busy, or goes away for less than PATIENCE_S, is asked again.
    """
    ends_at = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while job["is_running"]:
        display.show(job)
        if time.monotonic() >= ends_at:
            break
        job = _next_look(client, job, display, ends_at)
    return job


def _next_look(client: "Client", job: "Body", display: Display, ends_at: float) -> "Body":
    began_at = time.monotonic()
    left_s = max(0.0, ends_at - began_at)
    if left_s < 1:  # the service waits for whole seconds
        time.sleep(left_s)
    found = _look_patiently(client, job, int(min(left_s, LOOK_S)), display, ends_at)
    if found["is_running"]:
        pace_s = PACE_S if found["revision"] != job["revision"] else _no_news_s(found)
        now = time.monotonic()
        time.sleep(max(0.0, min(began_at + pace_s, ends_at) - now))
    return found


def _no_news_s(job: "Body") -> float:
    poll_after_ms: float | None = job.get("poll_after_ms")
    return NO_NEWS_S if poll_after_ms is None else poll_after_ms / 1000


def _look_patiently(
    client: "Client", job: "Body", wait_seconds: int, display: Display, ends_at: float
) -> "Body":
    from app.client import ClientError, Unreachable

    give_up_at = None
    while True:
        try:
            return client.show_job(job["id"], wait_seconds=wait_seconds, since=job["revision"])
        except Unreachable as error:
            failure: Exception = error
            pause_s: float | None = TRY_AGAIN_S
            reason = f"the service {error.reason}"
        except ClientError as error:
            failure = error
            pause_s = error.retry_after_s
            reason = "the service is busy"
        give_up_at = give_up_at or min(time.monotonic() + PATIENCE_S, ends_at)
        if pause_s is None or time.monotonic() + pause_s > give_up_at:
            raise failure
        display.tell_trouble(reason)
        time.sleep(pause_s)
        wait_seconds = 0  # first see whether it is there again


@contextmanager
def progress_display() -> Iterator[Display]:
    """A picture on a terminal, a line now and then elsewhere; stderr both."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield Lines()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    picture = Picture(console)
    with Live(get_renderable=picture.draw, console=console, transient=True, redirect_stdout=False):
        yield picture


class Lines:
    """A line when something has changed."""

    def __init__(self) -> None:
        self._next_at = time.monotonic() + PLAIN_LINE_S
        self._told: str | None = None
        self._is_troubled = False

    def show(self, job: Item) -> None:
        self._is_troubled = False
        line = f"{job['id']}: {plain(job['status'])}, {_summary(job)}"
        if line == self._told or time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + PLAIN_LINE_S
        self._told = line
        note(line)

    def tell_trouble(self, reason: str) -> None:
        if not self._is_troubled:
            note(f"{reason}; trying again")
        self._is_troubled = True


def _summary(job: Item) -> str:
    return f"{projects_done(job)}, {counted(len(job['results']), 'hit')}"


def projects_done(job: Item) -> str:
    """`3 of 10 projects`."""
    progress = job["progress"]
    return f"{progress['done']} of {counted(progress['total'], 'project')}"


class Picture:
    """The state of a job in a few lines, of which there are never more than the terminal has."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._job: Item | None = None
        self._shown_at = 0.0
        self._trouble: str | None = None

    def show(self, job: Item) -> None:
        self._shown_at, self._trouble = time.monotonic(), None
        self._job = job

    def tell_trouble(self, reason: str) -> None:
        self._trouble = reason

    def draw(self) -> "RenderableType":
        """The picture as it is now; its clock runs on between two looks."""
        from rich.console import Group

        job = self._job
        if job is None:
            return Group()
        parts = sorted(job["federation"]["projects"], key=_by_need)
        rows = max(0, min(ROWS, self._console.size.height - OTHER_LINES))
        lines = [_line(self._state(job)), _line(plain(job["query"])), self._bar(job)]
        shown = parts[:rows]
        name_length = min(NAME_LENGTH, self._console.size.width // 2, _longest_name(shown))
        lines += [_part_line(part, name_length) for part in shown]
        if len(parts) > rows:
            lines.append(_line(f"  and {len(parts) - rows} more"))
        lines += [_line(f"best  {_best(job)}")] if job["results"] else []
        hint = "Ctrl-C stops watching, the job goes on"
        lines.append(_line(f"{self._trouble}; trying again" if self._trouble else hint))
        return Group(*lines)

    def _state(self, job: Item) -> str:
        elapsed_s = (job["latency_ms"] or 0) / 1000 + time.monotonic() - self._shown_at
        return (
            f"{job['id']}  {plain(job['status'])}  {elapsed_s:.1f} s of {timeout_s(job)} s"
            f"  {counted(len(job['results']), 'hit')}"
        )

    def _bar(self, job: Item) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        progress, federation = job["progress"], job["federation"]
        width = min(BAR_LENGTH, self._console.size.width // 3)
        others = [status for status in WORST_FIRST[:-1] if federation.get(status)]
        counts = ", ".join(f"{federation[status]} {_words(status)}" for status in others)
        bar = ProgressBar(progress["total"] or None, progress["done"], width)
        grid = Table.grid(padding=(0, 2))
        grid.add_row(bar, _line(f"{projects_done(job)}  {counts}"))
        return grid


def timeout_s(job: Item) -> int:
    """How long a job may take; both instants are the service's, whose clock may not be ours."""
    from datetime import datetime

    deadline, submitted = (
        datetime.fromisoformat(job[name]) for name in ("deadline_at", "submitted_at")
    )
    return round((deadline - submitted).total_seconds())


def _by_need(part: Item) -> int:
    """What somebody may have to act upon comes first, what is done comes last."""
    status = part["status"]
    return WORST_FIRST.index(status) if status in WORST_FIRST else 0


def _longest_name(parts: Sequence[Item]) -> int:
    return max((len(plain(part["project"])) for part in parts), default=0)


def _part_line(part: Item, name_length: int) -> "Text":
    name, status = plain(part["project"]), part["status"]
    took_ms = None if status == "running" else part.get("took_ms")
    told = [] if took_ms is None else [f"{took_ms:,.0f} ms"]
    told += [plain(part["reason"])] if part.get("reason") else []
    line = _line(f"  {name[:name_length]:<{name_length}}  ")
    line.append(f"{_words(status):<10}", STYLES.get(status, "red"))
    line.append(f"  {'  '.join(told)}")
    return line


def _best(job: Item) -> str:
    hit = job["results"][0]
    name = plain(hit.get("standing_id") or hit.get("section") or hit.get("source") or "")
    return f"{score(hit.get('rerank_score'))}  {ref(hit['project'], hit['sha256'])}  {name}"


def _words(status: str) -> str:
    return plain(status).replace("_", " ")


def _line(text: str) -> "Text":
    from rich.text import Text

    return Text(text, no_wrap=True, overflow="crop")
