"""Generated memories: the same from the same seed, and shaped like a memory."""

from collections import Counter

import pytest

from app.bench.data import Size, give_vectors, project_nodes
from app.bench.errors import BenchError
from app.bench.scratch import other_database
from app.bench.texts import Writer, phrases
from workers.ingest.nodes import read_nodes
from workers.model import EmbeddingModel


def test_the_same_seed_writes_the_same_nodes_and_another_seed_others() -> None:
    size = Size.of(40)

    first, again, other = (project_nodes(Writer(seed), size) for seed in ("1:a", "1:a", "1:b"))

    assert first == again
    assert not {node["text"] for node in first} & {node["text"] for node in other}


def test_questions_are_new_each_time() -> None:
    writer = Writer("questions")

    questions = [writer.question() for _ in range(500)]

    assert len(set(questions)) == 500


def test_texts_are_of_real_words_and_of_a_real_length() -> None:
    writer = Writer("texts")

    lengths = [len(writer.passage().split()) for _ in range(200)]

    assert min(lengths) >= 16
    assert max(lengths) <= 48
    assert all(word.isascii() for phrase in phrases() for word in phrase)


def test_a_python_without_docstrings_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.bench.texts.inspect.getdoc", lambda thing: None)
    phrases.cache_clear()
    try:
        with pytest.raises(BenchError, match="-OO"):
            phrases()
    finally:
        phrases.cache_clear()


@pytest.mark.parametrize("nodes", [20, 40, 850, 1000])
def test_a_project_has_as_many_nodes_as_asked_most_of_them_turns(nodes: int) -> None:
    size = Size.of(nodes)

    assert size.nodes == nodes
    assert size.turns > size.notes > size.syntheses > 0


def test_the_service_would_take_every_node_with_its_parents_and_its_vector() -> None:
    nodes = project_nodes(Writer("1:a"), Size.of(40))
    give_vectors(nodes, "model", 8, "1:a")

    taken, refused = read_nodes(
        nodes, "bench", None, EmbeddingModel("model", None, 8), lambda _project, _shas: {}
    )

    assert not refused
    assert {len(node.parents) for node in taken} == {0, 3}
    assert Counter(node.level.value for node in taken) == Counter({"L0": 29, "L1": 9, "L2": 2})


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("unix://:secret@/run/valkey.sock?db=0", "unix://:secret@/run/valkey.sock?db=1"),
        ("redis://host:6379", "redis://host:6379?db=1"),
    ],
)
def test_a_second_service_gets_a_redis_database_of_its_own(url: str, expected: str) -> None:
    assert other_database(url) == expected
