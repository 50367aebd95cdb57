"""Both sides in turns, and clients side by side."""

import itertools
import threading
from collections.abc import Sequence

import pytest

from app.bench.processes import Meter
from app.bench.rounds import compare, under_load
from app.bench.sides import Stages

QUESTIONS = [(f"question {number}", ["p"]) for number in range(4)]


class FakeSide:
    def __init__(self, name: str, heard: list[tuple[str, str]], stages: Stages) -> None:
        self.name, self.heard, self.stages = name, heard, stages

    def ask(self, question: str, projects: Sequence[str]) -> Stages:
        self.heard.append((self.name, question))
        return self.stages


def test_both_sides_hear_every_question_and_take_turns_in_going_first() -> None:
    heard: list[tuple[str, str]] = []
    product, direct = FakeSide("product", heard, {"embed_ms": 7.0}), FakeSide("direct", heard, {})

    block = compare("single", QUESTIONS, product, direct, Meter(()))

    assert [name for name, _ in heard] == [
        *("direct", "product"),
        *("product", "direct"),
        *("direct", "product"),
        *("product", "direct"),
    ]
    assert [question for _, question in heard[::2]] == [text for text, _ in QUESTIONS]
    assert len(block.product.ms) == len(block.direct.ms) == len(QUESTIONS)
    assert block.stages() == {"embed_ms": 7.0}
    assert set(block.figures()) == {
        *(f"single_p{percent}_ms" for percent in (10, 50, 95)),
        *(f"single_floor_p{percent}_ms" for percent in (10, 50, 95)),
        *("single_cpu_ms", "single_floor_cpu_ms"),
    }


def test_clients_ask_at_the_same_time_and_never_the_same_question() -> None:
    meeting = threading.Barrier(3, timeout=10)
    heard: list[tuple[str, str]] = []

    class Meeting(FakeSide):
        met = False

        def ask(self, question: str, projects: Sequence[str]) -> Stages:
            if not self.met:
                meeting.wait()
                self.met = True
            return super().ask(question, projects)

    supply = ((f"question {number}", ["p"]) for number in itertools.count())

    load = under_load([Meeting(str(n), heard, {}) for n in range(3)], supply, seconds=0.05)

    assert len(load.ms) == len(heard) == len({question for _, question in heard})
    assert load.per_second == pytest.approx(len(load.ms) / load.elapsed_s)


def test_a_failing_client_ends_the_others_and_is_told() -> None:
    class Failing(FakeSide):
        def ask(self, question: str, projects: Sequence[str]) -> Stages:
            raise RuntimeError("no answer")

    heard: list[tuple[str, str]] = []
    sides = [Failing("bad", heard, {}), FakeSide("good", heard, {})]

    with pytest.raises(RuntimeError, match="no answer"):
        under_load(sides, itertools.cycle(QUESTIONS), seconds=0.05)
