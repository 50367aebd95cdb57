"""Plain text: one document of one section, without headings."""

from collections.abc import Sequence

from workers.ingest.decoding import decode
from workers.ingest.markdown import stem
from workers.ingest.parsed import Document, Parsed, Section, Span

FORMAT = "text"


def parse(data: bytes, name: str) -> Parsed:
    """One document, from a file's bytes and its name.

    Raises:
        Unreadable: it is not text.
    """
    decoded = decode(data)
    return parse_text(decoded.text, name, decoded.notes)


def parse_text(text: str, name: str, notes: Sequence[str] = ()) -> Parsed:
    """One document, from text. Blank text is no document."""
    if not text.strip():
        return Parsed(FORMAT, notes=(*notes, "holds no text"))
    span = Span("bytes", 0, len(text.encode()) - 1)
    section = Section(heading=None, level=0, breadcrumb=(), anchor="", text=text, span=span)
    document = Document(text=text, sections=(section,), title=stem(name))
    return Parsed(FORMAT, documents=(document,), notes=tuple(notes))
