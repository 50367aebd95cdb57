"""Which way a question goes that does not say."""

import pytest

from workers.model import Method
from workers.routing import Route, route


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("x", Method.LEXICAL),
        ("ORA-00942", Method.LEXICAL),
        ("registry tokens", Method.LEXICAL),
        ("how are registry tokens rotated #infra", Method.LEXICAL),
        ("what did @dana say about it", Method.LEXICAL),
        ("a & b", Method.LEXICAL),
        ("-- registry -- tokens --", Method.LEXICAL),
        ("rotate registry tokens", Method.HYBRID),
        ("why did requests over 10KB fail?", Method.HYBRID),
    ],
)
def test_names_and_tags_are_looked_for_as_words_and_questions_both_ways(
    text: str, method: Method
) -> None:
    assert route(text, None).method is method


@pytest.mark.parametrize("asked", [None, *Method])
@pytest.mark.parametrize(
    "text", ["?!", "...", "-- --", "+ - = && || > <", "*", "\u200b", "«»", "$"]
)
def test_signs_alone_are_looked_for_as_words_which_they_hold_none_of(
    text: str, asked: Method | None
) -> None:
    assert route(text, asked) == Route(Method.LEXICAL, "holds no word")


@pytest.mark.parametrize("text", ["🔥", "木", "ไทย", "5", "é", "C++", "€5"])
def test_pictures_letters_and_numbers_are_no_signs(text: str) -> None:
    assert route(text, Method.SEMANTIC).method is Method.SEMANTIC


@pytest.mark.parametrize("asked", Method)
def test_what_a_question_asks_for_holds(asked: Method) -> None:
    assert route("#tag", asked).method is asked
    assert route("a question of more words", asked) == route("#tag", asked)


def test_a_route_says_why() -> None:
    assert route("one", None).reason == "fewer than 3 words"
    assert route("to whom does #this belong", None).reason == "holds # or @"
    assert route("who owns the registry", None).reason == "3 words or more"
