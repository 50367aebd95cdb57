"""OpenSearch as it fails, and what follows PostgreSQL there.

What needs an index is asked of osmem-server, which is not OpenSearch (see lexical_memory.py),
through a stub that waits, fails and refuses in its place.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import fakeredis
import pytest

from tests.integration.lexical_memory import (
    ENGLISH,
    LATER,
    LEVELS,
    Memory,
    OpenSearchWords,
    node_of,
    standing_in,
)
from tests.integration.model_stub import Reply, reply
from tests.integration.search_stub import Request, SearchStub, hits, only
from tests.integration.service import Service, until
from workers.deadline import Cut, Deadline
from workers.engines.breaker import FAILURES
from workers.engines.opensearch.index import WordIndex
from workers.engines.opensearch.search import ProjectIndex
from workers.engines.opensearch.server import WRITES, SearchServer, check_version
from workers.errors import DeadlineExceeded, LexicalEngineUnavailable
from workers.lexicon import Progress
from workers.model import Filters, Node
from workers.store.database import Database
from workers.store.word_backlog import count_listed
from workers.word_index import BATCH, Follower, stop_following

SECRET = "hunter2-of-the-service"
TOKEN = "token-of-whoever-asks"
EMPTY = {"took": 1, "responses": [hits(), hits()]}


@pytest.fixture
def stub() -> Iterator[SearchStub]:
    with closing(SearchStub(None, lambda _: reply(EMPTY))) as stub:
        yield stub


def server_of(stub: SearchStub, **options: Any) -> SearchServer:
    return SearchServer(stub.url, "poimen", SECRET, **options)


def index_of(stub: SearchStub, bearer: str | None = None, **options: Any) -> ProjectIndex:
    return ProjectIndex(server_of(stub, **options), "nodes", ENGLISH, "p", bearer)


# --- a question


def test_a_server_that_says_nothing_is_left_at_the_deadline(stub: SearchStub) -> None:
    began_at = time.monotonic()

    with stub.held(), pytest.raises(DeadlineExceeded):
        index_of(stub).recall("tunnel", LEVELS, 50, Deadline.after(0.3))

    assert 0.25 < time.monotonic() - began_at < 2


def test_a_cut_ends_a_search_that_waits(stub: SearchStub) -> None:
    cut = Cut()

    def end() -> None:
        stub.arrived.wait(10)
        cut.make()

    threading.Thread(target=end, daemon=True).start()
    with stub.held(), pytest.raises(DeadlineExceeded):
        index_of(stub).recall("tunnel", LEVELS, 50, Deadline.after(60, cut=cut))


def test_the_server_is_told_how_long_it_may_search(stub: SearchStub) -> None:
    index_of(stub).recall("tunnel", LEVELS, 50, Deadline.after(3))

    (asked,) = stub.requests
    _, counting, _, matching = asked["lines"]
    for search in (counting, matching):
        assert search["timeout"].endswith("ms")
        assert 2_000 < int(search["timeout"][:-2]) <= 3_000


def test_what_was_cut_short_or_searched_in_part_is_no_answer(stub: SearchStub) -> None:
    late = hits(timed_out=True)
    part = hits(_shards={"total": 2, "successful": 1, "failed": 1})

    stub.instead = only("_msearch", reply({"responses": [hits(), late]}))
    with pytest.raises(DeadlineExceeded):
        index_of(stub).recall("tunnel", LEVELS, 50, LATER)

    stub.instead = only("_msearch", reply({"responses": [hits(), part]}))
    with pytest.raises(LexicalEngineUnavailable, match="part of its index"):
        index_of(stub).recall("tunnel", LEVELS, 50, LATER)


def test_a_server_that_is_gone_is_told_by_the_setting_that_names_it(stub: SearchStub) -> None:
    index = index_of(stub)
    stub.close()

    with pytest.raises(LexicalEngineUnavailable, match="correct POIMEN_OPENSEARCH_URL") as caught:
        index.recall("tunnel", LEVELS, 50, LATER)

    assert caught.value.code == "lexical_engine_unavailable"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (302, "HTTP 302"),
        (400, "HTTP 400"),
        (401, "POIMEN_OPENSEARCH_PASSWORD"),
        (403, "POIMEN_OPENSEARCH_PASSWORD"),
        (404, "no index of this memory"),
        (429, "takes no more for now"),
        (500, "see its log"),
        (503, "see its log"),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_refusal_is_told_without_words_and_credentials(
    stub: SearchStub, status: int, said: str, is_whole: bool
) -> None:
    error = {"error": {"type": "x", "reason": f"tunnel {SECRET}"}, "status": status}
    if is_whole:
        elsewhere = f"{stub.url}/elsewhere"
        stub.instead = lambda _: reply(error, status, Location=elsewhere)
    else:
        stub.instead = lambda _: reply({"responses": [hits(), error]})

    with pytest.raises(LexicalEngineUnavailable, match=said) as caught:
        index_of(stub).recall("tunnel", LEVELS, 50, LATER)

    assert SECRET not in str(caught.value)
    assert "tunnel" not in str(caught.value)
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    "said", [Reply(b"<html>"), reply([]), reply({}), reply({"responses": [{}, {}]}), reply(None)]
)
def test_an_answer_of_something_else_is_a_failure_of_the_server(
    stub: SearchStub, said: Reply
) -> None:
    stub.instead = lambda _: said

    with pytest.raises(LexicalEngineUnavailable):
        index_of(stub).recall("tunnel", LEVELS, 50, LATER)


def test_who_asks_may_present_a_token_instead_of_the_services_account(stub: SearchStub) -> None:
    index_of(stub).recall("tunnel", LEVELS, 5, LATER)
    index_of(stub, TOKEN).recall("tunnel", LEVELS, 5, LATER)
    ProjectIndex(SearchServer(stub.url), "nodes", ENGLISH, "p").recall("tunnel", LEVELS, 5, LATER)

    said = [request["authorization"] for request in stub.requests]
    assert said == ["Basic cG9pbWVuOmh1bnRlcjItb2YtdGhlLXNlcnZpY2U=", f"Bearer {TOKEN}", None]


def test_a_token_that_cannot_be_sent_is_in_no_message(stub: SearchStub) -> None:
    with pytest.raises(LexicalEngineUnavailable, match="line break") as caught:
        index_of(stub, f"{TOKEN}\r\nX-Other: 1").recall("tunnel", LEVELS, 50, LATER)

    shown: BaseException | None = caught.value
    while shown is not None:
        assert TOKEN not in str(shown)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    assert stub.requests == []


def test_a_question_is_sent_as_terms_and_values_only(stub: SearchStub) -> None:
    filters = Filters(source_pattern="a*", tags=('"}]}',), standing_ids=("x OR y",))
    index_of(stub).recall('name:"x" OR * AND src/db', LEVELS, 50, LATER, filters)

    (asked,) = stub.requests
    *_, search = asked["lines"]
    assert asked["path"].startswith("/nodes/_msearch")
    assert {next(iter(clause)) for clause in search["query"]["bool"]["should"]} == {"term"}
    asked_for = [c["term"]["terms"]["value"] for c in search["query"]["bool"]["should"]]
    assert asked_for == ENGLISH.query_terms('name:"x" OR * AND src/db')
    assert {next(iter(clause)) for clause in search["query"]["bool"]["filter"]} == {
        "term",
        "terms",
        "wildcard",
    }


def test_a_server_that_failed_several_times_is_left_alone(stub: SearchStub) -> None:
    redis = fakeredis.FakeRedis()
    index, other = index_of(stub, client=redis), index_of(stub, client=redis)
    stub.instead = lambda _: reply({}, 500)
    for _ in range(FAILURES):
        with pytest.raises(LexicalEngineUnavailable, match="HTTP 500"):
            index.recall("tunnel", LEVELS, 50, LATER)

    with pytest.raises(LexicalEngineUnavailable, match="left alone"):
        other.recall("tunnel", LEVELS, 50, LATER)

    assert len(stub.requests) == FAILURES


def test_what_writes_meet_is_not_held_against_questions(stub: SearchStub) -> None:
    redis = fakeredis.FakeRedis()
    written = WordIndex(server_of(stub, kind=WRITES, client=redis), "nodes", call_s=5)
    stub.instead = lambda request: reply({}, 500) if "_alias" in request["path"] else None
    for _ in range(FAILURES):
        with pytest.raises(LexicalEngineUnavailable, match="HTTP 500"):
            written.aliases()

    with pytest.raises(LexicalEngineUnavailable, match="left alone"):
        written.aliases()

    stub.instead = lambda _: reply(EMPTY)
    assert index_of(stub, client=redis).recall("tunnel", LEVELS, 5, LATER).documents == 0


@pytest.mark.parametrize("status", [400, 404, 429])
def test_a_refusal_of_one_question_opens_no_circuit(stub: SearchStub, status: int) -> None:
    index = index_of(stub, client=fakeredis.FakeRedis())
    stub.instead = lambda _: reply({}, status)

    for _ in range(2 * FAILURES):
        with suppress(LexicalEngineUnavailable):
            index.recall("tunnel", LEVELS, 50, LATER)

    assert len(stub.requests) == 2 * FAILURES


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ({"number": "2.19.3", "distribution": "opensearch"}, "too old"),
        ({"number": "8.15.0"}, "is no OpenSearch"),
    ],
)
def test_a_server_that_scores_otherwise_is_refused(
    stub: SearchStub, version: dict[str, str], said: str
) -> None:
    stub.instead = lambda _: reply({"version": version})
    with pytest.raises(LexicalEngineUnavailable, match=said):
        check_version(server_of(stub), LATER)

    stub.instead = lambda _: reply({"version": {"number": "3.1.0", "distribution": "opensearch"}})
    assert check_version(server_of(stub), LATER) == "OpenSearch 3.1.0"


# --- what follows PostgreSQL

OLD = reply({"version": {"number": "2.19.3", "distribution": "opensearch"}})


@pytest.fixture(scope="module")
def osmem_url() -> Iterator[str]:
    with standing_in() as url:
        yield url


@pytest.fixture
def between(osmem_url: str) -> Iterator[SearchStub]:
    with closing(SearchStub(osmem_url)) as stub:
        yield stub


@pytest.fixture
def database(empty_service: Service) -> Iterator[Database]:
    with closing(Database(empty_service.database_url, 6)) as database:
        yield database


@pytest.fixture
def words(database: Database, between: SearchStub) -> Iterator[OpenSearchWords]:
    with closing(OpenSearchWords(database, between.url)) as words:
        yield words
        between.instead = lambda _: None


class Untold:
    """Storing without telling the index."""

    is_exact = False

    def __init__(self, words: OpenSearchWords) -> None:
        self._words = words

    def of(self, project: str) -> Any:
        return self._words.of(project)

    def catch_up(self) -> None:
        pass


@pytest.fixture
def memory(database: Database, words: OpenSearchWords) -> Memory:
    """What is stored is in the index once it was told of it, and there is one."""
    words.catch_up()
    return Memory(database, Untold(words))


def unheard(reason: str) -> None:
    pass


def listed(memory: Memory) -> int:
    return count_listed(memory.database, LATER)


def shas(*nodes: Node) -> list[str]:
    return sorted(node.sha256 for node in nodes)


def numbered(count: int, project: str = "p") -> list[Node]:
    return [node_of(f"tunnel number{number}", project=project) for number in range(count)]


def test_without_an_index_nothing_is_listed(database: Database, words: OpenSearchWords) -> None:
    memory = Memory(database, Untold(words))
    memory.store(node_of("tunnel"))

    assert listed(memory) == 0
    words.catch_up()
    assert len(memory.found("tunnel")) == 1


def test_a_server_that_is_too_old_gets_no_index(
    words: OpenSearchWords, between: SearchStub
) -> None:
    between.instead = lambda request: OLD if request["path"] == "/" else None

    with pytest.raises(LexicalEngineUnavailable, match="too old"):
        words.follower.follow(LATER, unheard)

    between.instead = lambda _: None
    assert words.index.aliases().written == frozenset()


def test_what_is_stored_while_the_server_is_away_is_told_to_it_later(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    first, second, gone = node_of("tunnel one"), node_of("tunnel two"), node_of("tunnel gone")
    memory.store(gone)
    words.catch_up()
    between.instead = lambda _: reply({}, 503)

    memory.store(first, second)
    memory.run("DELETE FROM memory_node WHERE sha256 = %s", gone.sha256)
    with pytest.raises(LexicalEngineUnavailable):
        words.follower.follow(LATER, unheard)
    assert listed(memory) == 3

    between.instead = lambda _: None
    assert words.follower.follow(LATER, unheard) == 3
    words.refresh()
    assert sorted(memory.found("tunnel")) == shas(first, second)
    assert listed(memory) == 0


def test_a_write_whose_answer_is_lost_is_made_again(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    nodes = numbered(3)
    memory.store(*nodes)

    def lose(request: Request) -> Reply | None:
        if "_bulk" in request["path"]:
            between.instead = lambda _: None
            between.answer(request)
            return reply({}, 500)
        return None

    between.instead = lose
    with pytest.raises(LexicalEngineUnavailable):
        words.follower.follow(LATER, unheard)
    assert listed(memory) == 3

    words.catch_up()
    assert sorted(memory.found("tunnel")) == shas(*nodes)


def test_what_is_changed_while_it_is_written_is_written_again(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    node = node_of("tunnel", tags=("old",))
    memory.store(node)

    def change(request: Request) -> Reply | None:
        if "_bulk" in request["path"]:
            between.instead = lambda _: None
            memory.store(replace(node, tags=("new",)))
        return None

    between.instead = change
    words.follower.follow(LATER, unheard)
    words.refresh()

    found = memory.of().recall("tunnel", LEVELS, 5, LATER, Filters(tags=("new",)))
    assert [match.sha256 for match in found.matches] == [node.sha256]
    assert listed(memory) == 0


def test_an_older_write_that_arrives_later_changes_nothing(
    memory: Memory, words: OpenSearchWords
) -> None:
    node, gone = node_of("tunnel", tags=("new",)), node_of("tunnel gone")
    memory.store(node, gone)
    words.catch_up()
    memory.run("DELETE FROM memory_node WHERE sha256 = %s", gone.sha256)
    words.catch_up()

    fields = {"level": "L0", "kind": "turn", "source": "s", "tags": ["old"], "terms": "tunnel"}
    late = [(node.key, fields), (gone.key, fields)]
    written = words.index.write(late, words.index.aliases().written, 1)
    words.refresh()

    assert (written.refused, written.put_off) == ({}, frozenset())
    assert memory.found("tunnel") == [node.sha256]
    assert not memory.of().recall("tunnel", LEVELS, 5, LATER, Filters(tags=("old",))).matches


def refusing(status: int, *refused: Node) -> Any:
    """The server takes all of a write but these nodes."""

    def instead(request: Request) -> Reply | None:
        if "_bulk" not in request["path"]:
            return None
        actions = [line["index"] for line in request["lines"] if "index" in line]
        bad = {f"{node.project}/{node.sha256}" for node in refused}
        items = [
            {"index": {"_id": one["_id"], "status": status, "error": {"type": "no"}}}
            if one["_id"] in bad
            else {"index": {"_id": one["_id"], "status": 201}}
            for one in actions
        ]
        return reply({"took": 1, "errors": True, "items": items}, Content_Type="application/json")

    return instead


def test_of_a_write_that_is_taken_in_part_the_rest_waits(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    nodes = numbered(5)
    memory.store(*nodes)
    between.instead = refusing(429, *nodes[:2])

    with pytest.raises(LexicalEngineUnavailable, match="no more for now"):
        words.follower.follow(LATER, unheard)
    assert listed(memory) == 2

    between.instead = lambda _: None
    assert words.follower.follow(LATER, unheard) == 2
    assert listed(memory) == 0


def test_a_node_that_is_refused_keeps_no_other_from_the_index(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    words.follower = Follower(memory.database, words.index, batch=2)
    nodes = numbered(5)
    memory.store(*nodes)
    between.instead = refusing(400, *nodes[:3])

    reasons: list[str] = []
    for _ in range(4):
        words.follower.follow(LATER, reasons.append)
    assert listed(memory) == 3
    assert "OpenSearch refuses" in reasons[0]
    assert "HTTP 400, no" in reasons[0]

    between.instead = lambda _: None
    words.follower.follow(LATER, unheard)
    assert listed(memory) == 0


def test_writes_are_of_bounded_size(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    memory.store(*numbered(2 * BATCH + 10))
    words.follower.follow(LATER, unheard)

    sizes = [len(request["lines"]) // 2 for request in between.asked("_bulk")]
    assert sizes == [BATCH, BATCH, 10]


def test_following_ends_when_its_time_is_up(memory: Memory, words: OpenSearchWords) -> None:
    memory.store(*numbered(3))

    assert words.follower.follow(Deadline.after(0), unheard) == 0
    assert listed(memory) == 3


def test_one_process_at_a_time_writes(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    memory.store(*numbered(3))
    between.requests.clear()
    with ThreadPoolExecutor(1) as pool, between.held():
        first = pool.submit(words.follower.follow, LATER, unheard)
        until(lambda: between.requests)

        assert words.follower.follow(LATER, unheard) == 0

        between.free()
        assert first.result() == 3


def test_an_index_waits_for_writers_that_have_not_seen_it(
    database: Database, words: OpenSearchWords
) -> None:
    memory = Memory(database, Untold(words))
    memory.store(node_of("tunnel before"))
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as connection:
            connection.execute("DELETE FROM memory_node WHERE text = 'tunnel before'")
            begun = pool.submit(words.follower.follow, LATER, unheard)
            until(lambda: waits_for_lock(database))
        begun.result()
    words.refresh()

    assert memory.found("tunnel") == []
    assert memory.of().recall("tunnel", LEVELS, 5, LATER).documents == 0


def waits_for_lock(database: Database) -> bool:
    with database.transaction() as connection:
        waiting = connection.execute(
            "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        )
        return bool(waiting.fetchall())


# --- an index made anew


def test_a_rebuild_answers_by_the_present_index_until_the_new_one_is_complete(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    words.follower = Follower(memory.database, words.index, batch=20)
    nodes, late = numbered(100), node_of("tunnel late")
    memory.store(*nodes)
    words.catch_up()
    before, seen, told = words.index.aliases(), [], list[Progress]()

    def look(request: Request) -> None:
        if "_bulk" in request["path"]:
            seen.append((words.index.aliases().read, len(memory.found("tunnel"))))
            if len(seen) == 3:
                memory.store(late)

    between.instead = look
    assert words.follower.rebuild(None, told.append, unheard, pause=no_pause) == 100
    between.instead = lambda _: None

    after = words.index.aliases()
    assert {read for read, _ in seen} == {before.read}
    assert all(found >= 50 for _, found in seen)
    assert len(after.read) == 1
    assert after.read == after.written != before.read
    assert (told[0].done, told[-1].done, told[-1].total) == (0, 100, 100)
    found = memory.of().recall("tunnel", LEVELS, 500, LATER)
    assert len(found.matches) == found.documents == 101


def no_pause(seconds: float) -> None:
    raise AssertionError("nothing to wait for")


def test_a_rebuild_that_was_ended_is_gone_on_with(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    memory.store(*numbered(10))
    words.catch_up()
    between.instead = only("_bulk", reply({}, 503))
    with pytest.raises(LexicalEngineUnavailable):
        words.follower.rebuild(None, lambda _: None, unheard, pause=lambda _: None)
    begun = words.index.aliases()

    between.instead = lambda _: None
    assert words.follower.rebuild(None, lambda _: None, unheard, pause=no_pause) == 10

    after = words.index.aliases()
    assert after.read == begun.written - begun.read
    assert len(memory.found("tunnel")) == 10


def test_upkeep_completes_a_rebuild_that_was_ended(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    memory.store(*numbered(10))
    words.catch_up()
    before = words.index.aliases().read
    between.instead = only("_bulk", reply({}, 503))
    with pytest.raises(LexicalEngineUnavailable):
        words.follower.rebuild(None, lambda _: None, unheard, pause=lambda _: None)
    between.instead = lambda _: None

    words.follower.follow(LATER, unheard)

    after = words.index.aliases()
    assert after.read == after.written != before
    assert len(memory.found("tunnel")) == 10


def test_a_rebuild_waits_longer_each_time_the_server_takes_no_more(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    nodes = numbered(4)
    memory.store(*nodes)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            between.instead = lambda _: None

    between.instead = only("_bulk", reply({}, 429))
    reasons: list[str] = []
    words.follower.rebuild(None, lambda _: None, reasons.append, pause)
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert ["no more for now" in reason for reason in reasons] == [True] * 4

    between.instead = only("_bulk", reply({}, 429))
    with pytest.raises(LexicalEngineUnavailable, match="no more for now"):
        words.follower.rebuild(None, lambda _: None, unheard, lambda _: None)


def test_a_rebuild_of_one_project_writes_its_nodes_into_the_present_index(
    memory: Memory, words: OpenSearchWords, between: SearchStub
) -> None:
    own, other = numbered(6), numbered(3, project="q")
    memory.store(*own, *other)
    words.catch_up()
    before = words.index.aliases()
    between.requests.clear()

    assert words.follower.rebuild("p", lambda _: None, unheard, pause=no_pause) == 6

    assert words.index.aliases() == before
    written = {
        line["index"]["routing"]
        for request in between.asked("_bulk")
        for line in request["lines"]
        if "index" in line
    }
    assert written == {"p"}


def test_an_index_that_somebody_removed_is_made_anew(
    memory: Memory, words: OpenSearchWords
) -> None:
    memory.store(*numbered(3))
    words.catch_up()
    words.index.drop(words.index.aliases().written)
    with pytest.raises(LexicalEngineUnavailable, match="no index of this memory"):
        memory.found("tunnel")

    words.catch_up()

    assert len(memory.found("tunnel")) == 3


def test_nothing_is_listed_once_no_index_follows(memory: Memory, words: OpenSearchWords) -> None:
    memory.store(*numbered(3))
    assert listed(memory) == 3

    stop_following(memory.database)
    memory.store(node_of("tunnel after"))

    assert listed(memory) == 0
    words.catch_up()
    assert len(memory.found("tunnel")) == 4
