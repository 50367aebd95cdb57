"""Batches that a server takes, found out by what it refuses."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engines.batching import Batches, cut
from workers.engines.http_calls import TooLarge
from workers.model import Refused


class Server:
    """Answers a text with itself; refuses what `is_too_large` says."""

    def __init__(self, is_too_large: Callable[[Sequence[str]], bool]) -> None:
        self.is_too_large = is_too_large
        self.requests: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[str]:
        self.requests.append(list(texts))
        if self.is_too_large(texts):
            raise TooLarge("too large")
        return list(texts)

    @property
    def sizes(self) -> list[int]:
        return [len(request) for request in self.requests]


def texts(count: int) -> list[str]:
    return [f"text {number}" for number in range(count)]


def test_texts_go_out_in_batches_and_come_back_in_order() -> None:
    server = Server(lambda batch: False)

    assert Batches(4).send(texts(10), server) == texts(10)
    assert server.sizes == [4, 4, 2]


@pytest.mark.parametrize("most", [1, 3, 8, 31])
def test_the_size_falls_to_what_the_server_takes(most: int) -> None:
    server, batches = Server(lambda batch: len(batch) > most), Batches(32)

    assert batches.send(texts(60), server) == texts(60)
    assert 1 <= batches.size <= most


def test_the_size_is_remembered() -> None:
    server, batches = Server(lambda batch: len(batch) > 8), Batches(32)
    batches.send(texts(60), server)
    server.requests.clear()

    batches.send(texts(60), server)

    assert server.sizes == [8, 8, 8, 8, 8, 8, 8, 4]


def test_one_long_text_does_not_lower_the_size_for_the_others() -> None:
    server, batches = Server(lambda batch: any(len(text) > 500 for text in batch)), Batches(8)
    long = "word " * 300

    sent = batches.send([*texts(5), long, *texts(2)], server)

    assert sent[:5] + sent[6:] == texts(5) + texts(2)
    assert isinstance(sent[5], str)
    assert long.startswith(sent[5])
    assert 250 < len(sent[5]) <= 500
    assert batches.size == 8


def test_a_text_that_is_never_taken_is_refused_and_its_neighbours_are_not() -> None:
    server = Server(lambda batch: any("odd" in text for text in batch))

    sent = Batches(8).send([*texts(5), "odd"], server)

    assert sent[:5] == texts(5)
    assert isinstance(sent[5], Refused)


def test_a_server_that_refuses_everything_is_not_asked_for_every_text() -> None:
    server = Server(lambda batch: True)

    with pytest.raises(TooLarge):
        Batches(32).send(texts(1000), server)

    assert len(server.requests) < 15


def test_nothing_to_send_asks_nothing() -> None:
    server = Server(lambda batch: True)

    assert Batches(8).send([], server) == []
    assert server.requests == []


@given(st.text(max_size=200), st.integers(0, 300))
def test_a_text_is_cut_by_bytes_and_never_within_a_character(text: str, most: int) -> None:
    kept = cut(text, most)

    assert text.startswith(kept)
    assert len(kept.encode()) <= most
    if kept != text:
        assert len(text[: len(kept) + 1].encode()) > most
