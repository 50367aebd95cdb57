"""Codex's first session files: one JSON document, in as many lines as it likes.

It is read from its beginning, so that what was cut or damaged costs only what follows.
"""

import re
from collections.abc import Iterator
from json import JSONDecodeError

from workers.ingest.decoding import without_halves
from workers.ingest.lines import (
    DECODER,
    HALVES,
    LONGEST_LINE,
    MOST_VALUES,
    JsonLines,
    Record,
    most_values,
)
from workers.ingest.parsed import Unreadable

_OPENING = re.compile(rb'\s*\{\s*"(?:session|items)"\s*:')
_LONGEST_WORD = len("\\ud83d\\ude00")
_GAP = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")


def opens_document(data: bytes) -> bool:
    """Whether a document begins here, and not a line."""
    return _OPENING.match(data) is not None


def items_of(lines: JsonLines) -> Iterator[tuple[int, int, Record]]:
    """What is said of the session, then its items, each with its first and last line.

    Raises:
        Unreadable: the document is longer, or holds more, than what is read in one piece.
    """
    if len(lines.data) > LONGEST_LINE:
        raise Unreadable(f"is one JSON document longer than {LONGEST_LINE >> 20} MiB")
    if most_values(lines.data) > MOST_VALUES:
        raise Unreadable(f"is one JSON document of more than {MOST_VALUES:,} values")
    walk = _Walk(lines)
    try:
        yield from walk.members()
    except IndexError:
        lines.open_end()
    except JSONDecodeError as error:
        if _is_cut(error):
            lines.open_end()
        else:
            lines.skip(walk.line, "is not JSON, nor is what follows it read")
    except ValueError:
        lines.skip(walk.line, "holds a number without end, and what follows it is not read")
    except RecursionError:
        lines.skip(walk.line, "is nested too deep, and what follows it is not read")


class _Walk:
    def __init__(self, lines: JsonLines) -> None:
        self.line = 1
        self._lines = lines
        data, halves = without_halves(lines.data)
        if halves:
            lines.note(HALVES, self.line, halves)
        self._text = data.decode(errors="replace")
        self._at = 0
        self._counted = 0  # up to here, line ends are in `line`

    def members(self) -> Iterator[tuple[int, int, Record]]:
        self._at = self._text.index("{") + 1
        while self._next() != "}":
            name, _, _ = self._value()
            colon = _COLON.match(self._text, self._at)
            if colon is None:
                raise JSONDecodeError("Expecting ':'", self._text, self._at)
            self._at = colon.end()
            if name == "items" and self._next() == "[":
                yield from self._items()
                continue
            value, first, last = self._value()
            if name == "session" and isinstance(value, dict):
                yield first, last, {**value, "id": value.get("id")}

    def _items(self) -> Iterator[tuple[int, int, Record]]:
        self._at += 1
        while self._next() != "]":
            value, first, last = self._value()
            if isinstance(value, dict):
                yield first, last, value
            else:
                self._lines.skip(first, "is not a JSON object")
        self._at += 1

    def _next(self) -> str:
        gap = _GAP.match(self._text, self._at)
        self._at = gap.end() if gap else self._at
        return self._text[self._at]

    def _value(self) -> tuple[object, int, int]:
        self._lines.alive()
        first = self._count(self._at)
        value, end = DECODER.raw_decode(self._text, self._at)
        value = self._lines.checked(first, self._text[self._at : end], value)
        self._at = end
        return value, first, self._count(end)

    def _count(self, at: int) -> int:
        self.line += self._text.count("\n", self._counted, at)
        self._counted = at
        return self.line


def _is_cut(error: JSONDecodeError) -> bool:
    """Whether it is the end that is missing: of a text, a word or an escape at the latest."""
    missing = len(error.doc.rstrip()) - error.pos
    return error.msg.startswith("Unterminated") or missing < _LONGEST_WORD
