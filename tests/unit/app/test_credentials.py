"""What of a request is looked up as a key."""

import pytest
from flask import Request
from werkzeug.test import EnvironBuilder

from app.auth import authenticate
from workers.deadline import Deadline
from workers.errors import NotAuthenticated
from workers.model import Principal

KNOWN = "k" * 200


class RecordingKeys:
    """Knows one key and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_principal(self, key: str, deadline: Deadline) -> Principal | None:
        self.asked.append(key)
        return Principal("id", "test", True, None) if key == KNOWN else None


def request_with(key: str) -> Request:
    return Request(EnvironBuilder(headers={"X-API-Key": key}).get_environ())


def test_a_key_is_looked_up_as_it_was_sent() -> None:
    keys = RecordingKeys()

    assert authenticate(request_with(KNOWN), keys).key_id == "id"
    assert keys.asked == [KNOWN]


def test_a_text_longer_than_any_key_is_not_looked_up() -> None:
    keys = RecordingKeys()

    with pytest.raises(NotAuthenticated):
        authenticate(request_with(KNOWN + "k"), keys)

    assert keys.asked == []
