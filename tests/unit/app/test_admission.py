"""How much a process takes on at once, and how long what waits will wait."""

import threading
from contextlib import ExitStack
from typing import Any

import pytest

from app.admission import LEARN_S, Seats, Tempo
from tests.unit.app.app_fakes import Door
from tests.unit.pipeline.pipeline_fakes import FakeClock


def worker(task_s: float | None, slots: int = 1, *queues: str) -> dict[str, Any]:
    return {"queues": queues or ("query",), "slots": slots, "task_s": task_s}


class Workers:
    """What the live workers say of themselves."""

    def __init__(self, *says: dict[str, Any]) -> None:
        self.says = list(says)
        self.asked = 0

    def __call__(self) -> list[dict[str, Any]]:
        self.asked += 1
        return self.says


def test_there_are_so_many_seats_and_each_is_given_back() -> None:
    seats = Seats(2)

    with seats.take() as one, seats.take() as other, seats.take() as third:
        assert (one, other, third) == (True, True, False)
    with seats.take() as one, seats.take() as other:
        assert (one, other) == (True, True)


def test_a_seat_is_given_back_when_its_work_breaks() -> None:
    seats = Seats(1)
    with pytest.raises(ZeroDivisionError), seats.take():
        _ = 1 / 0

    with seats.take() as has_seat:
        assert has_seat


def test_who_had_no_seat_gives_none_back() -> None:
    seats = Seats(1)
    with seats.take():
        with seats.take() as none:
            assert not none
        with seats.take() as still_none:
            assert not still_none


def test_who_is_first_in_the_queue_does_not_wait() -> None:
    workers = Workers(worker(1.0))

    assert Tempo("query", workers).wait_s(0) == 0.0
    assert workers.asked == 0


def test_a_wait_follows_from_how_fast_all_slots_of_the_queue_work() -> None:
    workers = Workers(worker(0.5, 4), worker(1.0, 2), worker(0.1, 9, "jobs"))

    assert Tempo("query", workers).wait_s(20) == pytest.approx(2.0)


@pytest.mark.parametrize("says", [[], [worker(None)], [worker(1.0, 1, "merge")]])
def test_nobody_waits_as_long_as_nobody_knows(says: list[dict[str, Any]]) -> None:
    assert Tempo("query", Workers(*says)).wait_s(1000) == 0.0


def test_workers_are_asked_now_and_then() -> None:
    clock, workers = FakeClock(), Workers(worker(1.0))
    tempo = Tempo("query", workers, clock)
    assert [tempo.wait_s(2), tempo.wait_s(3)] == [2.0, 3.0]
    assert workers.asked == 1

    workers.says = [worker(0.5)]
    clock.advance(LEARN_S + 0.1)

    assert tempo.wait_s(2) == 1.0
    assert workers.asked == 2


def test_while_one_request_asks_the_others_go_by_what_was_known() -> None:
    clock = FakeClock()
    is_asking, may_answer = threading.Event(), threading.Event()
    answers = [[worker(1.0)], [worker(0.5)]]

    def workers() -> list[dict[str, Any]]:
        said = answers.pop(0)
        if not answers:
            is_asking.set()
            assert may_answer.wait(10.0)
        return said

    tempo = Tempo("query", workers, clock)
    assert tempo.wait_s(4) == 4.0
    clock.advance(LEARN_S + 0.1)
    asker = threading.Thread(target=tempo.wait_s, args=[4])
    asker.start()
    assert is_asking.wait(10.0)

    assert tempo.wait_s(4) == 4.0

    may_answer.set()
    asker.join(10.0)
    assert tempo.wait_s(4) == 2.0


def test_a_redis_that_does_not_answer_is_asked_again_later() -> None:
    clock = FakeClock()

    def workers() -> list[dict[str, Any]]:
        raise ZeroDivisionError

    tempo = Tempo("query", workers, clock)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            tempo.wait_s(1)


def test_a_question_without_a_seat_is_refused_at_once(door: Door) -> None:
    seats = door.client.application.extensions["front_door"].queries
    with ExitStack() as taken:
        while taken.enter_context(seats.take()):
            pass
        response = door.get("/memory/query?query=why")

    assert (response.status_code, response.get_json()["error"]) == (503, "overloaded")
    assert response.headers["Retry-After"] == "1"
    assert door.queries.sent == []
    assert door.get("/memory/query?query=why").status_code == 200


def test_a_question_that_would_wait_until_its_deadline_is_refused_at_once(door: Door) -> None:
    door.queries.waiting = 100  # ten seconds of work

    response = door.get("/memory/query?query=why&timeout_seconds=5")

    assert (response.status_code, response.get_json()["error"]) == (503, "overloaded")
    assert response.headers["Retry-After"] == "6"
    assert door.queries.sent == []
    assert door.get("/memory/query?query=why&timeout_seconds=30").status_code == 200


def test_a_question_gives_its_seat_back_whatever_becomes_of_it(door: Door) -> None:
    for _ in range(10):
        assert door.get("/memory/query?query=why&project=nope").status_code == 404

    assert door.get("/memory/query?query=why").status_code == 200
