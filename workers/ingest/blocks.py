"""The blocks of a markdown text: where they begin, which are headings, which stay whole.

Only the structure of blocks is read, so that the time is linear in the length of the text.
"""

import re
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from workers.ingest.parsed import Alive, unheard

MOST_HEADING = 4_000  # characters of a heading that are read for its name


def _tell_alive(state: StateBlock, _start: int, _end: int, _is_asking: bool) -> bool:
    """A rule that holds nowhere; it is tried at every block, and at every line of a paragraph."""
    state.env["alive"]()
    return False


_BLOCKS = MarkdownIt("commonmark").enable("table").disable("inline")
_BLOCKS.block.ruler.before(
    "table", "alive", _tell_alive, {"alt": ["paragraph", "reference", "blockquote"]}
)
_INLINE = MarkdownIt("commonmark")
_LINE_END = re.compile(r"\r\n?|\n")
_STARTS = frozenset(
    (
        "paragraph_open",
        "heading_open",
        "list_item_open",
        "blockquote_open",
        "fence",
        "code_block",
        "table_open",
        "html_block",
        "hr",
    )
)
_WHOLE = frozenset(("fence", "code_block", "table_open"))


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading that stands in no list or quotation."""

    start: int  # in characters, where its first line begins
    level: int
    name: str  # without markup, in one line; may be empty


@dataclass(frozen=True, slots=True)
class Blocks:
    """Positions are in characters.

    starts: of all blocks, in order.
    whole: from where to where each code fence and table goes, in order, without overlaps.
    """

    headings: tuple[Heading, ...]
    starts: tuple[int, ...]
    whole: tuple[tuple[int, int], ...]


def read_blocks(text: str, alive: Alive = unheard) -> Blocks:
    """The blocks of a text, by CommonMark and the tables of GitHub.

    alive: called at every block.
    """
    lines = [0, *(found.end() for found in _LINE_END.finditer(text))]
    lines.append(len(text))
    tokens = _BLOCKS.parse(text, {"alive": alive})
    headings: list[Heading] = []
    starts: set[int] = set()
    whole: list[tuple[int, int]] = []
    for place, token in enumerate(tokens):
        alive()
        if token.map is None:
            continue
        start, end = lines[token.map[0]], lines[min(token.map[1], len(lines) - 1)]
        if token.type in _STARTS:
            starts.add(start)
        if token.type in _WHOLE and (not whole or start >= whole[-1][1]):
            whole.append((start, end))
        if token.type == "heading_open" and token.level == 0:
            headings.append(Heading(start, int(token.tag[1:]), _name(tokens[place + 1])))
    return Blocks(tuple(headings), tuple(sorted(starts)), tuple(whole))


def _name(heading: Token) -> str:
    """What a reader sees of a heading. HTML and wiki links stay as they are written."""
    parts = []
    for token in _INLINE.parseInline(heading.content[:MOST_HEADING])[0].children or ():
        parts.append(" " if token.type.endswith("break") else token.content)
    return " ".join("".join(parts).split())
