"""From one submitted file to what it holds, whatever its format."""

import gzip
import io
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from workers.ingest import claude_code, codex, detect, markdown, pi, plain_text
from workers.ingest.decoding import decode
from workers.ingest.parsed import Alive, Parsed, Unreadable, unheard

Format = Literal["auto", "claude_code", "codex", "pi", "markdown", "text"]

_PIECE = 2**20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

_TRANSCRIPTS: Mapping[str, Callable[[bytes, str, Alive], Parsed]] = {
    claude_code.FORMAT: claude_code.parse,
    codex.FORMAT: codex.parse,
    pi.FORMAT: pi.parse,
}


def read_file(
    data: bytes,
    name: str,
    asked: str,
    mask: Callable[[str], tuple[str, Mapping[str, int]]],
    most_bytes: int,
    alive: Alive = unheard,
) -> tuple[Parsed, Counter[str]]:
    """What a file holds, and how many secrets of each kind were masked in it.

    A document is masked before it is read, so that what is said of its places holds for what is
    stored; a session's turns are masked one by one, when nodes are made of them.

    Args:
        asked: its format, or `auto`.
        most_bytes: of a file once it is expanded.
        mask: a text without its secrets, and their number by kind.
        alive: called at every line or block, and at every piece that is expanded.

    Raises:
        Unreadable: it is not text, not of the format asked for, or expands too far.
    """
    data = expand(data, most_bytes, alive)
    form = detect.detect(data, name, alive) if asked == "auto" else asked
    if form == detect.NODES:
        raise Unreadable("holds nodes: ingest it with format nodes")
    if form in _TRANSCRIPTS:
        return _TRANSCRIPTS[form](data, name, alive), Counter()
    decoded = decode(data)
    text, masked = mask(decoded.text)
    alive()
    if form == markdown.FORMAT:
        return markdown.parse_text(text, name, decoded.notes, alive), Counter(masked)
    return plain_text.parse_text(text, name, decoded.notes), Counter(masked)


def expand(data: bytes, most_bytes: int, alive: Alive = unheard) -> bytes:
    """The bytes of a file that may be compressed by gzip or zstd.

    Raises:
        Unreadable: it is damaged, or would become larger than `most_bytes`.
    """
    if data.startswith(_GZIP):
        return _read(gzip.GzipFile(fileobj=io.BytesIO(data)), most_bytes, alive)
    if data.startswith(_ZSTD):
        import zstandard

        reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
            io.BytesIO(data), read_across_frames=True
        )
        try:
            return _read(reader, most_bytes, alive)
        except zstandard.ZstdError as error:
            raise Unreadable("not readable: its zstd compression is damaged") from error
    if len(data) > most_bytes:
        raise _too_large(most_bytes)
    return data


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _read(stream: _Stream, most_bytes: int, alive: Alive) -> bytes:
    found = bytearray()
    try:
        while piece := stream.read(_PIECE):
            alive()
            found += piece
            if len(found) > most_bytes:
                raise _too_large(most_bytes)
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable("not readable: its gzip compression is damaged") from error
    return bytes(found)


def _too_large(most_bytes: int) -> Unreadable:
    return Unreadable(f"expands to more than {most_bytes / 1e6:g} MB (POIMEN_INGEST_MAX_MB)")
