"""Cutting texts into chunks that an embedder reads whole, at the places where a reader would.

A chunk ends before a block, else a line, a sentence, a word; inside of a word only where one is
longer than a chunk. Code fences and tables stay whole if they fit. Chunks touch: their texts, one
after the other, are the text they were cut from. Every part of a text is counted a few times, so
that the time is linear in its length.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from workers.ingest.blocks import Blocks, read_blocks
from workers.ingest.clipping import cluster_starts
from workers.ingest.parsed import Alive, Document, Section, Span, unheard

Count = Callable[[str], int]
"""How many tokens of a text an embedder reads, those it adds itself included."""

# Some tokenizers take a word of any length for one token, and none counts blanks.
CHARACTERS_PER_TOKEN = 16
LEAST_TOKENS = 16  # a limit below it leaves no room for a single cluster
_FULL = 0.85  # of the limit: near enough
_EARLY = 0.5  # of the room: a better place to cut is not taken before it

_TOKEN_LIKE = re.compile(r"([A-Za-z]+)|([0-9]+)|[^\sA-Za-z0-9]")
_BLANKS = re.compile(r"\s*")
_LINE = re.compile(r"\n(?=[^\n])")
_SENTENCE = re.compile(r"[.!?…][\"'”’)\]]*\s+(?=\S)|[。！？][」』”’）]*")
_WORD = re.compile(r"\s(?=\S)")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a text that is stored and found by itself.

    `text` without the blanks at its ends is within the limit. It is the bytes of `span`.
    """

    text: str
    span: Span  # bytes of the text it was cut from, in UTF-8
    position: int  # 0, 1, ... in that text
    breadcrumb: tuple[str, ...] = ()
    section: str | None = None  # its heading
    anchor: str = ""
    is_part: bool = False  # of a code fence or table that did not fit


def estimated_tokens(text: str) -> int:
    """A `Count` where the tokenizer is not known: rather too many than too few.

    Four letters or two digits of ASCII a token, and one for every other character; two are added
    by the embedder. Hexadecimal numbers and Chinese have several times the tokens of English.
    """
    tokens = 2
    for letters, digits in _TOKEN_LIKE.findall(text):
        tokens += (len(letters) + 3) // 4 or (len(digits) + 1) // 2 or 1
    return tokens


def chunk_text(text: str, count: Count, most: int, alive: Alive = unheard) -> tuple[Chunk, ...]:
    """The chunks of a text of its own, such as a turn. Blank text has none.

    Raises:
        ValueError: `most` leaves no room.
    """
    section = Section(None, 0, (), "", text, Span("bytes", 0, 0))
    return _chunks([(section, text)], 0, _Cutter(count, most, alive))


def chunk_document(
    document: Document, count: Count, most: int, alive: Alive = unheard
) -> tuple[Chunk, ...]:
    """The chunks of a document's sections, none of which crosses a section that has a text.

    A section of a heading only is joined to the next one, at the end to the one before.

    Raises:
        ValueError: `most` leaves no room.
    """
    groups = _with_text(document.sections)
    offset = document.sections[0].span.start if groups else 0
    return _chunks(groups, offset, _Cutter(count, most, alive))


def _with_text(sections: Sequence[Section]) -> list[tuple[Section, str]]:
    """Each section that says something, with the text of those before it that do not."""
    groups: list[tuple[Section, str]] = []
    waiting: list[Section] = []
    for section in sections:
        waiting.append(section)
        if not _is_heading_only(section):
            groups.append((section, "".join(each.text for each in waiting)))
            waiting = []
    if waiting and groups:
        last, text = groups[-1]
        groups[-1] = last, text + "".join(each.text for each in waiting)
    elif waiting:
        named = next((each for each in waiting if each.text.strip()), waiting[0])
        groups.append((named, "".join(each.text for each in waiting)))
    return groups


def _is_heading_only(section: Section) -> bool:
    text = section.text.strip()
    if section.heading is None or not text:
        return not text
    if text.startswith("#"):
        return "\n" not in text
    return len(read_blocks(text).starts) == 1  # underlined


def _chunks(
    groups: Sequence[tuple[Section, str]], offset: int, cutter: "_Cutter"
) -> tuple[Chunk, ...]:
    found: list[Chunk] = []
    for section, text in groups:
        for start, end, is_part in cutter.cut(text):
            own = text[start:end]
            size = len(own.encode())
            span = Span("bytes", offset, offset + size - 1)
            offset += size
            found.append(
                Chunk(
                    text=own,
                    span=span,
                    position=len(found),
                    breadcrumb=section.breadcrumb,
                    section=section.heading,
                    anchor=section.anchor,
                    is_part=is_part,
                )
            )
    return tuple(found)


class _Cutter:
    """Cuts texts of one kind; what it learns of a token's length carries over."""

    def __init__(self, count: Count, most: int, alive: Alive) -> None:
        if most < LEAST_TOKENS:
            raise ValueError(f"a chunk needs room for {LEAST_TOKENS} tokens or more, not {most}")
        self._alive = alive
        self._count = count
        self._most = most
        self._room = most * CHARACTERS_PER_TOKEN
        self._characters_per_token = 4.0

    def cut(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Start, end and whether it is part of a fence or table, for each chunk in order."""
        start = 0
        blocks: Blocks | None = None
        while start < len(text):
            self._alive()
            begin = _after_blanks(text, start)
            if begin == len(text):
                return  # all of it is blank: a chunk takes the blanks behind it along
            end = self._furthest(text, begin)
            if _after_blanks(text, end) < len(text):
                blocks = blocks or read_blocks(text, self._alive)
                end = self._best(text, begin, end, blocks)
            end = _before_next(text, self._checked(text, begin, end))
            is_part = blocks is not None and _splits(text, blocks, start, end)
            yield start, end, is_part
            start = end

    def _furthest(self, text: str, start: int) -> int:
        """How far a chunk may go at most, or nearly: at least one character."""
        limit = min(len(text), start + self._room)
        fits, fails = start + 1, limit + 1
        guess = start + int(self._most * self._characters_per_token)
        for _ in range(24):
            at = max(fits + 1, min(guess, fails - 1))
            if at >= fails:
                break
            tokens = self._count(text[start:at].strip())
            if tokens <= self._most:
                fits = at
                if tokens >= _FULL * self._most:
                    self._characters_per_token = (at - start) / max(1, tokens)
                    break
                guess = start + int((at - start) * max(1.5, 0.95 * self._most / max(1, tokens)))
            else:
                fails = at
                guess = start + int((at - start) * min(0.9, 0.95 * self._most / tokens))
                guess = max(guess, (fits + fails) // 2 if guess <= fits else guess)
        return fits

    def _best(self, text: str, start: int, end: int, blocks: Blocks) -> int:
        """Where to end a chunk that may go to `end`."""
        if whole := _inside(blocks, end):
            if whole[0] > start and self._has_worth(text, start, whole, blocks):
                return whole[0]
            if _after_blanks(text, end) >= whole[1]:
                return whole[1]
            line = text.rfind("\n", start, end) + 1
            if line > max(start, whole[0]):
                return line
            return self._within_line(text, start, end)
        early = start + int((end - start) * _EARLY)
        place = bisect_right(blocks.starts, end) - 1
        if place >= 0 and blocks.starts[place] > early:
            return blocks.starts[place]
        for pattern in (_LINE, _SENTENCE):
            if at := _last(pattern, text, early, end):
                whole = _inside(blocks, at)
                return whole[1] if whole else at
        return self._within_line(text, start, end)

    def _has_worth(self, text: str, start: int, whole: tuple[int, int], blocks: Blocks) -> bool:
        """Whether what precedes a fence may stand alone. A heading only if that saves the fence."""
        first, last = (bisect_left(blocks.starts, at) for at in (start, whole[0]))
        above = bisect_left(blocks.headings, start, key=lambda heading: heading.start)
        is_heading = blocks.headings[above : above + 1] and blocks.headings[above].start < whole[0]
        if not is_heading or last - first > 1:
            return bool(text[start : whole[0]].strip())
        own = text[whole[0] : whole[1]]
        return len(own) <= self._room and self._count(own.strip()) <= self._most

    def _within_line(self, text: str, start: int, end: int) -> int:
        """The last place at or before `end` between words, else between clusters."""
        return _last(_WORD, text, start + 1, end) or _between_clusters(text, start, end)

    def _checked(self, text: str, start: int, end: int) -> int:
        """A nearer end if this is too far: half of a word may count for more than all of it."""
        while end > start + 1 and self._count(text[start:end].strip()) > self._most:
            end = _between_clusters(text, start, start + (end - start) // 2)
        return end


def _between_clusters(text: str, start: int, end: int) -> int:
    # One character further shows whether the last cluster goes on.
    starts = cluster_starts(text, start, min(len(text), end + 1))
    inside = [at for at in starts if at <= end]
    return inside[-1] if inside else end


def _splits(text: str, blocks: Blocks, start: int, end: int) -> bool:
    """Whether a chunk begins or ends within a fence or table."""
    whole = _inside(blocks, end)
    if whole and _after_blanks(text, end) < whole[1]:
        return True
    return _inside(blocks, start) is not None


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _before_next(text: str, end: int) -> int:
    """Where the next chunk begins: with the next line that says something, indented as it is."""
    following = _after_blanks(text, end)
    if following == len(text):
        return following
    return text.rfind("\n", end, following) + 1 or max(end, following)


def _last(pattern: re.Pattern[str], text: str, start: int, end: int) -> int:
    """Where the last match within these bounds ends; 0 if there is none."""
    at = 0
    for found in pattern.finditer(text, start, min(len(text), end + 1)):
        if found.end() <= end:
            at = found.end()
    return at


def _inside(blocks: Blocks, at: int) -> tuple[int, int] | None:
    """The fence or table that a cut at this place would split."""
    place = bisect_left(blocks.whole, (at, -1)) - 1
    if place >= 0 and blocks.whole[place][0] < at < blocks.whole[place][1]:
        return blocks.whole[place]
    return None
