"""Which way to search, where the question does not say."""

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

    asked: what the question says itself, which always holds.
    """
    if asked is not None:
        return Route(asked, "asked for")
    if any(sign in text for sign in _SIGNS):
        return Route(Method.LEXICAL, f"holds {' or '.join(_SIGNS)}")
    if len(text.split()) < _FEW:
        return Route(Method.LEXICAL, f"fewer than {_FEW} words")
    return Route(Method.HYBRID, f"{_FEW} words or more")
