"""Progress of long work on the database: a bar on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.cli.shell import note

PLAIN_LINE_S = 2.0  # without a terminal, progress is told at most this often

Told = Callable[[int, int], None]
"""Says how many of how many are done."""


@contextmanager
def interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        note("Stopped; nothing is lost. The same command goes on where it was.")
        raise


@contextmanager
def progress(name: str) -> Iterator[Told]:
    """A bar on a terminal, a line now and then elsewhere; stderr both."""
    if not sys.stderr.isatty():
        yield _plain_progress(name)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plain_progress(name: str) -> Told:
    next_at = float("-inf")

    def told(done: int, total: int) -> None:
        nonlocal next_at
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + PLAIN_LINE_S
            note(f"{name}: {done:,} of {total:,} nodes ({done / max(1, total):.0%})")

    return told
