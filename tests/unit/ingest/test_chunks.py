"""Texts are cut where a reader would cut them, within what an embedder reads; nothing is lost."""

import time
from collections.abc import Callable

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from workers.engines.files import DATA
from workers.ingest import markdown, plain_text
from workers.ingest.chunks import Chunk, chunk_document, chunk_text, estimated_tokens
from workers.ingest.parsed import Document

MOST = 256

PIECES = st.sampled_from(
    [
        "word ",
        "word. ",
        "\n",
        "\n\n",
        "# H\n\n",
        "## H\n",
        "H\n===\n",
        "```\n",
        "~~~\n",
        "- item\n",
        "    code\n",
        "|a|b|\n|-|-|\n|c|d|\n",
        " " * 50,
        "x" * 90,
        "\u4e16\u754c\u3002",
        "e\u0301",
        "\U0001f1e9\U0001f1ea",
        "\U0001f469\u200d\U0001f467",
        "\u2028",
        "\t",
        "> q\n",
        "---\na: b\n---\n",
        "\r\n",
    ]
)
TEXTS = st.lists(PIECES, max_size=60).map("".join)


def words(text: str) -> int:
    return len(text.split()) + 2


def halves(text: str) -> int:
    return (len(text) + 1) // 2


def fickle(text: str) -> int:
    """Counts more for some texts than for longer ones, as tokenizers do within words."""
    return len(text) // 3 + (5 if len(text) % 7 else 0)


@pytest.fixture(scope="module")
def tokens() -> Callable[[str], int]:
    tokenizer = Tokenizer.from_file(str(DATA / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text).ids)


def document_of(text: str) -> Document:
    (document,) = markdown.parse(text.encode(), "page.md").documents
    return document


def texts(chunks: tuple[Chunk, ...]) -> list[str]:
    return [chunk.text for chunk in chunks]


def check(text: str, chunks: tuple[Chunk, ...], count: Callable[[str], int], most: int) -> None:
    data = text.encode()
    assert "".join(texts(chunks)) == text
    assert [chunk.position for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert chunk.text.strip()
        assert data[chunk.span.start : chunk.span.end + 1].decode() == chunk.text
        own = chunk.text.strip()
        assert count(own) <= most or len(own) == 1


@given(TEXTS, st.integers(16, 40), st.sampled_from([words, halves, fickle, estimated_tokens]))
def test_the_chunks_of_any_text_are_that_text_within_the_limit(
    text: str, most: int, count: Callable[[str], int]
) -> None:
    chunks = chunk_text(text, count, most)

    if not text.strip():
        assert chunks == ()
        return
    check(text, chunks, count, most)
    assert chunk_text(text, count, most) == chunks


@given(TEXTS.filter(lambda text: "\r" not in text))
def test_the_chunks_of_any_document_are_its_sections(text: str) -> None:
    for document in markdown.parse(text.encode(), "page.md").documents:
        body = "".join(section.text for section in document.sections)
        chunks = chunk_document(document, halves, 20)

        assert "".join(texts(chunks)) == (body if body.strip() else "")
        anchors = {section.anchor for section in document.sections}
        data = document.text.encode()
        for chunk in chunks:
            assert chunk.text.strip()
            assert chunk.anchor in anchors
            assert data[chunk.span.start : chunk.span.end + 1].decode() == chunk.text


@given(
    st.lists(
        st.sampled_from(
            ["e\u0301\u0323", "\U0001f1e9\U0001f1ea", "\U0001f469\u200d\U0001f467", "a"]
        )
    )
)
def test_what_a_reader_takes_for_one_character_is_never_split(clusters: list[str]) -> None:
    text = "".join(clusters)
    cut = [
        found for chunk in chunk_text(text, len, 16) for found in regex.findall(r"\X", chunk.text)
    ]

    assert cut == regex.findall(r"\X", text)


def test_a_short_turn_is_one_chunk(tokens: Callable[[str], int]) -> None:
    text = "  It broke.\n\nThen it worked.\n"
    (chunk,) = chunk_text(text, tokens, MOST)

    assert chunk.text == text
    assert (chunk.position, chunk.section, chunk.is_part) == (0, None, False)


def test_a_chunk_is_of_one_section_and_knows_where_it_stands(tokens: Callable[[str], int]) -> None:
    document = document_of(
        "# Guide\n\nintro\n\n## Setup\n\n" + "A sentence of it. " * 120 + "\n\n## Use\n\nso\n"
    )
    chunks = chunk_document(document, tokens, MOST)

    assert [chunk.anchor for chunk in chunks] == ["guide", "setup", "setup", "setup", "use"]
    assert {chunk.breadcrumb for chunk in chunks if chunk.section == "Setup"} == {("Guide",)}
    check(document.text, chunks, tokens, MOST)


def test_cuts_are_made_before_paragraphs_then_sentences_then_words() -> None:
    paragraphs = chunk_text("one two three four five six\n\n" * 6, words, 16)
    sentences = chunk_text("One two three. Four five six seven. " * 6, words, 16)
    only_words = chunk_text("word " * 40, words, 16)

    assert set(texts(paragraphs)) == {"one two three four five six\n\n" * 2}
    assert all(text.endswith(". ") for text in texts(sentences))
    assert all(text.endswith("word ") for text in texts(only_words))


def test_a_fence_that_fits_stays_whole() -> None:
    fence = "```py\n" + "run it now\n" * 3 + "```\n"
    chunks = chunk_text("some words before it all\n\n" + fence + "\nafter it\n", words, 16)

    assert [text for text in texts(chunks) if fence in text]
    assert not any(chunk.is_part for chunk in chunks)


def test_a_table_that_fits_stays_whole() -> None:
    table = "| a | b |\n|---|---|\n| c | d |\n"
    chunks = chunk_text("five words stand before it\n\n" + table + "\nafter it\n", words, 18)

    assert [text for text in texts(chunks) if table in text]


def test_a_fence_that_does_not_fit_is_cut_between_lines_and_says_so() -> None:
    fence = "```py\n" + "x = 1\n" * 40 + "```\n"
    chunks = chunk_text(f"before\n\n{fence}\nafter\n", words, 20)

    assert len(chunks) > 3
    assert all(chunk.text.endswith("\n") for chunk in chunks)
    assert [chunk.is_part for chunk in chunks] == ["x = 1" in chunk.text for chunk in chunks]


def test_a_heading_does_not_stand_alone_before_a_fence_that_is_cut_anyway() -> None:
    document = document_of("# Code\n\n```py\n" + "x = 1\n" * 40 + "```\n")

    assert "x = 1" in chunk_document(document, words, 20)[0].text


def test_sections_without_text_are_joined_to_a_neighbour(tokens: Callable[[str], int]) -> None:
    text = "# Note\n## Sub\n" + "\n" * 300 + "## Empty\n\n \n\t\n\nUnder\n---\n## Last\n\nwords\n"
    (chunk,) = chunk_document(document_of(text), tokens, MOST)
    (behind,) = chunk_document(document_of("# A\n\nwords\n\n## Empty\n"), tokens, MOST)
    (alone,) = chunk_document(document_of("\n\n# A\n\n## B\n"), tokens, MOST)

    assert (chunk.text, chunk.section, chunk.breadcrumb) == (text, "Last", ("Note",))
    assert (behind.section, behind.text) == ("A", "# A\n\nwords\n\n## Empty\n")
    assert alone.section == "A"


def test_indented_lines_keep_their_indent() -> None:
    chunks = chunk_text(("def f():\n    if x:\n        return 1\n\n\n" * 6), words, 16)

    assert all(not text.startswith(("if", "return", "\n")) for text in texts(chunks))


def cjk() -> str:
    return "".join(chr(0x4E00 + place * 7 % 20_000) for place in range(6_000))


@pytest.mark.parametrize(
    "text",
    [
        "Start " + "a" * 20_000 + " end",
        "".join(f"{place * 2654435761 % 2**32:08x}" for place in range(1_600)),
        cjk(),
        "a" + " " * 100_000 + "b",
        "e" + "\u0301" * 5_000,
        "\U0001f1e9\U0001f1ea" * 1_000,
        ". " * 20_000,
    ],
    ids=["one word", "hex", "cjk", "blanks", "one cluster", "flags", "dots"],
)
def test_text_without_a_good_place_to_cut_is_cut_in_time(
    text: str, tokens: Callable[[str], int]
) -> None:
    for count in (tokens, estimated_tokens, halves):
        start = time.process_time()
        check(text, chunk_text(text, count, MOST), count, MOST)
        assert time.process_time() - start < 10


def test_a_megabyte_of_different_words_is_read_a_few_times_at_most() -> None:
    text = "# Big\n\n" + " ".join(f"k{place * 7919:x}" for place in range(140_000))
    read = 0

    def count(own: str) -> int:
        nonlocal read
        read += len(own)
        return len(own) // 3

    chunks = chunk_document(document_of(text), count, MOST)

    assert "".join(texts(chunks)) == text
    assert read < 8 * len(text)


def test_a_plain_text_is_chunked_as_well(tokens: Callable[[str], int]) -> None:
    text = "A line of it.\n" * 200
    (document,) = plain_text.parse(text.encode(), "page.txt").documents

    check(text, chunk_document(document, tokens, MOST), tokens, MOST)


def test_a_limit_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="room"):
        chunk_text("text", len, 3)


def test_the_estimate_is_above_the_tokenizer_where_characters_are_dense(
    tokens: Callable[[str], int],
) -> None:
    for text in (cjk()[:500], "5f ec eb 66 ff c8 6f 38 d9 52 " * 20, "{}[]();" * 50):
        assert estimated_tokens(text) >= 0.8 * tokens(text)
