"""Front matter is read as YAML 1.2, within bounds; what is broken is told and lost nowhere."""

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workers.ingest.front_matter import read_front_matter


def metadata_of(block: str) -> dict[str, object]:
    front = read_front_matter(f"---\n{block}\n---\nbody")
    assert front.notes == ()
    return front.metadata


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#,~ \n\t01.\u00e9\\", max_size=80))
@example("a: &x [*x]")
@example("? [a]\n: b")
@example('a: "\\0 \\ud800"')
def test_any_block_is_read_without_a_fault(block: str) -> None:
    front = read_front_matter(f"---\n{block}\n---\nbody")

    json.dumps(front.metadata, allow_nan=False).encode()
    assert "\0" not in str(front.metadata)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("No", "No"),
        ("1:30", "1:30"),
        ("2026-03-01", "2026-03-01"),
        ("2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z"),
        ("true", True),
        ("~", None),
        ("", None),
        ("12", 12),
        ("0o14", 12),
        ("0xC", 12),
        ("1.5", 1.5),
        ("1e999", "1e999"),
        (".nan", ".nan"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(written: str, meant: object) -> None:
    assert metadata_of(f"key: {written}") == {"key": meant}


def test_tags_are_kept_as_they_are_written() -> None:
    front = read_front_matter("---\ntags: [2026-03-01, 1.10, 007, '#plain', plain, yes]\n---\n")

    assert front.tags == ("2026-03-01", "1.10", "007", "plain", "yes")


@pytest.mark.parametrize("written", ["alpha, beta", "alpha beta", "'#alpha #beta'"])
def test_tags_may_stand_in_one_line(written: str) -> None:
    assert read_front_matter(f"---\ntags: {written}\n---\n").tags == ("alpha", "beta")


def test_an_unquoted_colon_is_told_with_its_line_and_costs_nothing() -> None:
    front = read_front_matter(
        "---\nlayout: x\ntitle: Part 2: the split\ntags:\n  - plan\n---\nbody"
    )

    assert front.is_text
    assert front.metadata == {"layout": "x", "title": "Part 2: the split", "tags": ["plan"]}
    assert front.tags == ("plan",)
    assert len(front.notes) == 1
    assert "line 3" in front.notes[0]


def test_a_key_that_stands_twice_is_told() -> None:
    front = read_front_matter("---\na: 1\na: 2\n---\nbody")

    assert front.is_text
    assert "twice" in front.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nsome words\n\n---\nmore",
        "---\n- a\n- b\n---\nmore",
        "----\ntitle: x\n----\n",
        " ---\ntitle: x\n---\n",
        "text\n---\ntitle: x\n---\n",
        "---\nwords: and [no end\n",
        "---",
        "",
    ],
)
def test_rules_and_lists_are_no_front_matter(text: str) -> None:
    assert read_front_matter(text).end == 0


def test_a_second_block_is_no_metadata() -> None:
    text = "---\na: 1\n---\n\n---\nb: 2\n---\nbody"
    front = read_front_matter(text)

    assert front.metadata == {"a": 1}
    assert text[front.end :].startswith("\n---\nb: 2")
    assert text[front.body :] == "body"


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (bomb(), "values"),
        ("a: " + "[" * 60 + "]" * 60, "levels deep"),
        ("a: " + "{b: " * 500 + "}" * 500, "levels deep"),
        ("a: [" + "x, " * 20_000 + "x]", "values"),
        ("a: *b", "alias"),
        ("? {a: b}\n: c", "not text"),
    ],
)
def test_what_is_beyond_the_bounds_is_refused_quickly_and_kept_as_text(
    block: str, said: str
) -> None:
    start = time.process_time()
    front = read_front_matter(f"---\nname: x\n{block}\n---\nbody")

    assert time.process_time() - start < 5
    assert front.is_text
    assert said in front.notes[0]
    assert front.metadata["name"] == "x"


def test_front_matter_without_an_end_is_text_and_told() -> None:
    front = read_front_matter("---\ntitle: x\n" + "word " * 20_000)

    assert front.end == 0
    assert "no closing" in front.notes[0]
