"""Files of JSON lines in whatever state they are: one object at a time, and an account of the rest.

A file may still be growing, may have been cut by a crash, and may be hostile. Memory is bounded by
the file plus about twelve times its longest line; time is linear in the file's size.
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from workers.ingest.decoding import without_halves
from workers.ingest.parsed import Alive, Parsed, Session, Skipped, Unreadable, unheard
from workers.nesting import is_nested_beyond

Record = dict[str, Any]

LONGEST_LINE = 64 * 2**20
"""Bytes of a line that is read at all."""
DEEPEST_LINE = 200
"""Levels of a line: well below what ends the interpreter, wherever it is called from."""
MOST_VALUES = 1_000_000
"""Values in one line: an empty list costs thirty times its two bytes."""
MOST_LISTED = 1_000
"""Skipped lines that are named one by one; the others are counted."""
MOST_KINDS = 200
"""Kinds of ignored lines that are told apart; a hostile file names one per line."""
_NAMED_LINES = 5
HALVES = "halves of surrogate pairs read as U+FFFD"

# Nothing that an agent said lies outside of these: such a time was never set, or has another unit.
_FIRST, _LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_BLANK = b" \t\r\f\v"
_HALF = re.compile("[\ud800-\udfff]")  # what json makes of an escape without its other half
_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark begins it
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# json writes NaN, which JSON does not have, and PostgreSQL refuses.
DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def in_utf8(data: bytes) -> tuple[bytes, str | None]:
    """The same text in UTF-8, and the encoding it was in if its byte order mark names another."""
    for mark, encoding in _WIDE:
        if data.startswith(mark):
            return data.decode(encoding, "replace").encode(), encoding.upper()
    return data.removeprefix(codecs.BOM_UTF8), None


def instant(value: object) -> datetime | None:
    """A moment as session files write it, in UTC; None if it is none, or not of 2000 to 2099.

    Text is ISO 8601, without a zone in UTC. A number counts seconds, milliseconds, microseconds or
    nanoseconds since 1970: whichever falls into these years.
    """
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and 9 <= len(value) <= 20:
            return instant(int(value))
        try:
            at = datetime.fromisoformat(value)
            at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            return None
        return at if _FIRST <= at < _LAST else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    first, last = _FIRST.timestamp(), _LAST.timestamp()
    for unit in (1, 1_000, 1_000_000, 1_000_000_000):
        if first * unit <= value < last * unit:
            return _EPOCH + timedelta(microseconds=int(value * 1_000_000 // unit))
    return None


@dataclass(slots=True)
class _Tally:
    count: int = 0
    lines: list[int] = field(default_factory=list)  # the first ones

    def add(self, line: int, count: int) -> None:
        self.count += count
        if len(self.lines) < _NAMED_LINES and line not in self.lines:
            self.lines.append(line)


class JsonLines:
    """The objects of a file of JSON lines, and what was not read, or otherwise than written.

    Iterating gives each object with the number of its line, from 1. Its strings can all be stored:
    U+0000 is removed and half surrogate pairs are U+FFFD.
    """

    def __init__(self, data: bytes, alive: Alive = unheard) -> None:
        self.alive = alive
        self.data, encoding = in_utf8(data)
        self._tallies: dict[str, _Tally] = {}
        self._skipped: list[Skipped] = []
        self._unlisted = 0
        self._foreign = 0  # lines that are no JSON object, undamaged as far as one can see
        self._ignored: Counter[str] = Counter()
        self._has_open_end = False
        self._notes = [f"read as {encoding}"] if encoding else []

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        data, start, number = self.data, 0, 0
        while start < len(data):
            number += 1
            self.alive()
            end = data.find(b"\n", start)
            is_closed = end >= 0
            record = self._read(number, start, end if is_closed else len(data), is_closed)
            if record is not None:
                yield number, record
            if not is_closed:
                return
            start = end + 1

    @property
    def is_empty(self) -> bool:
        """Whether no whole line was met so far but blank, damaged and oversized ones."""
        return not self._foreign

    def skip(self, line: int, reason: str) -> None:
        """Say that a line was not taken, and why."""
        if len(self._skipped) < MOST_LISTED:
            self._skipped.append(Skipped(line, reason))
        else:
            self._unlisted += 1

    def ignore(self, kind: str) -> None:
        """Count something that holds no memory."""
        kind = kind[:60]
        is_known = kind in self._ignored or len(self._ignored) < MOST_KINDS
        self._ignored[kind if is_known else "other kinds"] += 1

    def note(self, what: str, line: int, count: int = 1) -> None:
        """Count what was read otherwise than written."""
        self._tallies.setdefault(what, _Tally()).add(line, count)

    def open_end(self) -> None:
        """Say that the end of the file is still being written."""
        self._has_open_end = True

    def checked(self, line: int, text: str, value: Any) -> Any:
        """A value read from this text, so that all its strings can be stored.

        Raises:
            RecursionError: it is nested too deep to be handled anywhere.
        """
        if text.count("[") + text.count("{") > DEEPEST_LINE and is_nested_beyond(
            value, DEEPEST_LINE
        ):
            raise RecursionError
        if "\\u0000" in text or "\\ud" in text or "\\uD" in text:
            return self._storable(value, line)
        return value

    def object_in(self, line: int, text: str) -> Record | None:
        """The object of a text that holds JSON; None if it holds none."""
        if not text.lstrip().startswith("{"):
            return None
        try:
            value = self.checked(line, text, DECODER.decode(text))
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def parsed(
        self, format_name: str, wanted: str, sessions: tuple[Session, ...], is_known: bool
    ) -> Parsed:
        """What came of the file.

        `is_known` says whether a single object was of the format; `wanted` names it in a refusal.
        """
        if not is_known and self._foreign:
            raise Unreadable(f"holds no {wanted}")
        return Parsed(
            format=format_name,
            sessions=sessions,
            skipped=tuple(self._skipped),
            unlisted=self._unlisted,
            ignored=dict(self._ignored),
            notes=(*self._notes, *map(_told, self._tallies.items())),
            has_open_end=self._has_open_end,
        )

    def _read(self, number: int, start: int, end: int, is_closed: bool) -> Record | None:
        if end - start > LONGEST_LINE:
            self._refuse(number, f"is longer than {LONGEST_LINE >> 20} MiB", is_closed)
            return None
        line = self.data[start:end].strip(_BLANK).removeprefix(codecs.BOM_UTF8)
        if not line:
            return None
        if line[0] == 0 or line[-1] == 0:
            bare = line.strip(_BLANK + b"\0")
            if not bare:
                self._refuse(number, "holds only NUL bytes", is_closed)
                return None
            self.note("NUL bytes beside a line passed over", number, line.count(0))
            line = bare
        try:
            return self._object(number, line, is_closed)
        except RecursionError:
            reason = f"is nested more than {DEEPEST_LINE} levels deep"
        except MemoryError:
            reason = "needs more memory than there is"
        self._refuse(number, reason, is_closed)
        return None

    def _object(self, number: int, line: bytes, is_closed: bool) -> Record | None:
        if not line.startswith(b"{"):
            self._foreign += is_closed
            self._refuse(number, "is not a JSON object", is_closed)
            return None
        if len(line) > 2 * MOST_VALUES and most_values(line) > MOST_VALUES:
            self._refuse(number, f"holds more than {MOST_VALUES:,} values", is_closed)
            return None
        line, halves = without_halves(line)
        try:
            text, has_foreign_bytes = line.decode(), False
        except UnicodeDecodeError:
            text, has_foreign_bytes = line.decode(errors="replace"), True
        try:
            value = DECODER.decode(text)
        except ValueError:
            self._foreign += is_closed
            self._refuse(number, "is not JSON", is_closed)
            return None
        self._foreign += 1
        if halves:
            self.note(HALVES, number, halves)
        if has_foreign_bytes:
            self.note("lines with bytes that are not UTF-8, read as U+FFFD", number)
        record: Record = self.checked(number, text, value)
        return record

    def _refuse(self, number: int, reason: str, is_closed: bool) -> None:
        # What has no line end is still being written: half of it says nothing yet.
        if is_closed:
            self.skip(number, reason)
        else:
            self._has_open_end = True

    def _storable(self, value: Any, number: int) -> Any:
        if isinstance(value, str):
            nuls = value.count("\0")
            if nuls:
                self.note("U+0000 removed, which PostgreSQL cannot store", number, nuls)
                value = value.replace("\0", "")
            value, halves = _HALF.subn("\ufffd", value)
            if halves:
                self.note(HALVES, number, halves)
            return value
        if isinstance(value, list):
            return [self._storable(item, number) for item in value]
        if isinstance(value, dict):
            return {
                self._storable(name, number): self._storable(item, number)
                for name, item in value.items()
            }
        return value


def most_values(line: bytes) -> int:
    """How many values a text of JSON may hold, found without making them."""
    bare = line.replace(rb"\\", b"").replace(rb"\"", b"")
    strings = bare.count(b'"') // 2
    if strings > MOST_VALUES:
        return strings
    outside = b"".join(bare.split(b'"')[::2])
    return strings + sum(outside.count(mark) for mark in (b",", b"[", b"{"))


def _told(item: tuple[str, _Tally]) -> str:
    what, tally = item
    named = ", ".join(f"{line:,}" for line in tally.lines)
    return f"{what}: {tally.count:,} (first in line{'s' if len(tally.lines) > 1 else ''} {named})"


def text_of(record: Mapping[str, Any], name: str) -> str | None:
    """A member that is text and not blank."""
    value = record.get(name)
    return value if isinstance(value, str) and value.strip() else None


def object_of(record: Mapping[str, Any], name: str) -> Record:
    """A member that is an object, or an empty one."""
    value = record.get(name)
    return value if isinstance(value, dict) else {}
