"""What became of one submitted file."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from workers.deadline import Clock

REFUSALS_SHOWN = 1000

Beat = Callable[[str], None]
"""Says what is being done, and that the work goes on; raises once it is no longer wanted."""

READING_BEAT_S = 5.0


def now_and_then(beat: Beat, stage: str, clock: Clock = time.monotonic) -> Callable[[], None]:
    """A sign of life that can be given at every line: only one now and then is passed on."""
    next_at = clock() + READING_BEAT_S

    def alive() -> None:
        nonlocal next_at
        if clock() >= next_at:
            beat(stage)
            next_at = clock() + READING_BEAT_S

    return alive


@dataclass(slots=True)
class Report:
    """What became of one file."""

    name: str
    format: str | None = None
    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    unlisted: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()
    has_open_end: bool = False
    sources: list[dict[str, str]] = field(default_factory=list)
    reason: str | None = None

    def skip(self, line: int, reason: str) -> None:
        if len(self.skipped) < REFUSALS_SHOWN:
            self.skipped.append({"line": line, "reason": reason})
        else:
            self.unlisted += 1

    @property
    def status(self) -> str:
        if self.reason is not None:
            return "failed"
        return "partial" if self.skipped else "completed"

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "reason": self.reason,
            "format": self.format,
            **{name: self.counts[name] for name in _COUNTED},
            "skipped": self.skipped,
            "skipped_count": len(self.skipped) + self.unlisted,
            "ignored": dict(self.ignored),
            "redacted": dict(self.masked),
            "notes": list(self.notes),
            "has_open_end": self.has_open_end,
            "sources": self.sources,
        }


_COUNTED = ("received", "stored", "updated", "unchanged", "removed")
