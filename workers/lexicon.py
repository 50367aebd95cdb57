"""Analysing stored nodes: those that older workers left, or all after a change of language."""

from collections.abc import Callable
from dataclasses import dataclass

from workers.deadline import Deadline
from workers.engines.search_text import SearchText
from workers.model import ProjectName, Sha256
from workers.store.database import Database
from workers.store.lexical import PostgresTerms

BATCH = 128  # nodes analysed in one transaction
START: Sha256 = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a renewal is."""

    done: int
    total: int


def fill(database: Database, search_text: SearchText, end: Deadline) -> int:
    """Analyse nodes that have no terms, until there are none or the time is up; how many."""
    count = 0
    with database.transaction() as connection:
        projects = PostgresTerms(connection, search_text).unfinished()
    for project in projects:
        after = START
        while not end.passed():
            with database.transaction() as connection:
                done = PostgresTerms(connection, search_text).fill(project, after, BATCH)
            if not done:
                break
            count, after = count + len(done), done[-1]
    return count


def renew(
    database: Database,
    language: str,
    only: ProjectName | None,
    told: Callable[[Progress], None],
    *,
    is_all: bool,
) -> int:
    """Analyse nodes anew, those that were analysed otherwise or all; how many.

    A batch at a time, so that questions and ingest go on. Stopped at any point, what is done stays.

    Raises:
        StoreUnavailable: PostgreSQL does not answer.
    """
    search_text = SearchText(language)
    with database.transaction() as connection:
        stored = PostgresTerms(connection, search_text).stored(only)
    if is_all:
        stored = {project: (nodes, 0) for project, (nodes, _) in stored.items()}
    done, total = 0, sum(nodes - analysed for nodes, analysed in stored.values())
    for project, (nodes, analysed) in stored.items():
        after = START
        while nodes > analysed:
            told(Progress(done, max(done, total)))
            with database.transaction() as connection:
                terms = PostgresTerms(connection, search_text)
                renewed = terms.renew(project, after, BATCH, is_all=is_all)
            if not renewed:
                break
            done, after = done + len(renewed), renewed[-1]
    return done
