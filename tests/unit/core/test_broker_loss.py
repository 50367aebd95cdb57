"""What a worker does with tasks in its hands when the broker goes away."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from kombu.transport import virtual

from workers.celery_app import make_celery


class GoneChannel:
    """A channel whose broker takes nothing back."""

    do_restore = True

    def _restore(self, message: Any) -> None:
        raise ConnectionError


class Message:
    def serializable(self) -> dict[str, str]:
        return {"body": "what did we decide about the invoices?"}


def test_questions_that_cannot_be_given_back_are_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make_celery("redis://nowhere")
    held = virtual.QoS(GoneChannel())
    held.append(Message(), "1")

    held.restore_unacked_once()

    assert list(tmp_path.iterdir()) == []
