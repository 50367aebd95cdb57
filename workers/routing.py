"""Which way to search, where the question does not say."""

import unicodedata
from dataclasses import dataclass

from workers.model import Method

_FEW = 3  # words from which on a question has a meaning to compare
_SIGNS = ("#", "@")


@dataclass(frozen=True, slots=True)
class Route:
    """The way chosen, and why."""

    method: Method
    reason: str


def route(text: str, asked: Method | None) -> Route:
    """Names, tags and single words are looked for as words; what is asked otherwise, both ways.

    asked: what the question says itself, which holds wherever there is a word in it. Signs alone
    mean nothing: by meaning they would be near to whatever there is.
    """
    words = _words(text)
    if not words:
        return Route(Method.LEXICAL, "holds no word")
    if asked is not None:
        return Route(asked, "asked for")
    if any(sign in text for sign in _SIGNS):
        return Route(Method.LEXICAL, f"holds {' or '.join(_SIGNS)}")
    if len(words) < _FEW:
        return Route(Method.LEXICAL, f"fewer than {_FEW} words")
    return Route(Method.HYBRID, f"{_FEW} words or more")


def has_words(text: str) -> bool:
    """Whether there is anything in a question but signs."""
    return bool(_words(text))


def _words(text: str) -> list[str]:
    return [word for word in text.split() if not all(map(_is_sign, word))]


def _is_sign(character: str) -> bool:
    """Punctuation, mathematics, what cannot be seen. Pictures are none: they mean something."""
    category = unicodedata.category(character)
    return category != "So" and category[0] in "PSZC"
