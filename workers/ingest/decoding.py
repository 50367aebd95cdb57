"""From a file's bytes to text that can be stored, with a note of all that was read otherwise."""

import codecs
import re
from dataclasses import dataclass

from workers.ingest.parsed import Unreadable

SAMPLE_BYTES = 65_536  # shown to the detector
MOST_CONTROLS = 0.05  # of the characters of a text

# Longest first: the mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_FALLBACK = "cp1252"
_BINARY = (b"%PDF-", b"\x1f\x8b", b"PK\x03\x04", b"\x7fELF", b"\x28\xb5\x2f\xfd")
_SIGN_IN_WORD = re.compile(r"[^\W\d_][^\w\x00-\x7f\xad·´’–—…][^\W\d_]|[^\W\d_][¹²³][^\W\d_]")
_NEWLINE = re.compile(r"\r\n?")
_SURROGATE = re.compile("[\ud800-\udfff]")
# Half of a surrogate pair as UTF-8 would write it; no character has these bytes.
_HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
# Not what terminals write: backspace, form feed, escape and the vertical tab are left out.
_CONTROL = re.compile("[\x01-\x07\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]")


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file as text: line ends are LF, and PostgreSQL can hold every character."""

    text: str
    encoding: str
    notes: tuple[str, ...] = ()


def decode(data: bytes) -> Decoded:
    """The text of a file, whatever its encoding.

    A byte order mark decides, else it is UTF-8 if it can be, else the detector is asked. Bytes that
    fit no encoding become U+FFFD. Nothing else is changed: the text is not normalised.

    Raises:
        Unreadable: it is not text.
    """
    if data.startswith(_BINARY):
        raise Unreadable("not text: its first bytes are those of a binary format")
    data, halves = without_halves(data)
    encoding, mark = _encoding(data)
    text = data[mark:].decode(encoding, errors="replace")
    _check_is_text(text, is_sure=encoding == "utf-8")
    notes = [] if encoding == "utf-8" else [f"read as {encoding}"]
    if halves:
        notes.append(_told_halves(halves))
    if "\ufffd" in text and (replaced := text.count("\ufffd") - _own_replacements(data, encoding)):
        notes.append(f"{_times(replaced, 'place')} with bytes that are not {encoding}: U+FFFD")
    if "\r" in text:
        text = _NEWLINE.sub("\n", text)
        notes.append("line ends read as LF")
    stored, cleaned = storable(text)
    return Decoded(stored, encoding, (*notes, *cleaned))


def _own_replacements(data: bytes, encoding: str) -> int:
    """How often the file itself says U+FFFD."""
    return data.decode(encoding, errors="ignore").count("\ufffd")


def storable(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without what PostgreSQL and UTF-8 cannot hold, and a note of each change.

    U+0000 is left out; half of a surrogate pair becomes U+FFFD.
    """
    notes = []
    if count := text.count("\0"):
        text = text.replace("\0", "")
        notes.append(f"{_times(count, 'U+0000', 'U+0000')} left out")
    text, count = _SURROGATE.subn("\ufffd", text)
    if count:
        notes.append(_told_halves(count))
    return text, tuple(notes)


def without_halves(data: bytes) -> tuple[bytes, int]:
    """UTF-8 whose halves of surrogate pairs are U+FFFD, and how many these were.

    Text that is sent as JSON may hold such halves, and some programs write them to files. What is
    no UTF-8 apart from them is left as it is: the same bytes are letters in other encodings.
    """
    mended, halves = _HALF.subn("\ufffd".encode(), data)
    if halves:
        try:
            mended.decode("utf-8")
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                return data, 0
    return mended, halves


def _told_halves(count: int) -> str:
    return f"{_times(count, 'half', 'halves')} of surrogate pairs: U+FFFD"


def _times(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _encoding(data: bytes) -> tuple[str, int]:
    """The encoding, and the length of the byte order mark."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding, len(mark)
    wide = _wide(data)
    if wide:
        return wide, 0
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" or _is_mostly_utf8(data):
            return "utf-8", 0
        return _detected(data), 0
    return "utf-8", 0


def _wide(data: bytes) -> str | None:
    """UTF-16 without its mark: in Western text every other byte is NUL, and no other."""
    sample = data[:SAMPLE_BYTES]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if len(data) % 2 or max(even, odd) * 4 < len(sample) // 2 or min(even, odd):
        return None
    return "utf-16-le" if odd else "utf-16-be" if even else None


def _is_mostly_utf8(data: bytes) -> bool:
    """Whether it has at least as many characters of several bytes as bytes that are wrong."""
    text = data.decode("utf-8", errors="surrogateescape")
    wrong = len(_SURROGATE.findall(text))
    good = len(re.findall("[^\x00-\x7f]", text)) - wrong
    return good >= wrong


def _detected(data: bytes) -> str:
    if b"\0" in data:
        raise Unreadable("not text: it is no UTF-8, and has NUL bytes")
    from charset_normalizer import from_bytes

    sample = _telling_lines(data)
    if _is_western(sample):  # most common, and what the detector is worst at in short texts
        return _FALLBACK
    found = from_bytes(sample).best()
    return found.encoding.replace("_", "-") if found else _FALLBACK


def _is_western(sample: bytes) -> bool:
    """Whether Windows-1252 makes sense of it: few letters with accents, no signs within words."""
    try:
        text = sample.decode("cp1252")
    except UnicodeDecodeError:
        return False
    letters = re.findall(r"[^\W\d_]", text)
    accented = sum(letter > "\x7f" for letter in letters)
    return accented * 4 <= len(letters) and _SIGN_IN_WORD.search(text) is None


def _telling_lines(data: bytes) -> bytes:
    """The lines that hold more than ASCII, as far as the detector needs to see them."""
    lines, size = [], 0
    for line in re.finditer(rb"[^\n]*[\x80-\xff][^\n]*\n?", data):
        lines.append(line[0][: SAMPLE_BYTES - size])
        size += len(lines[-1])
        if size >= SAMPLE_BYTES:
            break
    return b"".join(lines)


def _check_is_text(text: str, *, is_sure: bool) -> None:
    doubtful = len(_CONTROL.findall(text))
    if not is_sure:
        doubtful += text.count("\0") + text.count("\ufffd")
    if doubtful > MOST_CONTROLS * len(text):
        raise Unreadable("not text: it is full of control characters")
