"""What is logged, and how."""

import json
import logging
from collections.abc import Iterator

import pytest

from config.logs import set_up_logging


@pytest.fixture
def logging_as_in_a_worker() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    set_up_logging("INFO")
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("reason", "level"),
    [
        ("ChordError(\"Dependency x raised TaskRevokedError('expired')\")", "warning"),
        ("OSError()", "error"),
    ],
)
def test_a_chord_that_cannot_complete_is_one_line(
    logging_as_in_a_worker: None, capsys: pytest.CaptureFixture[str], reason: str, level: str
) -> None:
    set_up_logging("INFO")  # anew, as stderr is another one in here

    logging.getLogger("celery.backends.redis").error(
        "Chord %r raised: %s", "id", reason, exc_info=RuntimeError("why")
    )

    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert said["level"] == level
    assert "exception" not in said


@pytest.mark.parametrize("name", ["strategy", "request"])
def test_no_line_is_written_for_each_message(
    logging_as_in_a_worker: None, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    set_up_logging("INFO")

    logging.getLogger(f"celery.worker.{name}").info("Discarding revoked task: %s[%s]", "t", "id")
    logging.getLogger(f"celery.worker.{name}").error("Task handler raised error: %r", "why")

    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["level"] == "error"
