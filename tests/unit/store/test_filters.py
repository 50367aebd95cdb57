"""What of a filter's pattern means something to PostgreSQL."""

import pytest

from workers.model import Filters
from workers.store.filters import filtering, like


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("docs/*.md", "docs/%.md"),
        ("??", "__"),
        ("**", "%%"),
        ("50%*", r"50\%%"),
        ("report_0?", r"report\_0_"),
        ("*\\*", r"%\\%"),
        ("[a-z]*", "[a-z]%"),
    ],
)
def test_only_stars_and_question_marks_stand_for_others(pattern: str, said: str) -> None:
    assert like(pattern) == said


@pytest.mark.parametrize("pattern", ["report_01", "50%", "%", "_", "\\", "[ab]"])
def test_a_pattern_without_wildcards_is_the_source_itself(pattern: str) -> None:
    arguments = filtering(Filters(source_pattern=pattern))

    assert (arguments["source"], arguments["source_like"]) == (pattern, None)


def test_what_is_not_asked_for_is_null() -> None:
    assert set(filtering(Filters()).values()) == {None}
