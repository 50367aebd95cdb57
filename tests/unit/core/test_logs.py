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


@pytest.mark.parametrize("name", ["strategy", "request"])
def test_no_line_is_written_for_each_message(
    logging_as_in_a_worker: None, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    set_up_logging("INFO")

    logging.getLogger(f"celery.worker.{name}").info("Discarding revoked task: %s[%s]", "t", "id")
    logging.getLogger(f"celery.worker.{name}").error("Task handler raised error: %r", "why")

    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["level"] == "error"
