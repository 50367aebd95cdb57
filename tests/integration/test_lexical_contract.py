"""What every lexical engine does, whichever it is.

`opensearch` is asked of osmem-server, which is not OpenSearch (see lexical_memory.py). The same
tests run against a real one with `-m live` where POIMEN_LIVE_OPENSEARCH_URL names it. Each test
works with an index of its own, and removes it.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any

import pytest

from tests.integration.lexical_memory import (
    ENGLISH,
    LATER,
    LEVELS,
    Memory,
    OpenSearchWords,
    PostgresWords,
    Words,
    live_words,
    node_of,
    standing_in,
)
from tests.integration.service import Service
from workers.deadline import Deadline
from workers.errors import DeadlineExceeded
from workers.model import Filters, Kind, Level, Node
from workers.store.database import Database


@pytest.fixture(scope="module")
def osmem_url() -> Iterator[str]:
    with standing_in() as url:
        yield url


@pytest.fixture(
    params=["postgres", "opensearch", pytest.param("live", marks=pytest.mark.live)],
)
def memory(request: pytest.FixtureRequest, empty_service: Service) -> Iterator[Memory]:
    with ExitStack() as stack:
        database = stack.enter_context(closing(Database(empty_service.database_url, 4)))
        if request.param == "postgres":
            words: Words = PostgresWords(database)
        elif request.param == "live":
            words = stack.enter_context(live_words(database))
        else:
            url = request.getfixturevalue("osmem_url")
            words = stack.enter_context(closing(OpenSearchWords(database, url)))
        words.catch_up()
        yield Memory(database, words)


def shas(nodes: Sequence[Node]) -> list[str]:
    return sorted(node.sha256 for node in nodes)


# --- ranking


def bm25(nodes: Sequence[Node], question: str) -> dict[str, float]:
    """By its formula, over all nodes of a project."""
    terms = {node.sha256: ENGLISH.terms(node.text) for node in nodes}
    average = sum(own.total() for own in terms.values()) / len(terms)
    holders = Counter(term for own in terms.values() for term in own)

    def weigh(term: str, own: Counter[str]) -> float:
        idf = math.log(1 + (len(terms) - holders[term] + 0.5) / (holders[term] + 0.5))
        norm = 1.2 * (1 - 0.75 + 0.75 * own.total() / average)
        return idf * own[term] * (1.2 + 1) / (own[term] + norm)

    asked = ENGLISH.query_terms(question)
    return {
        sha256: sum(weigh(term, own) for term in asked if term in own)
        for sha256, own in terms.items()
        if any(term in own for term in asked)
    }


def corpus(count: int) -> list[Node]:
    """Texts of up to 30 words: of longer ones, Lucene knows the length roughly."""
    chance = random.Random(3)
    words = [f"word{number}" for number in range(60)]
    return [
        node_of(" ".join([f"own{number}", *chance.choices(words, k=chance.randint(1, 29))]), level)
        for number, level in zip(range(count), LEVELS * count, strict=False)
    ]


def test_scores_are_those_of_bm25_and_the_best_come_first(memory: Memory) -> None:
    nodes, chance = corpus(300), random.Random(5)
    memory.store(*nodes)

    for _ in range(40):
        question = " ".join(f"word{number}" for number in chance.sample(range(60), 3))
        expected = bm25(nodes, question)
        found = memory.of().recall(question, LEVELS, 300, LATER).matches

        scores = {match.sha256: match.score for match in found}
        assert scores.keys() == expected.keys()
        assert scores == pytest.approx(expected, rel=1e-4) or not memory.is_exact
        ranked = sorted(found, key=lambda match: (-match.score, match.sha256))
        assert list(found) == ranked


def test_a_word_that_occurs_more_often_in_less_text_counts_more(memory: Memory) -> None:
    thrice = node_of("tunnel tunnel tunnel talk")
    once = node_of("tunnel talk about this")
    drowned = node_of("tunnel " + " ".join(f"other{number}" for number in range(30)))
    memory.store(thrice, once, drowned, *(node_of(f"filler number{n}") for n in range(20)))

    assert memory.found("tunnel") == [thrice.sha256, once.sha256, drowned.sha256]


def test_any_word_may_match_and_a_rarer_one_counts_more(memory: Memory) -> None:
    rare, both, usual = node_of("zebra here"), node_of("zebra fence"), node_of("fence here")
    memory.store(rare, both, usual, *(node_of(f"fence number{n}") for n in range(5)))

    found = memory.found("zebra fence nowhere")

    assert found[:2] == [both.sha256, rare.sha256]
    assert usual.sha256 in found


def test_equal_scores_come_in_the_order_of_the_sha256(memory: Memory) -> None:
    nodes = [node_of(f"same words a{number}") for number in range(120)]
    memory.store(*nodes)

    assert memory.found("same words") == shas(nodes)[:50]


def test_no_more_than_the_depth_is_found(memory: Memory) -> None:
    memory.store(*(node_of(f"tunnel number{number}") for number in range(30)))

    for depth in (1, 7, 30, 500):
        matched = memory.of().recall("tunnel", LEVELS, depth, LATER)
        assert len(matched.matches) == min(depth, 30)
        assert matched.documents == 30


def test_the_score_of_a_given_node_is_that_of_recall(memory: Memory) -> None:
    nodes = corpus(120)
    memory.store(*nodes, node_of("word1 word2", project="q"))
    found = memory.of().recall("word1 word2 word3", LEVELS, 500, LATER).matches
    expected = {match.sha256: match.score for match in found}

    asked = [node.sha256 for node in reversed(nodes)] + ["0" * 64]
    scores = memory.of().scores("word1 word2 word3", LEVELS, asked, LATER)

    assert scores == pytest.approx([expected.get(sha256, 0.0) for sha256 in asked])
    assert memory.of().scores("word1", (Level.L1,), [nodes[0].sha256], LATER) == [0.0]
    assert memory.of().scores("word1", LEVELS, [], LATER) == []


def test_of_given_nodes_those_that_hold_the_very_name_are_told(memory: Memory) -> None:
    whole, parts = node_of("call soft_logout now"), node_of("a soft way to logout")
    other, elsewhere = node_of("talk"), node_of("soft_logout", project="q")
    memory.store(whole, parts, other, elsewhere)
    given = [node.sha256 for node in (parts, other, whole, elsewhere)] + ["0" * 64]

    assert memory.of().holding("soft_logout", given, LATER) == {whole.sha256}
    assert memory.of().holding("soft_logout", [], LATER) == frozenset()
    assert memory.of().holding("talk", given, LATER) == frozenset()
    assert memory.of().holding("how does soft_logout work", given, LATER) == frozenset()


# --- levels, projects, filters


def test_only_the_asked_levels_are_searched(memory: Memory) -> None:
    nodes = {level: node_of("tunnel", level) for level in LEVELS}
    memory.store(*nodes.values())

    for count in (1, 2, 3):
        for levels in combinations(LEVELS, count):
            matched = memory.of().recall("tunnel", levels, 50, LATER)
            assert {(match.sha256, match.level) for match in matched.matches} == {
                (nodes[level].sha256, level) for level in levels
            }
            assert matched.documents == count


def test_a_project_sees_nothing_of_another(memory: Memory) -> None:
    own, other = node_of("tunnel talk"), node_of("tunnel talk", project="q")
    memory.store(own, other)

    assert memory.found("tunnel") == [own.sha256]
    assert memory.found("tunnel", project="q") == [other.sha256]
    assert memory.found("tunnel", project="nothing") == []
    assert memory.of("q").scores("tunnel", LEVELS, [own.sha256], LATER) == [0.0]


JANUARY, MARCH, MAY = (datetime(2026, month, 1, tzinfo=UTC) for month in (1, 3, 5))
EDGE = datetime(2026, 3, 1, 0, 0, 0, 1, tzinfo=UTC)  # a microsecond later
LONG_AGO = datetime(1492, 10, 12, tzinfo=UTC)

VARIED = [
    node_of("tunnel a", source="ops/db/runbook.md", tags=("db", "ops"), occurred_at=JANUARY),
    node_of("tunnel b", Level.L1, source="ops/net.md", tags=("ops",), occurred_at=MARCH,
            standing_id="root-causes"),
    node_of("tunnel c", Level.L1, kind=Kind.CHUNK, source="Ops/net.md", occurred_at=EDGE),
    node_of("tunnel d", Level.L2, source="pi:2026*[x]?", tags=("db", "ops", "x y"),
            standing_id="decisions"),
    node_of("tunnel e", source=r"c:\logs\a_b%c.txt", tags=("*",), occurred_at=LONG_AGO),
    node_of("tunnel f", kind=Kind.DOCUMENT, source="ops/db/ünïcode/日本.md", occurred_at=MAY),
]  # fmt: skip
UPDATED = dict(zip(shas(VARIED), (JANUARY, MARCH, EDGE, MAY, MAY, JANUARY), strict=True))


def passes(node: Node, filters: Filters) -> bool:
    """The same by Python's own means."""

    def is_within(at: datetime | None, since: datetime | None, before: datetime | None) -> bool:
        if since is None and before is None:
            return True
        return at is not None and (since or at) <= at and (before is None or at < before)

    pattern = filters.source_pattern
    return (
        (pattern is None or fnmatchcase(node.source, pattern.replace("[", "[[]")))
        and is_within(UPDATED[node.sha256], filters.updated_since, filters.updated_before)
        and is_within(node.occurred_at, filters.occurred_since, filters.occurred_before)
        and set(filters.tags) <= set(node.tags)
        and (not filters.kinds or node.kind in filters.kinds)
        and (not filters.standing_ids or node.standing_id in filters.standing_ids)
    )


CONDITIONS: list[dict[str, Any]] = [
    {"source_pattern": "ops/*"},
    {"source_pattern": "ops/net.md"},
    {"source_pattern": "ops/db/*.md"},
    {"source_pattern": "*"},
    {"source_pattern": "?ps/n?t.md"},
    {"source_pattern": "pi:2026*[x]?"},
    {"source_pattern": r"c:\logs\*"},
    {"source_pattern": "*a_b%*"},
    {"source_pattern": "a_b%c.txt"},
    {"source_pattern": "ops/db/?n?code/??.md"},
    {"updated_since": MARCH},
    {"updated_before": MARCH},
    {"updated_since": EDGE, "updated_before": MAY},
    {"occurred_since": MARCH},
    {"occurred_since": EDGE},
    {"occurred_before": EDGE},
    {"occurred_before": datetime(1969, 1, 1, tzinfo=UTC)},
    {"tags": ("ops",)},
    {"tags": ("ops", "db")},
    {"tags": ("x y",)},
    {"tags": ("*",)},
    {"tags": ("nobody has it",)},
    {"kinds": (Kind.TURN,)},
    {"kinds": (Kind.NOTE, Kind.CHUNK)},
    {"standing_ids": ("root-causes",)},
    {"standing_ids": ("root-causes", "decisions", "none")},
]


@pytest.fixture
def varied(memory: Memory) -> Memory:
    memory.store(*VARIED)
    for sha256, instant in UPDATED.items():
        memory.run("UPDATE memory_node SET updated_at = %s WHERE sha256 = %s", instant, sha256)
    return memory


def check_filters(memory: Memory, given: dict[str, Any]) -> None:
    filters = Filters(**given)
    expected = [node for node in VARIED if passes(node, filters)]

    matched = memory.of().recall("tunnel", LEVELS, 50, LATER, filters)
    some = memory.of().recall("tunnel", (Level.L1,), 50, LATER, filters)

    assert sorted(match.sha256 for match in matched.matches) == shas(expected), given
    assert matched.documents == len(expected), given
    assert some.documents == sum(node.level is Level.L1 for node in expected), given


def test_each_filter_passes_what_meets_its_condition(varied: Memory) -> None:
    for given in CONDITIONS:
        check_filters(varied, given)


def test_of_several_filters_all_must_be_met(varied: Memory) -> None:
    chance = random.Random(11)
    for _ in range(60):
        given: dict[str, Any] = {}
        for condition in chance.sample(CONDITIONS, chance.randint(2, 4)):
            given |= condition
        check_filters(varied, given)


def test_filters_change_no_score(varied: Memory) -> None:
    free = varied.of().recall("tunnel b", LEVELS, 50, LATER)
    bound = varied.of().recall("tunnel b", LEVELS, 50, LATER, Filters(tags=("ops",)))

    scores = {match.sha256: match.score for match in free.matches}
    assert bound.matches
    for match in bound.matches:
        assert match.score == pytest.approx(scores[match.sha256])


def test_what_passes_counts_whether_or_not_it_holds_a_word(varied: Memory) -> None:
    for question in ("nowhere", "?!", "tunnel"):
        assert varied.of().recall(question, LEVELS, 50, LATER).documents == len(VARIED)
        found = varied.of().recall(question, LEVELS, 50, LATER, Filters(tags=("ops",)))
        assert found.documents == 3


# --- what changes


def test_what_is_removed_is_found_no_more(memory: Memory) -> None:
    nodes = [node_of(f"tunnel number{number}") for number in range(5)]
    memory.store(*nodes, node_of("tunnel", project="q"))

    memory.run("DELETE FROM memory_node WHERE sha256 = %s", nodes[0].sha256)
    assert sorted(memory.found("tunnel")) == shas(nodes[1:])
    assert memory.of().recall("tunnel", LEVELS, 50, LATER).documents == 4

    memory.run("DELETE FROM project WHERE project = 'p'")
    assert memory.found("tunnel") == []
    assert memory.of().recall("tunnel", LEVELS, 50, LATER).documents == 0
    assert len(memory.found("tunnel", project="q")) == 1


def test_what_is_stored_again_is_found_once(memory: Memory) -> None:
    node = node_of("tunnel talk")
    memory.store(node)
    memory.store(node)
    assert memory.found("tunnel") == [node.sha256]

    memory.run("DELETE FROM memory_node WHERE sha256 = %s", node.sha256)
    memory.store(node)
    assert memory.found("tunnel") == [node.sha256]


def test_a_node_is_found_by_what_is_known_of_it_now(memory: Memory) -> None:
    chunk = node_of("body", Level.L1, kind=Kind.CHUNK, title="Networking", tags=("old",))
    memory.store(chunk)
    memory.store(replace(chunk, title="Storage", tags=("new",), standing_id="one"))

    assert memory.found("networking") == []
    assert memory.found("storage") == [chunk.sha256]
    for filters, count in (
        (Filters(tags=("old",)), 0),
        (Filters(tags=("new",)), 1),
        (Filters(standing_ids=("one",)), 1),
    ):
        found = memory.of().recall("storage", LEVELS, 50, LATER, filters)
        assert len(found.matches) == count


# --- time


def test_a_search_without_time_ends_at_once(memory: Memory) -> None:
    memory.store(node_of("tunnel"))

    with pytest.raises(DeadlineExceeded):
        memory.of().recall("tunnel", LEVELS, 50, Deadline.after(0))
    with pytest.raises(DeadlineExceeded):
        memory.of().scores("tunnel", LEVELS, ["0" * 64], Deadline.after(0))


# --- what a question may hold

HOSTILE = [
    "*",
    "?",
    '"',
    '"unbalanced tunnel',
    "tunnel*",
    "tunn?l",
    "project:q",
    "project:other OR level:L0",
    "_id:* AND tunnel",
    "sha256:/.*/",
    "terms:(tunnel)",
    "tunnel~2^9",
    "NOT tunnel",
    "+tunnel -talk",
    "[a TO z]",
    "{}",
    '{"match_all": {}}',
    '"}}, {"index": "*"}\n{"query": {"match_all": {}}}',
    "\n\n{}\n",
    "back\\slash \\",
    "a\x00b tunnel",
    "%",
    "_",
    "tunnel%' OR '1'='1",
    "x" * 4_000,
    "tunnel " * 571,
    " ".join(f"w{number}" for number in range(700)),
    "ａ\u200bb\ufeff tunnel",
    "\u202etunnel",
]


@pytest.mark.parametrize("question", HOSTILE, ids=range(len(HOSTILE)))
def test_no_sign_of_a_question_means_anything(memory: Memory, question: str) -> None:
    own = node_of("tunnel talk")
    memory.store(own, node_of("quiet"), node_of("tunnel w1 slash", project="q"))

    found = memory.found(question)

    has_word = set(ENGLISH.query_terms(question)) & set(ENGLISH.terms(own.text))
    assert found == ([own.sha256] if has_word else [])
    scores = memory.of().scores(question, LEVELS, [own.sha256], LATER)
    assert (scores[0] > 0) == bool(has_word)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("the parseHTTPResponse function", "parsehttpresponse"),
        ("the parseHTTPResponse function", "response"),
        ("soft_logout came back", "soft_logout"),
        ("since v1.2.3 it works", "v1.2.3"),
        ("see src/db/0042_add_index.sql", "src/db/0042_add_index.sql"),
        ("see src/db/0042_add_index.sql", "0042_add_index"),
        ("commit 9f86d081884c7d659a2feaa0c55ad015", "9f86d081884c7d659a2feaa0c55ad015"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("ORA-00942 again", "ora-00942"),
        ("written in C++", "C++"),
        ("a .NET thing #deploy @alice", "#deploy"),
        ("巴菲特说财务护城河很重要", "护城河"),
        ("ゲームを作る", "ゲーム"),
        ("게임을 했다", "게임"),
        ("สวัสดีครับ", "สวัสดี"),
        ("café in İstanbul", "cafe"),
        ("die Straße", "strasse"),
        ("Backups failed", "backup"),
    ],
)
def test_names_and_scripts_are_found_as_they_are_analysed(
    memory: Memory, text: str, question: str
) -> None:
    node = node_of(text)
    memory.store(node, *(node_of(f"filler number{number}") for number in range(3)))

    assert memory.found(question) == [node.sha256]


def test_a_node_without_a_word_is_counted_and_never_found(memory: Memory) -> None:
    memory.store(node_of("?!"), node_of("tunnel"))

    assert memory.found("?!") == []
    assert memory.of().recall("tunnel", LEVELS, 50, LATER).documents == 2


def test_the_longest_texts_and_terms_are_searched_as_well(memory: Memory) -> None:
    long = node_of("path/" * 20_000 + " needle " + "z" * 500)
    memory.store(long, node_of("other"))

    assert memory.found("needle") == memory.found("z" * 500) == []  # beyond what is read of a text
    assert memory.found("path") == [long.sha256]
