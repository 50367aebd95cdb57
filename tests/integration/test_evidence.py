"""What a reranker reads of a candidate: its place, and of a note also its evidence."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import pytest

from tests.integration.service import Service
from tests.integration.test_lexical import ENGLISH, LATER, node_of
from workers.model import Candidate, Encoding, Kind, Level, Node, Reads
from workers.store.database import Database
from workers.store.nodes import PostgresNodes
from workers.store.search import ProjectSearch
from workers.store.vector_indexes import IndexedProjects

TOKEN_MODEL = "tokens of a test"


@pytest.fixture
def database(empty_service: Service) -> Iterator[Database]:
    with closing(Database(empty_service.database_url, 4)) as database:
        yield database


def store(database: Database, *nodes: tuple[Node, bytes | None]) -> None:
    vector = np.eye(384, dtype=np.float32)[0]
    with database.transaction() as connection:
        repository = PostgresNodes(connection, 1, TOKEN_MODEL, ENGLISH)
        repository.claim_projects({"p"})
        repository.save(
            [node for node, _ in nodes], {node.key: Encoding(vector, own) for node, own in nodes}
        )


def read(database: Database, *nodes: Node) -> Sequence[Candidate]:
    search = searched(database)
    found = [Candidate(node.sha256, node.level, None) for node in nodes]
    return search.read(found, Reads.TOKENS, LATER)


def read_with_evidence(database: Database, *nodes: Node) -> Sequence[Candidate]:
    return searched(database).read_evidence(read(database, *nodes), LATER)


def searched(database: Database) -> ProjectSearch:
    indexed = IndexedProjects(database, 1, time.monotonic)
    return ProjectSearch(database, "p", 1, TOKEN_MODEL, indexed, 20_000)


def test_a_candidate_has_its_place_in_its_source(database: Database) -> None:
    turn = node_of("p", "hello", position=7)
    store(database, (turn, b"t" * 128))

    (found,) = read(database, turn)

    assert (found.kind, found.source, found.position) == (Kind.TURN, "s", 7)
    assert (found.tokens, found.text_length) == (b"t" * 128, 5)


def test_a_note_is_read_with_the_first_two_turns_it_rests_on(database: Database) -> None:
    turns = [node_of("p", "x" * (10**place)) for place in range(3)]
    ordered = tuple(turns[place].sha256 for place in (2, 0, 1))
    note = node_of("p", "note", Level.L1, parents=ordered)
    store(
        database,
        *((turn, bytes([place]) * 128) for place, turn in enumerate(turns)),
        (note, b"n" * 128),
    )

    (found,) = read_with_evidence(database, note)

    assert found.tokens == b"n" * 128 + b"\x02" * 128 + b"\x00" * 128
    assert found.text_length == 4 + 100 + 1


def test_only_turns_are_evidence(database: Database) -> None:
    turn, page = node_of("p", "turn"), node_of("p", "a whole page", kind=Kind.DOCUMENT)
    of_page = node_of("p", "of a page", Level.L1, parents=(page.sha256,))
    of_turn = node_of("p", "of a turn", Level.L1, parents=(turn.sha256,))
    nodes = (turn, page, of_page, of_turn)
    store(database, *((node, node.kind.value.encode()) for node in nodes))

    found = read_with_evidence(database, of_page, of_turn)

    assert [one.tokens for one in found] == [b"note", b"noteturn"]
    assert [one.text_length for one in found] == [9, 13]


def test_a_turn_that_was_not_prepared_adds_nothing(database: Database) -> None:
    turn, bare = node_of("p", "turn"), node_of("p", "bare turn")
    note = node_of("p", "note", Level.L1, parents=(bare.sha256, turn.sha256))
    store(database, (turn, b"turn"), (bare, None), (note, b"note"))

    (found,) = read_with_evidence(database, note)

    assert (found.tokens, found.text_length) == (b"noteturn", 8)
