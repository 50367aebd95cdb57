"""What workers and web server are told by their environment, and signals as wishes."""

import os
import signal
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.local import stack
from app.local.errors import StopRequested
from app.local.signals import StopRequest
from config.settings import Settings


def test_children_get_the_settings_in_force_whether_or_not_they_came_from_the_environment() -> None:
    given = Settings(rerank_depth=7, api_key=SecretStr("key")).model_copy(
        update={"port": 81, "redis_url": None, "data_dir": Path("/state")}
    )

    told = stack._service_environment(given, "postgresql://db", "unix:///queue")

    assert told["POIMEN_RERANK_DEPTH"] == "7"
    assert (told["POIMEN_API_KEY"], told["POIMEN_PORT"]) == ("key", "81")
    assert told["POIMEN_DATABASE_URL"] == "postgresql://db"
    assert told["POIMEN_REDIS_URL"] == "unix:///queue"
    assert told["POIMEN_DATA_DIR"] == "/state"
    assert told["OPENBLAS_NUM_THREADS"] == told["OMP_NUM_THREADS"] == "1"


def test_a_signal_is_noticed_at_the_next_check_and_a_second_one_hurries() -> None:
    request = StopRequest()
    before = signal.getsignal(signal.SIGTERM)
    with request.listening():
        request.check()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(StopRequested):
            request.check()
        assert not request.is_hurried()
        os.kill(os.getpid(), signal.SIGINT)
        assert request.is_hurried()

    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_interrupts_a_block_once_and_never_what_comes_after_it() -> None:
    request = StopRequest()
    with request.listening():
        with pytest.raises(KeyboardInterrupt), request.interrupting():
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    assert request.count == 2
