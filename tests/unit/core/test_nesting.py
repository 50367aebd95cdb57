"""How deep is deep."""

import json
import time

import pytest

from app.parameters import check_submission
from workers.errors import InvalidParameters
from workers.nesting import DEEPEST_READ, is_nested_beyond


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("1", 1),
        ("[]", 1),
        ("[1]", 2),
        ('{"a": [1, {"b": []}], "c": 1}', 4),
        ("[" * 900 + "]" * 900, 900),
    ],
)
def test_levels_are_counted(text: str, levels: int) -> None:
    value = json.loads(text)

    assert not is_nested_beyond(value, levels)
    assert is_nested_beyond(value, levels - 1)


def test_a_submission_is_refused_whole_only_for_what_cannot_be_read_again() -> None:
    deepest = json.loads("[" * DEEPEST_READ + "]" * DEEPEST_READ)
    check_submission([deepest, 1], most=2)

    with pytest.raises(InvalidParameters, match=r"nodes\[0\]: is nested more than 110 levels"):
        check_submission([[deepest]], most=2)
    with pytest.raises(InvalidParameters, match="nodes: are 3, at most 2 are taken at once"):
        check_submission([1, 2, 3], most=2)


def test_looking_at_many_nodes_is_cheap() -> None:
    began = time.perf_counter()
    with pytest.raises(InvalidParameters):
        check_submission([0] * 2_000_000, most=100_000)
    assert time.perf_counter() - began < 0.1
