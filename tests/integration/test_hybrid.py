"""One statement for both legs finds what the two of them find beside each other."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from app.bench.sides import at_once
from tests.integration.service import Service
from tests.integration.test_lexical import ENGLISH, LATER, LEVELS, corpus, node_of, questions
from tests.unit.pipeline.pipeline_fakes import FakeScorer
from workers.model import (
    Encoding,
    Filters,
    Level,
    Method,
    Node,
    Outcome,
    Query,
    Reads,
    Status,
    Weights,
)
from workers.pipeline.answer import answer
from workers.pipeline.engines import Engines
from workers.retrieval import Retrieval
from workers.store import lexical
from workers.store.database import Database
from workers.store.nodes import PostgresNodes
from workers.store.projects import ProjectWeights
from workers.store.vector_indexes import IndexedProjects, VectorIndexes


@pytest.fixture
def database(empty_service: Service) -> Iterator[Database]:
    with closing(Database(empty_service.database_url, 4)) as database:
        yield database


def vector(seed: int) -> Encoding:
    numbers = np.random.default_rng(seed).standard_normal(384).astype(np.float32)
    return Encoding(numbers / np.float32(np.linalg.norm(numbers)), None)


def store(database: Database, nodes: Sequence[Node], without_vector: int = 0) -> None:
    """As ingest does it; the last ones are still waiting for their vectors."""
    encodings = {node.key: vector(number) for number, node in enumerate(nodes)}
    with database.transaction() as connection:
        repository = PostgresNodes(connection, 1, None, ENGLISH)
        repository.claim_projects(node.project for node in nodes)
        repository.save(nodes, encodings)
        waiting = [node.sha256 for node in nodes[len(nodes) - without_vector :]]
        connection.execute("DELETE FROM node_vector WHERE sha256 = ANY(%s)", [waiting])


def engines_of(
    database: Database, encoding: Encoding, rerank_depth: int, exact_rows: int = 20_000
) -> Engines:
    indexed = IndexedProjects(database, 1, time.monotonic)
    weights = ProjectWeights(database, time.monotonic)
    retrieval = Retrieval(database, 1, None, indexed, weights, exact_rows, ENGLISH, at_once)
    scorer = FakeScorer(needs_text=True)
    return retrieval.engines_of(
        "p", lambda _text, _until: (encoding, "given"), scorer, rerank_depth
    )


def outcome_of(query: Query, engines: Engines) -> Outcome:
    outcome = answer(query, "p", engines, LATER)
    assert outcome.status is Status.SUCCESSFUL
    return replace(outcome, stages_ms={})


@pytest.mark.parametrize("bounds", [{}, {"FREQUENT": 0.02, "MOST_READ": 120}])
@pytest.mark.parametrize("rerank_depth", [0, 7, 100])
def test_one_statement_answers_as_two_legs_do(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    rerank_depth: int,
    bounds: dict[str, float],
) -> None:
    for name, value in bounds.items():
        monkeypatch.setattr(lexical, name, value)
    store(database, corpus(900), without_vector=90)
    chance = random.Random(11)

    for seed, question in enumerate(questions(60)):
        levels = chance.choice([LEVELS, (Level.L1, Level.L2), (Level.L1,)])
        query = Query(
            question,
            levels,
            limit=chance.choice([1, 5, 10]),
            method=Method.HYBRID,
            semantic_weight=chance.choice([0.0, 0.3, 0.6, 1.0]),
            is_explained=bool(seed % 2),
        )
        engines = engines_of(database, vector(seed), rerank_depth)

        together = outcome_of(query, engines)
        apart = outcome_of(query, replace(engines, both=None))

        assert rounded(together) == rounded(apart)


def rounded(outcome: Outcome) -> Outcome:
    """Sums of floating-point numbers may differ in their last digits, by the order of adding."""
    return replace(
        outcome,
        hits=tuple(
            replace(hit, lexical=round(hit.lexical or 0, 9), fused=round(hit.fused, 9))
            for hit in outcome.hits
        ),
        explained=tuple(
            replace(
                one,
                bm25=round(one.bm25 or 0, 9),
                lexical=round(one.lexical or 0, 9),
                fused=round(one.fused, 9),
            )
            for one in outcome.explained
        ),
    )


def test_only_what_can_be_in_the_answer_is_read(database: Database) -> None:
    store(database, corpus(300))
    both = engines_of(database, vector(1), 60).both
    assert both is not None
    asked = (Query("usual common", LEVELS), vector(1).vector, Weights(0.6, 0.4))

    few = both.recall(*asked, 60, Reads.TEXT, LATER)
    whole = both.recall(*asked, None, Reads.TEXT, LATER)

    assert len(few.candidates) == 60 < len(whole.candidates) == few.count
    assert few.candidates == whole.candidates[:60]
    assert all(one.text for one in few.candidates)


def test_a_project_without_nodes_has_no_candidates(database: Database) -> None:
    outcome = outcome_of(Query("anything", LEVELS), engines_of(database, vector(1), 100))

    assert (outcome.candidates, outcome.documents, outcome.hits) == (0, 0, ())


def test_filters_and_an_index_are_left_to_the_two_legs(database: Database) -> None:
    store(database, [node_of("p", f"text {number}") for number in range(30)])
    VectorIndexes(database, 1, 384).build("p")
    plain, large = (engines_of(database, vector(1), 0, exact_rows) for exact_rows in (30, 29))
    query = Query("text", LEVELS)
    assert plain.both is not None
    assert large.both is not None

    assert plain.both.suits(query, LATER)
    assert not plain.both.suits(replace(query, filters=Filters(tags=("x",))), LATER)
    assert not large.both.suits(query, LATER)
