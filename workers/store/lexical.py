"""Lexical search in PostgreSQL: the terms of nodes, and exact BM25 over them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from workers.deadline import Deadline
from workers.engines.search_text import MOST_CHARACTERS, SearchText, searched_text
from workers.model import Filters, Kind, Level, Match, Matched, Node, ProjectName, Sha256
from workers.ports import NO_FILTERS
from workers.store.database import Database, Rows, Statement
from workers.store.filters import filtered, filtering
from workers.store.queries import load_queries

QUERIES = load_queries("lexical.sql")
WEIGHED = QUERIES["weighed"]
RECALL = WEIGHED + QUERIES["matched"]
SCORED = WEIGHED + QUERIES["scored"]
RECALL_FILTERED = filtered(SCORED + QUERIES["matched_filtered"])
SCORES = WEIGHED + QUERIES["given"]

# What keeps a question quick in a large project; see docs/scale.md.
MOST_WEIGHED = 32  # of a question that count, the rarest ones
FREQUENT = 0.3  # share of the nodes above which a term is looked up only if it must be
MOST_READ = 30_000  # postings that are compared
KEPT = 500  # nodes, the best by what was read, that get the score of all terms; or twice the depth


@dataclass(frozen=True, slots=True)
class Searched:
    """What is searched of a node."""

    project: ProjectName
    sha256: Sha256
    level: Level
    text: str


class PostgresTerms:
    """The terms of nodes. The caller owns the connection and its transaction.

    It is the only writer of the nodes' projects. Terms leave with their node, by triggers.
    """

    def __init__(self, connection: Connection[dict[str, Any]], search_text: SearchText) -> None:
        self._connection = connection
        self._search_text = search_text

    def save(self, nodes: Iterable[Node]) -> None:
        """Analyse nodes that are stored; those that have their terms keep them."""
        self._save(
            [
                Searched(
                    node.project,
                    node.sha256,
                    node.level,
                    searched_text(node.kind, node.title, node.breadcrumb, node.text),
                )
                for node in nodes
            ]
        )

    def unfinished(self) -> list[ProjectName]:
        """Projects with nodes that have no terms."""
        return [row["project"] for row in self._run("list_unfinished")]

    def stored(self, only: ProjectName | None) -> dict[ProjectName, tuple[int, int]]:
        """The nodes of each project, or of one, and how many of them are analysed in this way."""
        rows = self._run("count_stored", project=only)
        return {row["project"]: (row["nodes"], row["analysed"]) for row in rows}

    def fill(self, project: ProjectName, after: Sha256, limit: int) -> list[Sha256]:
        """Analyse the next nodes after one that have no terms; which these were."""
        self._run("lock_project", project=project)
        return self._analyse(project, self._take("take_missing", project, after, limit))

    def renew(
        self, project: ProjectName, after: Sha256, limit: int, *, is_all: bool
    ) -> list[Sha256]:
        """Analyse the next nodes after one anew, all or those that were analysed otherwise."""
        self._run("lock_project", project=project)
        rows = self._take("take_outdated", project, after, limit, is_all=is_all)
        self._run("drop_terms", project=project, nodes=[row["sha256"] for row in rows])
        return self._analyse(project, rows)

    def _take(
        self, query: str, project: ProjectName, after: Sha256, limit: int, **options: Any
    ) -> Rows:
        bounds = {"after": after, "limit": limit, "most_characters": MOST_CHARACTERS}
        return self._run(query, project=project, **bounds, **options)

    def _analyse(self, project: ProjectName, rows: Rows) -> list[Sha256]:
        self._save(
            [
                Searched(
                    project,
                    row["sha256"],
                    Level(row["level"]),
                    searched_text(Kind(row["kind"]), row["title"], row["breadcrumb"], row["text"]),
                )
                for row in rows
            ]
        )
        return [row["sha256"] for row in rows]

    def _save(self, nodes: Sequence[Searched]) -> None:
        if not nodes:
            return
        terms = [self._search_text.terms(node.text) for node in nodes]
        self._run(
            "save_terms",
            projects=[node.project for node in nodes],
            nodes=[node.sha256 for node in nodes],
            levels=[node.level.value for node in nodes],
            lengths=[own.total() for own in terms],
            terms=[" ".join(own) for own in terms],
            counts=[" ".join(map(str, own.values())) for own in terms],
        )

    def _run(self, name: str, **arguments: Any) -> Rows:
        own = {"analysis": self._search_text.name}
        cursor = self._connection.execute(QUERIES[name].encode(), own | arguments)
        return cursor.fetchall() if cursor.description else []


class ProjectLexicon:
    """Reads of one project. Implements `workers.ports.LexicalIndex`."""

    engine = "postgres"

    def __init__(self, database: Database, project: ProjectName, search_text: SearchText) -> None:
        self._database = database
        self._project = project
        self._search_text = search_text

    def recall(
        self,
        text: str,
        levels: Sequence[Level],
        depth: int,
        deadline: Deadline,
        filters: Filters = NO_FILTERS,
    ) -> Matched:
        """Exact but for one bound: terms that very many nodes have only add to scores.

        They are looked up where rarer ones could leave the answer short. With filters there is no
        such bound: the best by what was read might not pass.
        """
        arguments = self._asking(text, levels, depth)
        if filters:
            statement = Statement(
                RECALL_FILTERED, arguments | filtering(filters), is_planned_anew=True
            )
            (rows,) = self._database.read([statement], deadline)
        else:
            arguments |= {"kept": max(KEPT, 2 * depth)}
            (rows,) = self._database.read(
                [Statement(RECALL, arguments)], deadline, "force_generic_plan"
            )
        matches = tuple(
            Match(row["sha256"], Level(row["level"]), row["score"])
            for row in rows
            if row["sha256"] is not None
        )
        first = rows[0]
        return Matched(matches, first["is_bounded"], first["documents"])

    def scores(
        self, text: str, levels: Sequence[Level], nodes: Sequence[Sha256], deadline: Deadline
    ) -> list[float]:
        arguments = self._asking(text, levels, 1) | {"nodes": list(nodes)}
        (rows,) = self._database.read(
            [Statement(SCORES, arguments)], deadline, "force_generic_plan"
        )
        return [row["score"] for row in rows]

    def holding(self, text: str, nodes: Sequence[Sha256], deadline: Deadline) -> frozenset[Sha256]:
        names = self._search_text.query_names(text)
        if not names or not nodes:
            return frozenset()
        arguments = {"project": self._project, "nodes": list(nodes), "terms": names}
        (rows,) = self._database.read([Statement(QUERIES["holding"], arguments)], deadline)
        return frozenset(row["sha256"] for row in rows)

    def _asking(self, text: str, levels: Sequence[Level], depth: int) -> dict[str, Any]:
        return asking(self._project, self._search_text.query_terms(text), levels, depth)


def asking(
    project: ProjectName, terms: Sequence[str], levels: Sequence[Level], depth: int
) -> dict[str, Any]:
    """What weighing the terms of a question takes."""
    return {
        "project": project,
        "levels": list(levels),
        "terms": list(terms),
        "depth": depth,
        "most_terms": MOST_WEIGHED,
        "frequent": FREQUENT,
        "most_read": MOST_READ,
    }
