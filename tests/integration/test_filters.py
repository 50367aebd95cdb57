"""Filters and facets on the real service, against a plain look at every node that is stored."""

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.callers import Caller
from tests.integration.obstacles import slow_projects
from tests.integration.service import Service, running
from tests.integration.uploads import take_one
from tests.unit.ingest.session_files import Record, cx_item, cx_meta, file_of
from workers.deadline import Deadline
from workers.engines.search_text import SearchText
from workers.model import Filters, Kind, Level, Method, Query, Reads
from workers.pipeline.walk import FANS
from workers.store.database import Database
from workers.store.facets import ProjectCounts
from workers.store.filters import like
from workers.store.lexical import ProjectLexicon
from workers.store.search import ProjectSearch
from workers.store.vector_indexes import IndexedProjects

ENGLISH = SearchText("english")
ALL = "L0,L1,L2"
METHODS = ("semantic", "hybrid", "lexical")
QUESTION = "which kettle and which valve leaks?"
PROJECTS = ("alpha", "beta", "gamma")
SOURCES = (
    "report_01",
    "reportX01",
    "50% off.md",
    "docs/a.md",
    "docs/deep/b.md",
    "docs",
    "DOCS/c.md",
)
SOURCES += ("/srv/log", "back\\slash", "[ab]", "a", "ünï/木.md")
TAGS = ("red", "blue", "2026-03-01", "100%", "a_b")
STANDING = ("causes", "costs", "x_y")
START = datetime(2026, 3, 3, tzinfo=UTC)


class Stored(NamedTuple):
    """A node as it stands in PostgreSQL."""

    project: str
    sha256: str
    level: str
    kind: str
    source: str
    text: str
    tags: list[str]
    standing_id: str | None
    occurred_at: datetime | None
    updated_at: datetime


def nodes_of(project: str, count: int) -> list[dict[str, Any]]:
    """Nodes with a little of everything, the first of them evidence for the others."""
    chance = random.Random(project)
    kinds = {"L0": ["turn", "document"], "L1": ["note", "chunk"], "L2": ["synthesis"]}
    nodes: list[dict[str, Any]] = []
    for number in range(count):
        level = "L0" if number < 2 else chance.choice(["L0", "L1", "L1", "L2"])
        words = chance.sample(["kettle", "valve", "gauge", "pump", "tank"], 2)
        nodes.append(
            {
                "id": f"n{number}",
                "level": level,
                "kind": chance.choice(kinds[level]),
                "source": chance.choice(SOURCES),
                "text": f"The {words[0]} of {project} and its {words[1]}, item {number}.",
                "tags": chance.sample(TAGS, chance.randint(0, 3)),
            }
        )
        if level != "L0":
            nodes[-1]["parents"] = ["n0"]
        if level == "L2":
            nodes[-1]["parents"] = [
                next((n["id"] for n in nodes if n["level"] == "L1"), "n1"),
            ]
        if chance.random() < 0.4:
            nodes[-1]["standing_id"] = chance.choice(STANDING)
        if chance.random() < 0.8:
            happened = START + timedelta(hours=6 * chance.randint(-240, 240))
            nodes[-1]["occurred_at"] = happened.isoformat()
    return nodes


@pytest.fixture(scope="module")
def memory(session_service: Service) -> Service:
    """48 nodes of three projects; no test here changes them, so an answer of 50 holds them all."""
    session_service.empty()
    return filled(session_service)


def filled(service: Service) -> Service:
    for project, count in zip(PROJECTS, (24, 14, 10), strict=True):
        ended = service.ingest(nodes_of(project, count), project)
        assert ended["status"] == "completed", ended
    with service.connect() as connection:
        for number, one in enumerate(stored(service)):
            changed = START + timedelta(hours=6 * (number - 20))
            connection.execute(
                "UPDATE memory_node SET updated_at = %s WHERE project = %s AND sha256 = %s",
                [changed, one.project, one.sha256],
            )
    return service


def stored(service: Service) -> list[Stored]:
    with service.connect() as connection:
        rows = connection.execute(
            "SELECT project, sha256, level, kind, source, text, tags, standing_id, occurred_at,"
            " updated_at FROM memory_node ORDER BY project, sha256"
        ).fetchall()
    return [Stored(*row) for row in rows]


def matches(pattern: str, source: str) -> bool:
    """What a glob means, in other words than the product's."""
    steps = ({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in pattern)
    return re.fullmatch("".join(steps), source, re.DOTALL) is not None


def passes(node: Stored, filters: dict[str, Any]) -> bool:
    """Whether a node passes, by the documented words."""

    def listed(name: str) -> list[str]:
        return [filters[name]] if isinstance(filters[name], str) else filters[name]

    def is_within(name: str, instant: datetime | None) -> bool:
        since, before = filters.get(f"{name}_since"), filters.get(f"{name}_before")
        if since is None and before is None:
            return True
        return (
            instant is not None
            and (since is None or instant >= utc(since))
            and (before is None or instant < utc(before))
        )

    return (
        ("level" not in filters or node.level in listed("level"))
        and ("source_pattern" not in filters or matches(filters["source_pattern"], node.source))
        and ("tags" not in filters or set(listed("tags")) <= set(node.tags))
        and ("kind" not in filters or node.kind in listed("kind"))
        and ("standing_id" not in filters or node.standing_id in listed("standing_id"))
        and is_within("updated", node.updated_at)
        and is_within("occurred", node.occurred_at)
    )


def utc(said: str) -> datetime:
    read = datetime.fromisoformat(said)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def holds_a_word(node: Stored, question: str) -> bool:
    return bool(ENGLISH.terms(node.text).keys() & set(ENGLISH.query_terms(question)))


def counts_of(nodes: Sequence[Stored]) -> dict[str, dict[str, int]]:
    months = [n.occurred_at.astimezone(UTC) if n.occurred_at else None for n in nodes]
    return {
        "levels": Counter(node.level for node in nodes),
        "kinds": Counter(node.kind for node in nodes),
        "sources": Counter(node.source.partition("/")[0] for node in nodes),
        "dates": Counter(f"{at:%Y-%m}" if at else "undated" for at in months),
        "tags": Counter(tag for node in nodes for tag in set(node.tags)),
        "projects": Counter(node.project for node in nodes),
    }


def ask(service: Service, filters: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    asked = {"level": ALL, "limit": 50, "timeout_seconds": 20, "filters": json.dumps(filters)}
    return service.ask(parameters.pop("query", QUESTION), **(asked | parameters))


def found(answer: dict[str, Any]) -> set[tuple[str, str]]:
    shown = [(hit["project"], hit["sha256"]) for hit in answer["results"]]
    assert len(set(shown)) == len(shown)
    return set(shown)


def keys(nodes: Sequence[Stored]) -> set[tuple[str, str]]:
    return {(node.project, node.sha256) for node in nodes}


def some(values: Sequence[str]) -> "st.SearchStrategy[Any]":
    return st.sampled_from(values) | st.lists(st.sampled_from(values), min_size=1, max_size=3)


instants = st.integers(-60, 60).map(
    lambda number: (START + timedelta(hours=6 * number)).isoformat()
) | st.sampled_from(
    ["2026-03-03", "2026-02-01", "2026-03-05T12:00:00", "2026-03-03T02:00:00+02:00"]
)
patterns = st.sampled_from(SOURCES) | st.text("*?/_%\\[]adocs.m0木", min_size=1, max_size=6).filter(
    lambda pattern: set(pattern) & set("*?")
)
any_filters = st.fixed_dictionaries(
    {},
    optional={
        "level": some(["L0", "L1", "L2"]),
        "source_pattern": patterns,
        "updated_since": instants,
        "updated_before": instants,
        "occurred_since": instants,
        "occurred_before": instants,
        "tags": some(TAGS),
        "kind": some(["turn", "document", "chunk", "note", "synthesis"]),
        "standing_id": some(STANDING),
    },
).filter(lambda filters: filters and len(filters) < 4)


@pytest.mark.parametrize("method", METHODS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(filters=any_filters, project=st.sampled_from([None, *PROJECTS]))
def test_what_passes_is_found_and_counted_and_nothing_else_is(
    memory: Service, method: str, filters: dict[str, Any], project: str | None
) -> None:
    asked = [one for one in stored(memory) if project in (None, one.project)]
    passing = [one for one in asked if passes(one, filters)]
    expected = passing
    if method == "lexical":
        expected = [one for one in passing if holds_a_word(one, QUESTION)]

    answer = ask(memory, filters, method=method, **({"project": project} if project else {}))

    assert found(answer) == keys(expected)
    assert answer["facets"] == counts_of(expected)
    assert answer["facets_truncated"] == []
    assert answer["metrics"]["total_docs_searched"] == len(expected)
    assert answer["federation"]["document_coverage"] == 1.0
    assert set(answer["filters_applied"]) == set(filters)
    assert {part["plan"] for part in answer["federation"]["projects"]} <= {"exact", None}


@pytest.mark.parametrize("method", METHODS)
def test_a_count_is_what_filtering_by_its_value_returns(memory: Service, method: str) -> None:
    whole = ask(memory, {}, method=method, facets="true")["facets"]

    def counted(filters: dict[str, Any], **parameters: Any) -> int:
        return len(found(ask(memory, filters, method=method, **parameters)))

    assert whole["levels"] == {level: counted({"level": level}) for level in whole["levels"]}
    assert whole["kinds"] == {kind: counted({"kind": kind}) for kind in whole["kinds"]}
    assert whole["tags"] == {tag: counted({"tags": tag}) for tag in whole["tags"]}
    assert whole["projects"] == {
        project: counted({}, project=project) for project in whole["projects"]
    }
    assert whole["sources"] == {
        source: (counted({"source_pattern": source}) if source else 0)
        + counted({"source_pattern": f"{source}/*"})
        for source in whole["sources"]
    }
    months = {month: count for month, count in whole["dates"].items() if month != "undated"}
    for month, count in months.items():
        since = datetime.fromisoformat(f"{month}-01")
        before = (since + timedelta(days=31)).replace(day=1)
        filters = {"occurred_since": f"{since:%Y-%m-%d}", "occurred_before": f"{before:%Y-%m-%d}"}
        assert count == counted(filters)
    assert len(months) > 1
    assert whole["dates"]["undated"] + sum(months.values()) == sum(whole["levels"].values())


@pytest.mark.parametrize("filters", [{}, {"kind": "note"}])
@pytest.mark.parametrize("method", METHODS)
def test_what_was_searched_is_counted_alike_with_and_without_facets(
    memory: Service, method: str, filters: dict[str, Any]
) -> None:
    about = [one for one in stored(memory) if passes(one, filters)]
    if method == "lexical":
        about = [one for one in about if holds_a_word(one, QUESTION)]

    for facets in ("true", "false"):
        answer = ask(memory, filters, method=method, facets=facets, limit=1)
        assert answer["metrics"]["total_docs_searched"] == len(about)


def test_values_stand_in_the_order_of_their_counts_then_by_name(memory: Service) -> None:
    facets = ask(memory, {}, facets="true")["facets"]

    for counts in facets.values():
        ranking = [(-count, value) for value, count in counts.items()]
        assert ranking == sorted(ranking)


@pytest.mark.parametrize("facets", [None, "false"])
def test_nothing_is_counted_unless_it_is_asked_for(memory: Service, facets: str | None) -> None:
    asked = {} if facets is None else {"facets": facets}
    answer = memory.ask(QUESTION, **asked)

    assert answer["facets"] is None
    assert answer["filters_applied"] == {}
    assert {tuple(p["stages_ms"]) for p in answer["federation"]["projects"]} == {
        ("embed", "recall", "rerank", "walk")
    }


def test_counts_do_not_hang_on_the_limit(memory: Service) -> None:
    counted = [ask(memory, {"kind": "note"}, limit=limit)["facets"] for limit in (1, 5, 50)]

    assert counted[0] == counted[1] == counted[2]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("pattern", "sources"),
    [
        ("%", set()),
        ("_", set()),
        ("report_01", {"report_01"}),
        ("50%", set()),
        ("50%*", {"50% off.md"}),
        ("docs/*.md", {"docs/a.md", "docs/deep/b.md"}),
        ("docs", {"docs"}),
        ("?ocs", {"docs"}),
        ("report?01", {"report_01", "reportX01"}),
        ("[ab]", {"[ab]"}),
        ("[ab]*", {"[ab]"}),
        ("back\\slash", {"back\\slash"}),
        ("back\\*", {"back\\slash"}),
        ("ünï/?.md", {"ünï/木.md"}),
        ("*", set(SOURCES)),
    ],
)
def test_no_sign_of_a_pattern_but_stars_and_question_marks_is_one(
    memory: Service, method: str, pattern: str, sources: set[str]
) -> None:
    every = [one for one in stored(memory) if holds_a_word(one, "kettle")]
    answer = ask(memory, {"source_pattern": pattern}, query="kettle", method=method)

    shown = {hit["source"] for hit in answer["results"]}
    if method == "lexical":
        sources = sources & {one.source for one in every}
    assert shown == sources & {one.source for one in stored(memory)}


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("*?%_\\[a/b\n木", max_size=8), st.text("%_\\[a/b\n木", max_size=8)),
        min_size=30,
        max_size=60,
    )
)
def test_postgresql_takes_a_pattern_as_plain_python_does(
    session_service: Service, pairs: list[tuple[str, str]]
) -> None:
    with session_service.connect() as connection:
        rows = connection.execute(
            "SELECT source LIKE pattern FROM unnest(%s::text[], %s::text[]) AS t (pattern, source)",
            [[like(pattern) for pattern, _ in pairs], [source for _, source in pairs]],
        ).fetchall()

    assert [row[0] for row in rows] == [matches(pattern, source) for pattern, source in pairs]


@pytest.mark.parametrize("method", METHODS)
def test_a_question_has_the_same_answer_twice_and_a_longer_one_begins_like_it(
    memory: Service, method: str
) -> None:
    def shown(limit: int) -> list[str]:
        answer = ask(memory, {"source_pattern": "*o*"}, method=method, limit=limit)
        return [hit["sha256"] for hit in answer["results"]]

    whole = shown(50)
    assert shown(50) == whole
    assert shown(7) == whole[:7]
    assert len(whole) > 7


def test_a_key_for_some_projects_sees_no_value_of_another(memory: Service) -> None:
    caller = Caller.new(memory, ["beta"])
    asked = {"query": QUESTION, "level": ALL, "facets": "true", "limit": 50}

    answer = caller.send("GET", "/memory/query", params=asked).json()

    own = [one for one in stored(memory) if one.project == "beta"]
    assert answer["facets"] == counts_of(own)
    assert answer["facets"]["projects"] == {"beta": len(own)}


def test_a_submitted_question_takes_filters_and_counts_as_well(memory: Service) -> None:
    filters = {"kind": ["note", "turn"], "occurred_since": "2026-03-03", "tags": "red"}
    levels = ALL.split(",")
    said = Caller(memory, memory.key).completed(QUESTION, level=levels, filters=filters, limit=50)
    passing = [one for one in stored(memory) if passes(one, filters)]

    assert found(said) == keys(passing)
    assert said["facets"] == counts_of(passing)
    assert said["filters_applied"] == {
        "kind": ["note", "turn"],
        "occurred_since": "2026-03-03T00:00:00Z",
        "tags": ["red"],
    }


def test_a_project_out_of_time_is_missing_in_the_counts_and_named(memory: Service) -> None:
    with slow_projects(memory, {"alpha": 10}):
        answer = ask(memory, {}, method="semantic", facets="true", timeout_seconds=2)

    assert answer["warnings"] == ["project 'alpha' timed out"]
    others = [one for one in stored(memory) if one.project != "alpha"]
    assert answer["facets"] == counts_of(others)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Service]:
    """A service whose server and database live in another zone."""
    with running(TZ="America/Chicago", PGTZ="America/Chicago") as service:
        yield service


def test_the_zone_of_the_server_changes_nothing(memory: Service, elsewhere: Service) -> None:
    asked = [
        {f"{name}_{end}": said}
        for name in ("occurred", "updated")
        for end in ("since", "before")
        for said in ("2026-03-03", "2026-03-03T00:00:00", "2026-03-03T00:00:00+02:00")
    ]

    def answers(service: Service) -> list[Any]:
        said = [ask(service, filters, method="lexical") for filters in asked]
        return [(found(one), one["facets"], one["filters_applied"]) for one in said]

    assert answers(filled(elsewhere)) == answers(memory)


def mixed_session() -> bytes:
    """A session whose lines tell their times in every way: with a zone, without, as numbers."""
    times: list[Any] = [1772528400000, "2026-03-03T23:30:00+14:00", "2026-03-03 09:00:05", None]
    lines: list[Record | bytes] = [cx_meta("5e55104e-0000-4000-8000-000000000003")]
    for number, at in enumerate([*times, 1772528406]):
        line = cx_item(number, "user", f"the kettle was seen, {number}") | {"timestamp": at}
        lines.append({name: said for name, said in line.items() if said is not None})
    return file_of(lines)


def test_the_times_of_a_session_are_the_same_instants_in_every_zone_of_the_server(
    memory: Service, elsewhere: Service
) -> None:
    days = ["2026-03-03", "2026-03-03T09:00:00", "2026-03-03T09:00:00Z"]
    days += ["2026-03-03T11:00:06+02:00", "2026-03-03T09:30:00.5Z"]
    asked = [{f"occurred_{end}": at} for end in ("since", "before") for at in days]

    def answers(service: Service) -> list[Any]:
        assert take_one(service, mixed_session(), project="clock")["status"] == "completed"
        found_by = [ask(service, filters, project="clock", query="kettle") for filters in asked]
        service.mem("forget", "-p", "clock", "--yes")
        return [(sorted(hit["text"] for hit in a["results"]), a["facets"]) for a in found_by]

    said = answers(memory)

    assert [len(texts) for texts, _ in said] == [5, 5, 5, 2, 0, 0, 0, 0, 3, 5]
    assert answers(elsewhere) == said


@pytest.fixture(scope="module", params=[20_000, pytest.param(100_000, marks=pytest.mark.long)])
def haystack(session_service: Service, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """One node that differs from very many others in everything, and how to search there.

    Written beside the product, since encoding and analysing so many texts takes a minute.
    """
    many: int = request.param
    session_service.empty()
    terms = ["common", "usual"]
    # At once: upkeep must not find nodes without their words.
    with session_service.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO project (project) VALUES ('hay')")
        connection.execute(
            "INSERT INTO memory_node (project, sha256, level, kind, source, text, updated_at)"
            " SELECT 'hay', encode(sha256(n::text::bytea), 'hex'), 'L0', 'turn', 'hay/' || n,"
            " 'common usual', '2026-01-01Z' FROM generate_series(0, %s) AS n",
            [many],
        )
        connection.execute(
            "UPDATE memory_node SET level = 'L1', kind = 'note', source = 'needles/one.md',"
            " standing_id = 'one', tags = ARRAY['one'], occurred_at = '2026-02-01Z',"
            " updated_at = '2026-02-01Z' WHERE sha256 = %s",
            [NEEDLE],
        )
        connection.execute("DELETE FROM node_count")
        connection.execute(
            "INSERT INTO node_count SELECT project, level, count(*) FROM memory_node GROUP BY 1, 2"
        )
        connection.execute(
            "INSERT INTO node_vector (project, model, sha256, level, embedding)"
            " SELECT project, 1, sha256, level, %s::vector FROM memory_node",
            [json.dumps([1.0] + 383 * [0.0])],
        )
        connection.execute(  # the farthest of all from the question
            "UPDATE node_vector SET embedding = %s::vector WHERE sha256 = %s",
            [json.dumps([-1.0] + 383 * [0.0]), NEEDLE],
        )
        connection.execute(
            "INSERT INTO node_terms SELECT project, sha256, level, 2, %s, %s FROM memory_node",
            [ENGLISH.name, terms],
        )
        connection.execute(
            "INSERT INTO posting SELECT project, unnest(%s::text[]), level,"
            " left(sha256, 32)::uuid, 1, 2 FROM memory_node",
            [terms],
        )
    with session_service.connect() as connection:
        connection.execute("VACUUM ANALYZE memory_node, node_vector, posting")
    with closing(Database(session_service.database_url, 4)) as database:
        indexed = IndexedProjects(database, 1, LATER.clock)
        yield {
            "nodes": ProjectSearch(database, "hay", 1, None, indexed, 10 * many),
            "lexical": ProjectLexicon(database, "hay", ENGLISH),
            "counts": ProjectCounts(database, "hay", ENGLISH),
            "many": many,
        }


NEEDLE = hashlib.sha256(b"7").hexdigest()
LATER = Deadline.after(86_400)
LEVELS = (Level.L0, Level.L1)
FAR = np.eye(384, dtype=np.float32)[0]


@pytest.mark.parametrize(
    "filters",
    [
        Filters(source_pattern="needles/one.md"),
        Filters(source_pattern="*.m?"),
        Filters(updated_since=datetime(2026, 1, 2, tzinfo=UTC)),
        Filters(occurred_before=datetime(2027, 1, 1, tzinfo=UTC)),
        Filters(tags=("one",)),
        Filters(kinds=(Kind.NOTE,)),
        Filters(standing_ids=("one", "two")),
    ],
)
def test_the_one_node_that_passes_is_found_among_very_many(
    haystack: dict[str, Any], filters: Filters
) -> None:
    nodes, words = haystack["nodes"], haystack["lexical"]
    query = Query("common usual", LEVELS, filters=filters)

    nearest = nodes.recall(FAR, LEVELS, 50, (), Reads.NOTHING, LATER, filters)
    at_once, loaded = nodes.recall_and_load(FAR, LEVELS, 50, 5, FANS, LATER, filters)
    matched = words.recall("common usual", LEVELS, 50, LATER, filters)

    assert [one.sha256 for one in nearest.candidates] == [NEEDLE]
    assert [one.sha256 for one in at_once.candidates] == list(loaded.nodes) == [NEEDLE]
    assert [one.sha256 for one in matched.matches] == [NEEDLE]
    assert {nearest.documents, at_once.documents, matched.documents} == {1}
    assert [matched.matches[0].score] == pytest.approx(
        words.scores("common usual", LEVELS, [NEEDLE], LATER)
    )
    for method in Method:
        counts = haystack["counts"].facets(replace(query, method=method), LATER).counts
        assert (counts["sources"], counts["dates"]) == ({"needles": 1}, {"2026-02": 1})


def test_a_facet_with_very_many_values_carries_the_largest_and_says_so(
    haystack: dict[str, Any], session_service: Service
) -> None:
    with session_service.connect() as connection:
        connection.execute(
            "UPDATE memory_node SET tags = ARRAY['t' || right(sha256, 3), 'all', 'all']"
            " WHERE split_part(source, '/', 2)::integer BETWEEN 1000 AND 4999 AND level = 'L0'"
        )

    facets = haystack["counts"].facets(Query("common", (Level.L0,)), LATER)
    answer = ask(session_service, {}, facets="true", query="common", method="lexical")

    assert len(facets.counts["tags"]) == 1000
    assert next(iter(facets.counts["tags"].items())) == ("all", 4000)
    assert facets.truncated == ("tags",)
    assert facets.counts["sources"] == {"hay": haystack["many"]}
    assert len(answer["facets"]["tags"]) == 100
    assert answer["facets_truncated"] == ["tags"]


def test_a_value_too_long_to_filter_by_is_not_carried(
    haystack: dict[str, Any], session_service: Service
) -> None:
    with session_service.connect() as connection:
        connection.execute(
            "UPDATE memory_node SET tags = %s WHERE sha256 = %s", [["x" * 1001, "y"], NEEDLE]
        )

    facets = haystack["counts"].facets(Query("common", (Level.L1,)), LATER)

    assert (facets.counts["tags"], facets.truncated) == ({"y": 1}, ("tags",))
