"""Errors of pydantic, told without its jargon."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.parameters import ProjectParameters, validate
from workers.contracts import NodeBody
from workers.errors import InvalidParameters
from workers.wording import wrong

NODE = {"level": "L0", "kind": "turn", "source": "s", "text": "t"}


def said_of(**members: Any) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        NodeBody.model_validate(NODE | members)
    return {str(detail["loc"][0]): wrong(detail) for detail in caught.value.errors()}


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("project", "Not A Name", "is not 1 to 64 of a-z 0-9 . _ - beginning with a letter or"),
        ("position", "1", "is not a whole number"),
        ("position", 1.5, "is not a whole number"),
        ("position", -1, "is below 0"),
        ("position", 2**31, "is above 2,147,483,647"),
        ("text", 5, "is not text"),
        ("text", "", "is empty"),
        ("text", "x" * 200_001, "has more than 200,000 characters"),
        ("text", "half \ud83d", "is not text"),
        ("parents", "a", "is not a list"),
        ("parents", ["a"] * 10_001, "has more than 10,000 entries"),
        ("level", "L9", "is not 'L0', 'L1' or 'L2'"),
        ("kind", "tweet", "is not 'turn'"),
        ("occurred_at", "soon", "is not an instant with a time zone"),
        ("occurred_at", "2026-07-21T09:52:03", "is not an instant with a time zone"),
        ("occurred_at", "2026-13-45T09:52:03Z", "is not an instant with a time zone"),
        ("metadata", [], "is not a JSON object"),
        ("embedding", ["a"], "is not a number"),
        ("nonsense", 1, "is unknown"),
    ],
)
def test_a_wrong_member_of_a_node_is_told_in_a_sentence(
    member: str, value: object, reason: str
) -> None:
    assert said_of(**{member: value})[member].startswith(reason)


def test_a_missing_member_is_required() -> None:
    with pytest.raises(ValidationError) as caught:
        NodeBody.model_validate({})

    assert {wrong(detail) for detail in caught.value.errors()} == {"is required"}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"project": "A"}, "is not 1 to 64 of a-z 0-9 . _ - beginning with a letter or digit"),
        ({"roots": ["src"]}, "is not an absolute folder"),
        ({"title": 5}, "is not text"),
    ],
)
def test_parameters_use_the_same_words(members: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidParameters) as caught:
        validate(ProjectParameters, {"project": "poimen"} | members)

    assert [error["reason"] for error in caught.value.errors] == [reason]
