"""Markdown becomes one document, its sections by the headings of CommonMark."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.ingest import markdown, plain_text
from workers.ingest.parsed import Document, Parsed, Section, Unreadable

PIECES = st.sampled_from(
    [
        "# A\n",
        "## B\n",
        "### A\n",
        "A\n===\n",
        "B\n---\n",
        "```\n",
        "~~~\n# x\n",
        "---\n",
        "\n",
        "- ",
        "> ",
        "    ",
        "text ",
        "text\n",
        "\u00fc\u4e16\U0001f600\n",
        "|a|b|\n|-|-|\n",
        "[[A#B|c]]",
        "#\n",
        "title: x\n",
        "tags: [a]\n",
        "\t",
        "<div>\n",
        "[r]: <c d>\n",
        "\x0b\u2028",
        "\r\n",
        "\r",
    ]
)


def document_of(text: str | bytes, name: str = "notes/page.md") -> Document:
    data = text.encode() if isinstance(text, str) else text
    (document,) = markdown.parse(data, name).documents
    return document


def named(text: str) -> dict[str | None, Section]:
    return {section.heading: section for section in document_of(text).sections}


def paths(document: Document) -> list[str]:
    return [" > ".join([*own.breadcrumb, own.heading or ""]) for own in document.sections]


@given(st.lists(PIECES, max_size=30).map("".join))
def test_sections_are_the_text_behind_the_front_matter_whatever_it_is(text: str) -> None:
    for document in markdown.parse(text.encode(), "page.md").documents:
        data = document.text.encode()
        spans = [section.span for section in document.sections]

        for section in document.sections:
            assert data[section.span.start : section.span.end + 1].decode() == section.text
            assert len(section.breadcrumb) < max(1, section.level)
        assert [own.end + 1 for own in spans[:-1]] == [own.start for own in spans[1:]]
        assert not spans or spans[-1].end + 1 == len(data)
        assert len({own.anchor for own in document.sections}) == len(document.sections)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_refused(data: bytes) -> None:
    try:
        parsed = markdown.parse(data, "page.md")
    except Unreadable:
        return
    assert len(parsed.documents) + len(parsed.notes) >= 1


def test_a_comment_in_a_fence_is_no_heading() -> None:
    text = (
        "# Guide\n\n```sh\n# first\n## second\n```\n\nafter\n\n    # indented\n\n## Real\n\nmore\n"
    )
    sections = document_of(text).sections

    assert [own.heading for own in sections] == ["Guide", "Real"]
    assert "after" in sections[0].text


def test_headings_within_lists_and_quotations_begin_no_section() -> None:
    assert list(named("# Top\n\n> # Quoted\n\n- # Listed\n")) == ["Top"]


def test_underlined_headings_are_headings_and_a_rule_is_none() -> None:
    sections = document_of("Main\n====\n\nintro\n\nSub\n---\n\nbody\n\n---\n\nlast\n").sections

    assert [(own.heading, own.level) for own in sections] == [("Main", 1), ("Sub", 2)]
    assert sections[1].text.endswith("last\n")


def test_equal_headings_have_anchors_and_paths_of_their_own() -> None:
    text = (
        "# S\n## Setup\n### Notes\n1\n## Use\n### Notes\n2\n## Setup\n### Notes\n3\n### Notes-1\n"
    )
    document = document_of(text)

    assert [own.anchor for own in document.sections] == [
        *("s", "setup", "notes", "use", "notes-1", "setup-1", "notes-2", "notes-1-1")
    ]
    assert paths(document) == [
        *("S", "S > Setup", "S > Setup > Notes", "S > Use", "S > Use > Notes", "S > Setup"),
        *("S > Setup (2) > Notes", "S > Setup (2) > Notes-1"),
    ]


def test_levels_that_are_left_out_break_no_path() -> None:
    document = document_of("### Deep\n# Top\n#### Low\n## Mid\n")

    assert paths(document) == ["Deep", "Top", "Top > Low", "Top > Mid"]


@pytest.mark.parametrize(
    ("written", "name", "anchor"),
    [
        ("# *Bold* and `code_x` [link](<a b>)", "Bold and code_x link", "bold-and-code_x-link"),
        ("# See [[Wiki Page#Sec One|alias]]", "See [[Wiki Page#Sec One|alias]]", None),
        ("# List<T> of C++", "List<T> of C++", "listt-of-c"),
        ("# \u00dcber M\u0065\u0301moire ##", "\u00dcber Me\u0301moire", "\u00fcber-me\u0301moire"),
        ("# \u8a2d\u8a08", "\u8a2d\u8a08", "\u8a2d\u8a08"),
        ("# ???", "???", "section"),
        ("#", "", "section"),
        ("Two\nlines\n===", "Two lines", "two-lines"),
    ],
)
def test_a_heading_is_named_as_a_reader_sees_it(
    written: str, name: str, anchor: str | None
) -> None:
    (section,) = document_of(f"{written}\n\ntext\n").sections

    assert section.heading == name
    assert anchor is None or section.anchor == anchor
    assert section.text.startswith(written)


def test_a_very_long_heading_has_a_short_name_and_keeps_its_text() -> None:
    heading = "\u00fc word " * 800
    document = document_of(f"# {heading}\n\nfirst\n\n# {heading}\n\nsecond\n")

    assert len(document.title or "") > 100
    for name in [document.title or "", *(own.anchor for own in document.sections)]:
        assert len(name.encode()) <= 255
    assert len({own.anchor for own in document.sections}) == 2
    assert heading.strip() in document.sections[0].text


def test_a_byte_order_mark_hides_no_front_matter() -> None:
    document = document_of(b"\xef\xbb\xbf---\ntitle: Marked\ntags: [a]\n---\n# First\n\ntext\n")

    assert (document.title, document.tags) == ("Marked", ("a",))
    assert [own.heading for own in document.sections] == ["First"]
    assert "\ufeff" not in document.text


def test_windows_line_ends_change_nothing() -> None:
    text = "---\ntitle: Page\n---\n# One\n\ntext\n\n## Two\n\n```sh\n# none\n```\n"

    assert document_of(text.replace("\n", "\r\n")) == document_of(text)


def test_a_nul_is_left_out_before_anything_is_counted() -> None:
    clean, dirty = b"# A\n\none two\n\n## B\n\nthree\n", b"# A\n\none\0 two\n\n## B\n\nthree\n"

    assert document_of(dirty) == document_of(clean)
    assert markdown.parse(dirty, "page.md").notes == ("1 U+0000 left out",)


def test_dates_are_text_and_say_when() -> None:
    document = document_of("---\ncreated: 2026-03-01\nupdated: 2026-03-02T10:00:00Z\n---\ntext\n")

    assert document.metadata == {"created": "2026-03-01", "updated": "2026-03-02T10:00:00Z"}
    assert document.occurred_at == datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize("written", ["soon", "0001-01-01", "9999-12-31T23:00:00-12:00", "[1]", "5"])
def test_a_date_that_is_none_is_left_alone(written: str) -> None:
    assert document_of(f"---\ndate: {written}\n---\ntext\n").occurred_at is None


def test_broken_front_matter_is_told_and_kept_in_the_text() -> None:
    text = "---\ntitle: Core: a plan\ntags:\n  - keep\n---\n\n# Body\n\nwords\n"
    parsed = markdown.parse(text.encode(), "page.md")
    (document,) = parsed.documents

    assert "line 2" in parsed.notes[0]
    assert (document.title, document.tags) == ("Core: a plan", ("keep",))
    assert "".join(own.text for own in document.sections) == text
    assert [own.heading for own in document.sections] == [None, "Body"]


def test_a_second_front_matter_stays_text_and_is_no_heading() -> None:
    document = document_of("---\nlink: a/b\n---\n\n---\nname: it\nabout: kept\n---\n\nbody\n")

    assert document.metadata == {"link": "a/b"}
    assert document.title == "page"
    assert [own.heading for own in document.sections] == [None]
    assert "about: kept" in document.sections[0].text


def test_links_are_left_as_they_are_written() -> None:
    text = (
        "# L\n\n[a](b c.md) [d](<e f.md>) [g](https://x.test/a_(b)) [[W P#S|t]] ![i](<j k.png>)\n"
    )

    assert document_of(text).sections[0].text == text


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\ntitle: 42\n---\n# Heading\n", "42"),
        ("---\ntitle: ''\n---\n# Heading\n", "Heading"),
        ("intro\n\n#\n\n## Second\n", "Second"),
        ("no heading", "page"),
    ],
)
def test_the_title_is_given_or_the_first_heading_or_the_name(text: str, title: str) -> None:
    assert document_of(text).title == title


@pytest.mark.parametrize(("name", "title"), [("a/b.c.md", "b.c"), ("c:\\x\\y.md", "y"), ("", None)])
def test_the_name_of_a_file_is_a_title_without_folder_and_ending(
    name: str, title: str | None
) -> None:
    assert document_of("text", name).title == title


@pytest.mark.parametrize("parse", [markdown.parse, plain_text.parse])
@pytest.mark.parametrize("data", [b"", b" \n\t\n", b"\xef\xbb\xbf", b"\0"])
def test_a_file_without_text_is_no_document_and_told(parse: object, data: bytes) -> None:
    parsed = parse(data, "page")  # type: ignore[operator]

    assert isinstance(parsed, Parsed)
    assert parsed.documents == ()
    assert parsed.notes[-1] == "holds no text"


def test_front_matter_alone_is_a_document_without_sections() -> None:
    parsed = markdown.parse(b"---\ntitle: x\n---\n", "page.md")

    assert parsed.documents[0].sections == ()
    assert parsed.notes == ("holds front matter only",)


@pytest.mark.parametrize("text", ["# not a heading\n\ntext", "\u00fc\n\nb", "---\na: 1\n---\nb"])
def test_plain_text_is_one_section(text: str) -> None:
    (document,) = plain_text.parse(text.encode(), "notes/page.txt").documents
    (section,) = document.sections

    assert section.text == document.text == text
    assert section.span.end + 1 == len(text.encode())
    assert (document.title, section.heading, section.level) == ("page", None, 0)


@pytest.mark.parametrize(
    "text",
    [
        ">" * 50_000,
        "- " * 20_000,
        "[" * 50_000,
        "[a\n" * 20_000,
        "[a]: b\n" * 10_000,
        "`" * 50_000,
        "# " + "*a " * 20_000,
        "|a" * 300 + "\n" + "|-" * 300 + "\n" + "|a\n" * 300,
        "a\n" * 20_000,
        "# Notes\n\n" * 5_000,
        "```\n" * 20_000,
        "<a " * 50_000,
    ],
)
def test_hostile_text_costs_little(text: str) -> None:
    start = time.process_time()
    document_of(text)

    assert time.process_time() - start < 10
