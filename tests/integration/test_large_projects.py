"""A project that has outgrown exact recall: its own index, the same answers, never fewer rows."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.integration.service import Service, running, until
from workers.deadline import Deadline
from workers.model import Filters, Level, Reads
from workers.pipeline.walk import FANS
from workers.store.database import Database
from workers.store.search import QUERIES, RECALL_HNSW, ProjectSearch
from workers.store.vector_indexes import IndexedProjects

EXACT_ROWS = 500
NODES = 4000
DIMENSION = 384
LATER = Deadline.after(86_400)  # counted from when the tests are collected

# Topics with spread, as texts have: uniform noise would be a harder case than any memory.
_RANDOM = np.random.default_rng(11)
_TOPICS = _RANDOM.normal(size=(40, DIMENSION))


def named(number: int) -> str:
    """A sha256 of which the first half tells it apart, as it does of real ones; in order."""
    return f"{number:032x}" + 32 * "0"


def vectors(count: int) -> np.ndarray:
    near = _TOPICS[_RANDOM.integers(0, len(_TOPICS), count)]
    spread = near + 1.2 * _RANDOM.normal(size=(count, DIMENSION))
    unit: np.ndarray = spread / np.linalg.norm(spread, axis=1, keepdims=True)
    return unit.astype(np.float32)


@pytest.fixture(scope="module")
def large() -> Iterator[Service]:
    with running(POIMEN_EXACT_ROWS=str(EXACT_ROWS)) as service:
        _fill(service, "large", NODES)
        _fill(service, "small", 40)
        until(lambda: _indexes(service), within_s=60)
        yield service


def _fill(service: Service, project: str, count: int) -> None:
    """Rows written beside the product, since encoding thousands of texts takes minutes."""
    rows = [
        (project, named(n), "L0" if n % 4 else "L1", json.dumps(vector.tolist()))
        for n, vector in enumerate(vectors(count))
    ]
    with service.connect() as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO project (project) VALUES (%s)", [project])
        cursor.execute("CREATE TEMP TABLE given (project text, sha256 text, level text, v text)")
        with cursor.copy("COPY given FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        cursor.execute(
            "INSERT INTO memory_node (project, sha256, level, kind, source, text)"
            " SELECT project, sha256, level, 'turn', 'made', 'text ' || sha256 FROM given"
        )
        cursor.execute(
            "INSERT INTO node_vector (project, model, sha256, level, embedding)"
            " SELECT project, model, given.sha256, level, v::vector"
            " FROM given, embedding_model WHERE is_active"
        )
        cursor.execute("DROP TABLE given")


def _indexes(service: Service) -> list[tuple[Any, ...]]:
    with service.connect() as connection:
        return connection.execute("SELECT project, name FROM vector_index").fetchall()


@pytest.fixture(scope="module")
def searches(large: Service) -> Iterator[dict[str, ProjectSearch]]:
    """The large project twice: as it is served, and never by its index."""
    database = Database(large.database_url, 2)
    indexed = IndexedProjects(database, 1, LATER.clock)
    yield {
        "served": ProjectSearch(database, "large", 1, None, indexed, EXACT_ROWS),
        "exact": ProjectSearch(database, "large", 1, None, indexed, 10 * NODES),
        "small": ProjectSearch(database, "small", 1, None, indexed, EXACT_ROWS),
    }
    database.close()


def test_only_the_large_project_has_an_index(large: Service) -> None:
    assert [project for project, _ in _indexes(large)] == ["large"]


def test_the_planner_uses_the_project_s_own_index(large: Service) -> None:
    ((_, name),) = _indexes(large)
    query = RECALL_HNSW.replace("DIMENSION", str(DIMENSION))
    arguments = {
        "project": "large",
        "model": 1,
        "levels": ["L0", "L1"],
        "depth": 50,
        "also": [],
        "has_length": False,
        "has_tokens": False,
        "has_text": False,
        "token_model": None,
        "query": json.dumps(vectors(1)[0].tolist()),
    }
    with large.connect() as connection, connection.transaction():
        settings = {"ef_search": "400", "max_scan_tuples": "20000"}
        connection.execute(QUERIES["hnsw_settings"].encode(), settings)
        query = query.replace("%(query)s", "%(query)s::vector")
        plan = connection.execute(f"EXPLAIN {query}".encode(), arguments, prepare=False).fetchall()

    assert any(f"Index Scan using {name}" in line for (line,) in plan), plan


def test_the_answer_says_which_plan_found_it(large: Service) -> None:
    answer = large.ask("anything at all", level="L0,L1", limit=5)

    plans = {o["project"]: (o["plan"], o["got"]) for o in answer["federation"]["projects"]}
    assert plans == {"large": ("hnsw", 50), "small": ("exact", 40)}


@pytest.mark.parametrize("share", [1, 100, 3900])
def test_a_filter_makes_the_index_lose_nothing(
    large: Service, searches: dict[str, ProjectSearch], share: int
) -> None:
    levels = [Level.L0, Level.L1]
    with large.connect() as connection:
        connection.execute(
            "UPDATE memory_node SET tags = ARRAY['some'] WHERE project = 'large' AND sha256 <= %s",
            [named(share - 1)],
        )

    for question in vectors(3):
        recalled = searches["served"].recall(
            question, levels, 50, (), Reads.NOTHING, LATER, Filters(tags=("some",))
        )
        every = searches["exact"].recall(question, levels, NODES, (), Reads.NOTHING, LATER)

        passing = [one for one in every.candidates if one.sha256 < named(share)]
        assert (recalled.plan, recalled.documents) == ("exact", share)
        assert list(recalled.candidates) == passing[:50]


def test_the_index_finds_what_exact_recall_finds(searches: dict[str, ProjectSearch]) -> None:
    found = expected = 0
    for question in vectors(40):
        served, exact = (
            searches[name].recall(question, [Level.L0, Level.L1], 50, (), Reads.NOTHING, LATER)
            for name in ("served", "exact")
        )
        assert (served.plan, exact.plan) == ("hnsw", "exact")
        distances = [candidate.distance for candidate in served.candidates]
        assert distances == sorted(distances)
        best = {candidate.sha256 for candidate in exact.candidates}
        found += len(best & {candidate.sha256 for candidate in served.candidates})
        expected += len(best)

    assert found / expected >= 0.95


@pytest.mark.parametrize("levels", [[Level.L0], [Level.L1], [Level.L2], [Level.L0, Level.L2]])
@pytest.mark.parametrize("depth", [50, 500])
def test_no_filter_makes_the_index_answer_short(
    searches: dict[str, ProjectSearch], levels: list[Level], depth: int
) -> None:
    for question in vectors(5):
        served = searches["served"].recall(question, levels, depth, (), Reads.NOTHING, LATER)
        exact = searches["exact"].recall(question, levels, depth, (), Reads.NOTHING, LATER)

        assert len(served.candidates) == len(exact.candidates)
        assert served.documents == exact.documents
        assert {candidate.level for candidate in served.candidates} <= set(levels)


@pytest.mark.parametrize("name", ["served", "exact", "small"])
def test_recalling_and_loading_at_once_finds_the_same(
    searches: dict[str, ProjectSearch], name: str
) -> None:
    (question,) = vectors(1)
    levels = [Level.L0, Level.L1]
    recalled = searches[name].recall(question, levels, 50, (), Reads.NOTHING, LATER)
    best = recalled.candidates[:5]

    at_once, loaded = searches[name].recall_and_load(question, levels, 50, 5, FANS, LATER)

    assert at_once.candidates[:5] == best
    assert (at_once.found, at_once.documents) == (recalled.found, recalled.documents)
    assert at_once.plan == recalled.plan
    assert loaded == searches[name].load([one.sha256 for one in best], FANS, LATER)
    assert [node.text for node in loaded.nodes.values()] == [f"text {one.sha256}" for one in best]


def test_where_nothing_is_found_nothing_is_loaded(searches: dict[str, ProjectSearch]) -> None:
    (question,) = vectors(1)

    recalled, loaded = searches["small"].recall_and_load(question, [Level.L2], 50, 5, FANS, LATER)

    assert (recalled.candidates, recalled.found, recalled.documents) == ((), 0, 0)
    assert (loaded.nodes, loaded.steps) == ({}, [])


def test_an_index_whose_project_is_gone_is_dropped(large: Service) -> None:
    _fill(large, "passing", 2 * EXACT_ROWS)
    until(lambda: len(_indexes(large)) == 2, within_s=60)

    with large.connect() as connection:
        connection.execute("DELETE FROM project WHERE project = 'passing'")

    def left() -> bool:
        with large.connect() as connection:
            rows = connection.execute(
                "SELECT relname FROM pg_class WHERE starts_with(relname, 'node_vector_hnsw_')"
            ).fetchall()
        return len(rows) == 1

    until(left, within_s=60)
