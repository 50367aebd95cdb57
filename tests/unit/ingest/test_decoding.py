"""Bytes of any encoding become text that can be stored, and what was changed is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.ingest.clipping import clip
from workers.ingest.decoding import decode, storable
from workers.ingest.parsed import Unreadable

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
ENCODINGS = ["utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be"]


@given(st.binary())
def test_any_bytes_are_text_that_can_be_stored_or_are_refused(data: bytes) -> None:
    try:
        text = decode(data).text
    except Unreadable:
        return

    assert "\0" not in text
    assert "\r" not in text
    text.encode()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r", exclude_categories=["Cc"])))
def test_utf8_stays_what_it_is(text: str) -> None:
    decoded = decode(text.encode())

    assert decoded.text == text.removeprefix("\ufeff")
    assert decoded.notes == ()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_file_with_and_without_a_mark_is_the_same_text(encoding: str) -> None:
    text = "---\ntitle: Gr\u00fc\u00dfe\n---\n# Plain words, and enough of them\n"

    decoded = decode(text.encode(encoding))

    assert decoded.text == text
    assert bool(decoded.notes) == (encoding != "utf-8-sig")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Das Café – „neu“ – öffnet um 9€", "cp1252"),
        ("It’s a “smart” note—5 € more.", "cp1252"),
        ("Zażółć gęślą jaźń, proszę państwa", "cp1250"),
        ("Привет, это текст о памяти проекта.", "cp1251"),
        ("これは日本語の文章です。記憶について書きます。", "shift_jis"),
        ("我们决定用消息队列作为任务的基础。", "gb18030"),
    ],
)
def test_another_encoding_is_found_and_told(text: str, encoding: str) -> None:
    decoded = decode(text.encode(encoding))

    assert decoded.text == text
    assert decoded.notes == (f"read as {decoded.encoding}",)


def test_some_wrong_bytes_in_utf8_cost_those_alone() -> None:
    decoded = decode("fa\u00e7ade, na\u00efve ".encode() + b"\xff and more: " + "\u00fc".encode())

    assert decoded.text == "fa\u00e7ade, na\u00efve \ufffd and more: \u00fc"
    assert decoded.notes == ("1 place with bytes that are not utf-8: U+FFFD",)


def test_a_file_cut_within_a_character_is_still_utf8() -> None:
    decoded = decode("plain words and a cut \u20ac".encode()[:-1])

    assert decoded.text == "plain words and a cut \ufffd"
    assert decoded.encoding == "utf-8"


def test_a_replacement_character_that_is_written_is_no_fault() -> None:
    assert decode("what \ufffd means".encode()).notes == ()


def test_nul_is_left_out_and_counted() -> None:
    decoded = decode(b"before\0 after\n")

    assert decoded.text == "before after\n"
    assert decoded.notes == ("1 U+0000 left out",)


def test_thousands_of_nul_in_a_text_are_left_out() -> None:
    assert decode(b"one\n" + bytes(4096) + b"\ntwo\n").text == "one\n\ntwo\n"


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_are_lf(end: str) -> None:
    decoded = decode(f"# One{end}{end}text{end}".encode())

    assert decoded.text == "# One\n\ntext\n"
    assert decoded.notes == ("line ends read as LF",)


@pytest.mark.parametrize("data", [PNG, b"%PDF-1.7\n% words", bytes(range(256)), b"\x01\x02\x03ab"])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable, match="not text"):
        decode(data)


def test_terminal_colours_are_text() -> None:
    assert decode(b"\x1b[31mred\x1b[0m\n").text == "\x1b[31mred\x1b[0m\n"


@given(st.text(st.characters(exclude_categories=[])))
def test_any_string_can_be_made_storable(text: str) -> None:
    stored, notes = storable(text)

    stored.encode()
    assert "\0" not in stored
    assert (stored == text) == (notes == ())


def test_half_of_a_surrogate_pair_is_replaced_and_counted() -> None:
    assert storable("a\ud83d b") == ("a\ufffd b", ("1 half of surrogate pairs: U+FFFD",))


@given(st.text(), st.integers(0, 40))
def test_a_clip_is_a_beginning_within_its_bytes(text: str, most: int) -> None:
    cut = clip(text, most)

    assert text.startswith(cut)
    assert len(cut.encode()) <= most


@pytest.mark.parametrize("most", range(1, 40))
def test_a_clip_never_splits_what_a_reader_takes_for_one(most: int) -> None:
    family = "\U0001f469\u200d\U0001f467"  # 11 bytes
    text = "x" * (most - 1) + family + "e\u0301"

    cut = clip(text, most)

    assert cut == "x" * (most - 1)


@given(st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cc"]), min_size=1))
def test_a_text_with_halves_of_surrogate_pairs_is_read_as_utf8_but_for_these(text: str) -> None:
    text = text.lstrip("\ufeff")
    decoded = decode(text.encode("utf-8", "surrogatepass"))

    wanted, notes = storable(text)
    assert (decoded.text, decoded.encoding, decoded.notes) == (wanted, "utf-8", notes)


def test_bytes_of_such_a_half_are_letters_where_the_text_is_no_utf8() -> None:
    text = "¡Aquí\xa0€! Señor, mañana llegará el niño."
    assert b"\xed\xa0\x80" in text.encode("cp1252")

    assert decode(text.encode("cp1252")).text == text
