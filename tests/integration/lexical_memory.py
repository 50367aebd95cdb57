"""A memory whose words are searched by one engine or another, and that is filled alike for both.

In place of OpenSearch there is osmem-server, which speaks its protocol and is not it: it is written
in Go, keeps everything in memory and has one shard. It shows that requests are right and what is
made of answers, not how OpenSearch behaves under load or with several shards and copies. It knows
no `timeout` of a search and never refuses for want of room: a stub answers in its place for these
(see test_opensearch.py). Its BM25 has other figures than Lucene's (the root of how often a term
occurs, another mean length), so that there is nothing to compare them with.
"""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
import pytest
from opensearchpy import OpenSearch
from osmem_server import OsmemServer

from workers.deadline import Deadline
from workers.engines.opensearch.index import WordIndex
from workers.engines.opensearch.search import ProjectIndex
from workers.engines.opensearch.server import SearchServer
from workers.engines.search_text import SearchText
from workers.ingest.nodes import node_sha256
from workers.lexicon import fill
from workers.model import Encoding, Kind, Level, Node
from workers.ports import LexicalIndex
from workers.store.database import Database
from workers.store.lexical import ProjectLexicon
from workers.store.nodes import PostgresNodes
from workers.word_index import Follower

LATER = Deadline.after(86_400)
ENGLISH = SearchText("english")
LEVELS = (Level.L0, Level.L1, Level.L2)
KINDS = {Level.L0: Kind.TURN, Level.L1: Kind.NOTE, Level.L2: Kind.SYNTHESIS}


def node_of(text: str, level: Level = Level.L0, project: str = "p", **fields: Any) -> Node:
    kind, source = fields.pop("kind", KINDS[level]), fields.pop("source", "s")
    sha256 = node_sha256(project, level, kind, source, text, 0)
    return Node(project, sha256, level, kind, source, text, **fields)


class Words(Protocol):
    """How a test reaches an engine."""

    is_exact: bool  # its scores are BM25's to the figure

    def of(self, project: str) -> LexicalIndex: ...

    def catch_up(self) -> None:
        """Everything that is stored can be found, and nothing else."""
        ...


class Memory:
    """PostgreSQL, and what searches its words."""

    def __init__(self, database: Database, words: Words) -> None:
        self.database = database
        self._words = words

    @property
    def is_exact(self) -> bool:
        return self._words.is_exact

    def store(self, *nodes: Node) -> None:
        """As ingest does it, with vectors that nobody looks at."""
        encodings = {node.key: Encoding(np.eye(384, dtype=np.float32)[0], None) for node in nodes}
        with self.database.transaction() as connection:
            repository = PostgresNodes(connection, 1, None, ENGLISH)
            repository.claim_projects(node.project for node in nodes)
            repository.save(nodes, encodings)
        self.catch_up()

    def run(self, statement: str, *arguments: Any) -> None:
        with self.database.transaction() as connection:
            connection.execute(statement.encode(), arguments)
        self.catch_up()

    def catch_up(self) -> None:
        fill(self.database, ENGLISH, LATER)  # what was retitled
        self._words.catch_up()

    def of(self, project: str = "p") -> LexicalIndex:
        return self._words.of(project)

    def found(self, question: str, *levels: Level, project: str = "p") -> list[str]:
        matched = self.of(project).recall(question, levels or LEVELS, 50, LATER)
        return [match.sha256 for match in matched.matches]


class PostgresWords:
    is_exact = True

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, project: str) -> LexicalIndex:
        return ProjectLexicon(self._database, project, ENGLISH)

    def catch_up(self) -> None:
        pass


class OpenSearchWords:
    """An index of its own for one test, removed when it is closed."""

    is_exact = False

    def __init__(
        self, database: Database, url: str, user: str | None = None, password: str | None = None
    ) -> None:
        self.alias = f"poimen-test-{uuid4().hex[:12]}"
        self.server = SearchServer(url, user, password)
        self.index = WordIndex(self.server, self.alias, call_s=30)
        self.follower = Follower(database, self.index)
        account = (user, password) if user else None
        self.client = OpenSearch(hosts=[url], http_auth=account)

    def of(self, project: str) -> LexicalIndex:
        return ProjectIndex(self.server, self.alias, ENGLISH, project)

    def catch_up(self) -> None:
        self.follower.follow(LATER, lambda _: None)
        self.refresh()

    def refresh(self) -> None:
        self.client.indices.refresh(index=f"{self.alias}-write")

    def close(self) -> None:
        aliases = self.index.aliases()
        self.index.drop(aliases.read | aliases.written)
        self.client.close()


@contextmanager
def standing_in() -> Iterator[str]:
    """The address of an osmem-server."""
    with OsmemServer.start(japanese=False) as server:
        yield server.url


@contextmanager
def live_words(database: Database) -> Iterator[OpenSearchWords]:
    """On a real server, which POIMEN_LIVE_OPENSEARCH_URL names; _USER and _PASSWORD likewise."""
    url = os.environ.get("POIMEN_LIVE_OPENSEARCH_URL")
    if url is None:
        pytest.fail("set POIMEN_LIVE_OPENSEARCH_URL, or leave these tests out with -k")
    account = (os.environ.get(f"POIMEN_LIVE_OPENSEARCH_{name}") for name in ("USER", "PASSWORD"))
    with closing(OpenSearchWords(database, url, *account)) as words:
        words.is_exact = True
        yield words
