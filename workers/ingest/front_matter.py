"""The YAML at the head of a markdown file, with the meaning of YAML 1.2 and bounds on its size.

YAML 1.2 knows no `yes`, `on`, `1:30` or dates: they stay the text they are. It is built from the
parser's events, so that neither nesting nor aliases can cost more than what is allowed.
"""

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from workers.ingest.decoding import storable

MOST_BYTES = 65_536
MOST_VALUES = 10_000  # aliases counted as often as they are used
DEEPEST = 32

_OPENING = re.compile(r"---[ \t]*\n")
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)*")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE)
_ENTRY = re.compile(r"^[^\s#\-\[\]{}:][^\n:]*:(?=[ \t\n]|\Z)", re.MULTILINE)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE, _FALSE = frozenset(("true", "True", "TRUE")), frozenset(("false", "False", "FALSE"))
_NUMBER = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[-+]?\d{1,18}", re.ASCII)  # longer ones are names more than numbers
_BASED = re.compile(r"0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15}")


class _Plain(str):
    """A scalar without quotes, whose meaning is not yet decided."""

    __slots__ = ()


class _Broken(Exception):
    """It is not YAML, or more of it than is read. `line` counts from 1 in the file."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"front matter, line {line}: {problem}")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What stands before the body. Positions are in characters.

    end: where it ends; 0 without front matter.
    body: where headings may begin. A second block of the kind lies before it, and is text.
    is_text: it was broken, so it is kept as text too.
    """

    end: int = 0
    body: int = 0
    is_text: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_front_matter(text: str) -> FrontMatter:
    """The front matter of a text, if it begins with some. Never fails."""
    first = _read_block(text, 0)
    if not first.end:
        return first
    blanks = _BLANK_LINES.match(text, first.end)
    second = _read_block(text, blanks.end() if blanks else first.end)
    return replace(first, body=second.end or first.end)


def _read_block(text: str, start: int) -> FrontMatter:
    opening = _OPENING.match(text, start)
    if opening is None:
        return FrontMatter()
    # As no text is longer in characters than in bytes, the slice holds all that could be allowed.
    closing = _CLOSING.search(text, opening.end(), opening.end() + MOST_BYTES)
    if closing is None:
        if _begins_like_entries(text[opening.end() : opening.end() + MOST_BYTES]):
            said = f"no closing --- within {MOST_BYTES} bytes: read as text"
            return FrontMatter(notes=(f"front matter: {said}",))
        return FrontMatter()
    block = text[opening.end() : closing.start()]
    try:
        mapping = _mapping(block, line=2)
    except _Broken as error:
        if not _begins_like_entries(block):
            return FrontMatter()
        mapping = _entry_by_entry(block)
        notes = (f"{error}; kept as text, its entries read one by one",)
        return _found(closing.end(), mapping, notes)
    if mapping is None:  # two rules with some text between them
        return FrontMatter()
    return _found(closing.end(), mapping)


def _found(end: int, mapping: dict[str, Any], notes: tuple[str, ...] = ()) -> FrontMatter:
    """notes: what is broken, if anything is."""
    return FrontMatter(end, end, bool(notes), _values(mapping), _tags(mapping), notes)


def _begins_like_entries(block: str) -> bool:
    lines = (line for line in block.split("\n") if line.strip() and not line.startswith("#"))
    return _ENTRY.match(next(lines, "")) is not None


def _entry_by_entry(block: str) -> dict[str, Any]:
    """What can be read of a broken block, its entries taken one by one."""
    starts = [found.start() for found in _ENTRY.finditer(block)]
    mapping: dict[str, Any] = {}
    for start, end in zip(starts, [*starts[1:], len(block)], strict=True):
        entry = block[start:end]
        try:
            mapping |= _mapping(entry, line=2) or {}
        except _Broken:
            key, _, value = entry.partition(":")
            if "\n" not in entry.strip():
                mapping.setdefault(key.strip(), value.strip())
    return mapping


def _mapping(block: str, line: int) -> dict[str, Any] | None:
    """The mapping that a block is; empty for an empty one, None if it is something else.

    Raises:
        _Broken: it cannot be read.
    """
    if len(block.encode()) > MOST_BYTES:
        raise _Broken(line, f"longer than {MOST_BYTES} bytes")
    try:
        value = _Builder(line).build(block)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = line + mark.line if mark else line
        raise _Broken(where, error.problem or "not YAML") from error
    except yaml.YAMLError as error:
        raise _Broken(line, "holds characters that YAML does not have") from error
    if isinstance(value, _Plain) and value in _NULL:
        return {}
    return value if isinstance(value, dict) else None


class _Builder:
    """Builds a value from the events of one YAML document, scalars as they are written."""

    def __init__(self, line: int) -> None:
        self._line = line
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0

    def build(self, block: str) -> Any:
        open_: list[tuple[Any, str | None, list[Any], int]] = []  # event, anchor, items, count
        root: list[Any] = []
        for event in yaml.parse(block, Loader=_LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                if len(open_) >= DEEPEST:
                    raise self._broken(event, f"nested more than {DEEPEST} levels deep")
                open_.append((event, event.anchor, [], self._count))
                self._add(event, 1)
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                start, anchor, items, before = open_.pop()
                is_mapping = isinstance(start, yaml.MappingStartEvent)
                value: Any = self._dict(start, items) if is_mapping else items
                count = self._count - before
            elif isinstance(event, yaml.ScalarEvent):
                anchor, count = event.anchor, 1
                value = self._scalar(event)
                self._add(event, 1)
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in self._anchors:
                    raise self._broken(event, "an alias of something that is not there")
                anchor = None
                value, count = self._anchors[event.anchor]
                self._add(event, count)
            elif isinstance(event, yaml.DocumentStartEvent) and root:
                raise self._broken(event, "a second document")
            else:
                continue
            if anchor is not None:
                self._anchors[anchor] = value, count
            (open_[-1][2] if open_ else root).append(value)
        return root[0] if root else _Plain("")

    def _add(self, event: yaml.Event, count: int) -> None:
        self._count += count
        if self._count > MOST_VALUES:
            raise self._broken(event, f"more than {MOST_VALUES} values")

    def _scalar(self, event: yaml.ScalarEvent) -> str:
        text, _ = storable(event.value)  # an escape may stand for U+0000
        return _Plain(text) if event.implicit[0] and not event.tag else text

    def _dict(self, start: yaml.Event, items: list[Any]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                raise self._broken(start, "a key that is not text")
            if str(key) in mapping:
                raise self._broken(start, f"the key {str(key)[:40]!r} twice")
            mapping[str(key)] = value
        return mapping

    def _broken(self, event: yaml.Event, problem: str) -> _Broken:
        mark = event.start_mark
        return _Broken(self._line + (mark.line if mark else 0), problem)


def _values(value: Any) -> Any:
    """A value as JSON, by the core schema of YAML 1.2."""
    if isinstance(value, dict):
        return {key: _values(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_values(inner) for inner in value]
    return _meaning(value) if isinstance(value, _Plain) else value


def _meaning(plain: _Plain) -> str | int | float | bool | None:
    text = str(plain)
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _NUMBER.fullmatch(text) and not text.lstrip("+-").isdigit():
        number = float(text)
        return number if math.isfinite(number) else text
    return text  # also .inf and .nan, which JSON does not have


def _tags(mapping: dict[str, Any]) -> tuple[str, ...]:
    """The tags as they are written, so that 1.10 and 007 stay what they are."""
    found: list[str] = []
    for key in ("tags", "tag"):
        value = mapping.get(key)
        if isinstance(value, list):
            found += [str(tag) for tag in value if isinstance(tag, str)]
        elif isinstance(value, str):
            found += value.split("," if "," in value else None)
    tags = (tag.strip().removeprefix("#") for tag in found if tag not in _NULL)
    return tuple(dict.fromkeys(tag for tag in tags if tag))
