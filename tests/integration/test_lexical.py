"""Lexical search on the real database: exact BM25, and words that come and go with their nodes."""

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.bench.texts import Writer
from tests.integration.service import Service, until
from workers.deadline import Deadline
from workers.engines.search_text import SearchText, searched_text
from workers.errors import DeadlineExceeded
from workers.ingest.nodes import node_sha256
from workers.lexicon import fill, renew
from workers.model import Encoding, Kind, Level, Node
from workers.store import lexical
from workers.store.database import Database
from workers.store.lexical import ProjectLexicon
from workers.store.nodes import PostgresNodes

LATER = Deadline.after(86_400)
ENGLISH = SearchText("english")
LEVELS = (Level.L0, Level.L1, Level.L2)
KINDS = {Level.L0: Kind.TURN, Level.L1: Kind.NOTE, Level.L2: Kind.SYNTHESIS}


def node_of(project: str, text: str, level: Level = Level.L0, **fields: Any) -> Node:
    kind = fields.pop("kind", KINDS[level])
    sha256 = node_sha256(project, level, kind, "s", text, 0)
    return Node(project, sha256, level, kind, "s", text, **fields)


@pytest.fixture
def database(empty_service: Service) -> Iterator[Database]:
    with closing(Database(empty_service.database_url, 4)) as database:
        yield database


def store(database: Database, *nodes: Node) -> None:
    """As ingest does it, with vectors that nobody looks at."""
    encodings = {node.key: Encoding(np.eye(384, dtype=np.float32)[0], None) for node in nodes}
    with database.transaction() as connection:
        repository = PostgresNodes(connection, 1, None, ENGLISH)
        repository.claim_projects(node.project for node in nodes)
        repository.save(nodes, encodings)


def store_as_before(service: Service, *nodes: Node) -> None:
    """As a worker does it that knows of no words."""
    with service.connect() as connection:
        for node in nodes:
            connection.execute(
                "INSERT INTO project (project) VALUES (%s) ON CONFLICT DO NOTHING", [node.project]
            )
            connection.execute(
                "INSERT INTO memory_node (project, sha256, level, kind, source, text, title)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [node.project, node.sha256, node.level, node.kind, "s", node.text, node.title],
            )


def found(
    database: Database, question: str, project: str = "p", levels: Sequence[Level] = LEVELS
) -> list[str]:
    matched = ProjectLexicon(database, project, ENGLISH).recall(question, levels, 50, LATER)
    return [match.sha256 for match in matched.matches]


def check_books(service: Service, search_text: SearchText = ENGLISH) -> int:
    """Every node has exactly its words, nothing else has any, the sums agree; how many nodes."""
    postings = defaultdict(Counter)
    with service.connect() as connection:
        for project, level, node, term, tf, length in connection.execute(
            "SELECT project, level, replace(node::text, '-', ''), term, tf, length FROM posting"
        ).fetchall():
            assert term not in postings[project, level, node, length]
            postings[project, level, node, length][term] = tf
        nodes = connection.execute(
            "SELECT project, level, sha256, kind, title, breadcrumb, text FROM memory_node"
        ).fetchall()
        counts = connection.execute(
            "SELECT project, level, nodes, length FROM lexical_count WHERE nodes > 0"
        ).fetchall()
        analysed = connection.execute("SELECT project, sha256 FROM node_terms").fetchall()
    expected: dict[tuple[str, str, str, int], Counter[str]] = {}
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for project, level, sha256, kind, title, breadcrumb, text in nodes:
        terms = search_text.terms(searched_text(Kind(kind), title, breadcrumb, text))
        if terms:
            expected[project, level, sha256[:32], terms.total()] = terms
        sums[project, level][0] += 1
        sums[project, level][1] += terms.total()
    assert dict(postings) == expected
    assert {(project, level): [*rest] for project, level, *rest in counts} == dict(sums)
    assert sorted(analysed) == sorted((row[0], row[2]) for row in nodes)
    return len(nodes)


class Reference:
    """BM25 by its formula, and the same bound, over the nodes of one project."""

    def __init__(self, nodes: Sequence[Node], levels: Sequence[Level]) -> None:
        self.terms = {
            node.sha256: ENGLISH.terms(node.text) for node in nodes if node.level in levels
        }
        self.level = {node.sha256: node.level for node in nodes}
        self.levels = len(levels)
        self.average = sum(terms.total() for terms in self.terms.values()) / len(self.terms)
        self.holders = defaultdict(list)
        for sha256, terms in sorted(self.terms.items()):
            for term in terms:
                self.holders[term].append(sha256)

    def weigh(self, term: str, sha256: str) -> float:
        terms = self.terms[sha256]
        count, tf = len(self.holders[term]), terms[term]
        idf = math.log(1 + (len(self.terms) - count + 0.5) / (count + 0.5))
        norm = 1.2 * (1 - 0.75 + 0.75 * terms.total() / self.average)
        return idf * tf * (1.2 + 1) / (tf + norm)

    def asked(self, question: str) -> list[str]:
        known = {term for term in ENGLISH.query_terms(question) if self.holders.get(term)}
        rarest = sorted(known, key=lambda term: (len(self.holders[term]), term))
        return rarest[: lexical.MOST_WEIGHED]

    def score(self, question: str, sha256: str) -> float:
        if sha256 not in self.terms:
            return 0.0
        return sum(self.weigh(term, sha256) for term in self.asked(question))

    def recall(self, question: str, depth: int) -> list[tuple[str, float]]:
        rough: dict[str, float] = defaultdict(float)
        is_bounded, read, rarer = False, 0, 0
        for place, term in enumerate(self.asked(question)):
            count = len(self.holders[term])
            read += count
            is_rare = count <= lexical.FREQUENT * len(self.terms) and read <= lexical.MOST_READ
            if place == 0 or rarer < depth or is_rare:
                for sha256 in self._read(term):
                    rough[sha256] += self.weigh(term, sha256)
                is_bounded |= count > lexical.MOST_READ
            else:
                is_bounded = True
            rarer = count
        kept = max(lexical.KEPT, 2 * depth) if is_bounded else depth
        best = sorted(rough, key=lambda sha256: (-round(rough[sha256], 9), sha256))[:kept]
        scores = {sha256: self.score(question, sha256) for sha256 in best}
        return sorted(scores.items(), key=lambda one: (-round(one[1], 9), one[0]))[:depth]

    def _read(self, term: str) -> list[str]:
        holders = self.holders[term]
        if len(holders) <= lexical.MOST_READ:
            return holders
        read: list[str] = []
        for level in set(self.level.values()):
            own = [sha256 for sha256 in holders if self.level[sha256] == level]
            read += own[: lexical.MOST_READ // self.levels]
        return read


def corpus(count: int) -> list[Node]:
    """Nodes with words of every frequency: some in most of them, some in one."""
    writer, chance = Writer("lexical"), random.Random(3)
    nodes = []
    for number in range(count):
        text = f"{writer.passage()} ticket-{number} group{number % 40}"
        text += " common" * chance.randint(0, 3) + " usual" * (number % 3)
        nodes.append(node_of("p", text, LEVELS[number % 3]))
    return nodes


def questions(count: int) -> list[str]:
    writer, chance = Writer("questions"), random.Random(5)
    extra = [
        "common",
        "usual common",
        "ticket-7 common",
        "group3 usual",
        "the",
        "to be or not",
        "zz",
    ]
    return [
        f"{writer.question() if number % 3 else ''} {chance.choice(extra)}"
        for number in range(count)
    ]


@pytest.mark.parametrize(
    "bounds", [{}, {"FREQUENT": 0.02, "MOST_READ": 120, "KEPT": 20, "MOST_WEIGHED": 5}]
)
def test_scores_are_those_of_bm25(
    database: Database, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, Any]
) -> None:
    for name, value in bounds.items():
        monkeypatch.setattr(lexical, name, value)
    nodes = corpus(900)
    store(database, *nodes)
    store(database, node_of("other", "ticket-7 common usual"))  # counts in no other project
    lexicon = ProjectLexicon(database, "p", ENGLISH)
    chance = random.Random(7)
    some = [node.sha256 for node in nodes[:60]]
    references = {
        levels: Reference(nodes, levels)
        for levels in (LEVELS, (Level.L1, Level.L2), (Level.L1,), (Level.L0, Level.L2))
    }

    for question in questions(500):
        levels, reference = chance.choice([*references.items()])
        depth = chance.choice([1, 5, 50])

        matched = lexicon.recall(question, levels, depth, LATER)
        scores = lexicon.scores(question, levels, some, LATER)

        expected = reference.recall(question, depth)
        assert matched.documents == len(reference.terms)
        assert [match.score for match in matched.matches] == pytest.approx(
            [score for _, score in expected], abs=1e-6
        )
        assert [match.sha256 for match in matched.matches] == [sha256 for sha256, _ in expected]
        assert {match.level for match in matched.matches} <= set(levels)
        assert scores == pytest.approx(
            [reference.score(question, sha256) for sha256 in some], abs=1e-6
        )


def test_equal_scores_come_in_the_order_of_the_sha256(database: Database) -> None:
    nodes = [node_of("p", f"same words a{number}") for number in range(200)]
    store(database, *nodes)

    shas = found(database, "same words")

    assert shas == sorted(node.sha256 for node in nodes)[:50]


def test_a_frequent_word_is_looked_up_where_rarer_ones_leave_room(database: Database) -> None:
    store(database, *(node_of("p", f"usual number{number}") for number in range(100)))
    store(database, node_of("p", "rare and usual"), node_of("p", "rare alone"))

    lexicon = ProjectLexicon(database, "p", ENGLISH)
    few = lexicon.recall("usual rare", LEVELS, 2, LATER)
    many = lexicon.recall("usual rare", LEVELS, 50, LATER)

    assert [len(few.matches), few.is_bounded] == [2, True]
    assert [len(many.matches), many.is_bounded] == [50, False]
    assert many.matches[:2] == few.matches


def test_a_question_without_words_finds_nothing(database: Database) -> None:
    store(database, node_of("p", "anything"))
    lexicon = ProjectLexicon(database, "p", ENGLISH)

    for question in ("?!", "%", "_", "'", "nowhere"):
        matched = lexicon.recall(question, LEVELS, 50, LATER)
        assert (matched.matches, matched.is_bounded, matched.documents) == ((), False, 1)
    assert ProjectLexicon(database, "none", ENGLISH).recall("anything", LEVELS, 5, LATER) == (
        lexical.Matched((), False, 0)
    )
    assert lexicon.scores("anything", LEVELS, ["0" * 64], LATER) == [0.0]
    assert lexicon.scores("anything", LEVELS, [], LATER) == []


@pytest.mark.parametrize(
    "question", ["a & b", "'abs", '"unbalanced', "foo:*", "back\\slash", "a\x00b", "(", "x' OR '1"]
)
def test_no_sign_of_a_question_means_anything(database: Database, question: str) -> None:
    store(database, node_of("p", f"text with {question.replace(chr(0), '')} in it"))

    ProjectLexicon(database, "p", ENGLISH).recall(question, LEVELS, 5, LATER)


def test_a_search_ends_at_the_deadline(database: Database) -> None:
    lexicon = ProjectLexicon(database, "p", ENGLISH)

    with pytest.raises(DeadlineExceeded):
        lexicon.recall("anything", LEVELS, 50, Deadline.after(0))
    with pytest.raises(DeadlineExceeded):
        lexicon.scores("anything", LEVELS, ["0" * 64], Deadline.after(0))


def test_words_are_stored_with_their_node_and_change_with_its_headings(
    database: Database, empty_service: Service
) -> None:
    chunk = node_of("p", "body", Level.L1, kind=Kind.CHUNK, title="Networking")
    turn = node_of("p", "talk", title="the whole talk")
    store(database, chunk, turn, node_of("p", "?!"))
    assert check_books(empty_service) == 3
    assert found(database, "networking") == [chunk.sha256]
    assert found(database, "whole") == []

    store(database, replace(chunk, title="Storage", breadcrumb=("Guide",)), turn)

    assert check_books(empty_service) == 3
    assert found(database, "networking") == []
    assert found(database, "storage") == found(database, "guide") == [chunk.sha256]


def test_storing_again_changes_nothing(database: Database, empty_service: Service) -> None:
    nodes = [node_of("p", f"text number{number}") for number in range(300)]
    store(database, *nodes)
    store(database, *nodes, node_of("p", "one more"))
    store(database, *(replace(node, tags=("tagged",)) for node in nodes))

    assert check_books(empty_service) == 301


def test_what_is_removed_leaves_no_word_behind(database: Database, empty_service: Service) -> None:
    nodes = [node_of("p", f"text number{number}", LEVELS[number % 3]) for number in range(30)]
    store(database, *nodes, node_of("q", "text of another"))

    with empty_service.connect() as connection:
        gone = [node.sha256 for node in nodes[:10]]
        connection.execute("DELETE FROM memory_node WHERE sha256 = ANY(%s)", [gone])
    assert check_books(empty_service) == 21
    assert found(database, "number3") == []

    with empty_service.connect() as connection:
        connection.execute("DELETE FROM project WHERE project = 'p'")
    assert check_books(empty_service) == 1


def test_a_transaction_that_fails_leaves_nothing(
    database: Database, empty_service: Service
) -> None:
    store(database, node_of("p", "first"))
    with suppress(ZeroDivisionError), database.transaction() as connection:
        PostgresNodes(connection, 1, None, ENGLISH).save([node_of("p", "second")], {})
        raise ZeroDivisionError

    assert check_books(empty_service) == 1
    assert found(database, "second") == []


def test_writers_of_one_project_at_once_keep_the_sums(
    database: Database, empty_service: Service
) -> None:
    def write(part: int) -> None:
        for batch in range(4):
            numbers = range(20 * batch, 20 * batch + 20)
            store(database, *(node_of("p", f"text {part % 3} number{n}") for n in numbers))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))

    assert check_books(empty_service) == 3 * 80


def test_what_older_workers_store_is_analysed_by_upkeep(empty_service: Service) -> None:
    nodes = [node_of("p", f"text number{number}") for number in range(300)]
    store_as_before(empty_service, *nodes)

    def is_done() -> bool:
        with empty_service.connect() as connection:
            (row,) = connection.execute("SELECT count(*) FROM node_terms").fetchall()
        return bool(row[0] == len(nodes))

    until(is_done, within_s=40)
    assert check_books(empty_service) == 300


def test_upkeep_and_ingest_may_be_at_the_same_project(
    database: Database, empty_service: Service
) -> None:
    store_as_before(empty_service, *(node_of("p", f"old number{n}") for n in range(400)))

    def write(batch: int) -> None:
        store(
            database, *(node_of("p", f"new number{n}") for n in range(batch * 50, batch * 50 + 60))
        )

    with ThreadPoolExecutor(3) as pool:
        filled = [pool.submit(fill, database, ENGLISH, LATER) for _ in range(2)]
        written = [pool.submit(write, batch) for batch in range(6)]
        for job in (*filled, *written):
            job.result()
    fill(database, ENGLISH, LATER)

    assert check_books(empty_service) == 400 + 310


def test_a_changed_language_is_brought_to_all_nodes(
    database: Database, empty_service: Service
) -> None:
    store(database, *(node_of("p", f"Häuser number{number}") for number in range(200)))
    store(database, node_of("q", "Häuser"))
    store_as_before(empty_service, node_of("r", "Häuser"))
    told: list[tuple[int, int]] = []

    done = empty_service.mem("lexical", "rebuild", "--project", "q")
    assert (done.returncode, done.stdout) == (0, "0 nodes analysed for english\n"), done.stderr
    assert empty_service.mem("lexical", "rebuild", "--all", "--project", "q").stdout[0] == "1"

    count = renew(
        database,
        "german",
        None,
        lambda progress: told.append((progress.done, progress.total)),
        is_all=False,
    )

    assert count == 202
    assert told[0] == (0, 202)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert check_books(empty_service, SearchText("german")) == 202
    assert renew(database, "german", None, lambda _: None, is_all=False) == 0


def test_a_project_that_is_not_there_cannot_be_rebuilt(empty_service: Service) -> None:
    done = empty_service.mem("lexical", "rebuild", "--project", "none", "--format", "json")

    assert done.returncode == 1
    assert "project_not_found" in done.stdout + done.stderr


def test_every_way_of_storing_brings_words_and_forgetting_takes_them(
    empty_service: Service, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = empty_service.data_dir / "lexical-files"
    folder.mkdir(exist_ok=True)
    page = folder / "guide.md"
    page.write_text(
        "# Guide\n\n## Ports\n\nThe tunnel uses port 8443.\n\n## Disks\n\nBackups fail.\n"
    )
    nodes = folder / "nodes.jsonl"
    line = {"level": "L0", "kind": "turn", "source": "s", "text": "tunnel talk"}
    nodes.write_text(json.dumps(line) + "\n")

    for arguments in (
        ("ingest", str(page), "--project", "ops"),
        ("ingest", str(nodes), "--as", "nodes", "--project", "ops"),
        ("ingest", str(page), "--project", "ops"),
    ):
        done = empty_service.mem(*arguments)
        assert done.returncode == 0, done.stderr
    stored = check_books(empty_service)
    assert stored >= 4

    exported = empty_service.mem("export", "ops")
    assert exported.returncode == 0, exported.stderr
    copy = folder / "ops.jsonl"
    copy.write_text(exported.stdout)
    done = empty_service.mem("import", str(copy), "--project", "copy")
    assert done.returncode == 0, done.stderr
    assert check_books(empty_service) == 2 * stored

    page.write_text("# Guide\n\n## Ports\n\nThe tunnel uses port 9443.\n")
    assert empty_service.mem("ingest", str(page), "--project", "ops").returncode == 0
    assert check_books(empty_service) < 2 * stored

    assert empty_service.mem("forget", "--project", "copy", "--yes").returncode == 0
    assert check_books(empty_service) < stored
    with empty_service.connect() as connection:
        assert not connection.execute("SELECT FROM posting WHERE project = 'copy'").fetchall()
