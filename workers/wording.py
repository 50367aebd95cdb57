"""What is wrong with a value, in words for whoever sent it. Never quotes the value."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workers.model import PROJECT_NAME

ABSOLUTE_FOLDER = r"^/[^\x00]*$"
SHA256_PREFIX = r"^[0-9a-f]{8,64}$"
SHA256 = r"^[0-9a-f]{64}$"
QUERY_ID = r"^[0-9a-f]{32}$"

_INSTANT = "is not an instant with a time zone, such as 2026-07-21T09:52:03Z"
_PATTERNS = {
    PROJECT_NAME: "is not 1 to 64 of a-z 0-9 . _ - beginning with a letter or digit",
    ABSOLUTE_FOLDER: "is not an absolute folder",
    SHA256_PREFIX: "is not 8 to 64 of 0-9 a-f",
    SHA256: "is not the id of a result: 64 of 0-9 a-f",
    QUERY_ID: "is not the query_id of an answer: 32 of 0-9 a-f",
}
_SENTENCES = {
    "missing": "is required",
    "extra_forbidden": "is unknown",
    "model_type": "is not a JSON object",
    "dict_type": "is not a JSON object",
    "list_type": "is not a list",
    "string_type": "is not text",
    "string_unicode": "is not text: half of a character is missing",
    "int_type": "is not a whole number",
    "int_parsing": "is not a whole number",
    "int_from_float": "is not a whole number",
    "float_type": "is not a number",
    "float_parsing": "is not a number",
    "finite_number": "is not a finite number",
    "bool_type": "is neither true nor false",
    "bool_parsing": "is neither true nor false",
    "datetime_type": _INSTANT,
    "datetime_parsing": _INSTANT,
    "datetime_from_date_parsing": _INSTANT,
    "datetime_object_invalid": _INSTANT,
    "timezone_aware": _INSTANT,
}


def _at_least(count: int, unit: str) -> str:
    return "is empty" if count == 1 else f"has fewer than {count:,} {unit}"


_WITH_FACTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "string_too_short": lambda facts: _at_least(facts["min_length"], "characters"),
    "string_too_long": lambda facts: f"has more than {facts['max_length']:,} characters",
    "too_short": lambda facts: _at_least(facts["min_length"], "entries"),
    "too_long": lambda facts: f"has more than {facts['max_length']:,} entries",
    "greater_than": lambda facts: f"is not above {facts['gt']:,}",
    "greater_than_equal": lambda facts: f"is below {facts['ge']:,}",
    "less_than_equal": lambda facts: f"is above {facts['le']:,}",
    "literal_error": lambda facts: f"is not {facts['expected']}",
    "enum": lambda facts: f"is not {facts['expected']}",
    "value_error": lambda facts: str(facts["error"]),
}


def place_of(loc: Sequence[int | str]) -> str:
    """Where in a value something is wrong, as programs write it: files[0].name."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return "".join(steps).removeprefix(".")


def wrong(detail: Mapping[str, Any]) -> str:
    """One of pydantic's error details as the end of a sentence that begins with a name."""
    kind, facts = detail["type"], detail.get("ctx", {})
    if kind in _SENTENCES:
        return _SENTENCES[kind]
    if kind in _WITH_FACTS:
        return _WITH_FACTS[kind](facts)
    said = _PATTERNS.get(facts.get("pattern", "")) or str(detail["msg"])
    return said[0].lower() + said[1:]
