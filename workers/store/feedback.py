"""What was said of results, in PostgreSQL: more is kept than the answers it is about."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from workers.deadline import Deadline
from workers.model import Feedback, Principal, ProjectName, Sha256
from workers.store.database import Database, Statement
from workers.store.queries import load_queries

QUERIES = load_queries("feedback.sql")

_READ_S = 5.0

Rows = list[dict[str, Any]]


class PostgresFeedback:
    """The feedback table.

    Every method raises StoreUnavailable when PostgreSQL does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, feedback: Feedback) -> bool:
        """Keep it instead of what the same key said of the same result of the same answer.

        Returns:
            Whether it is tied to an answer, by this or by what was said before.
        """
        hit = feedback.hit
        arguments = {
            "key_id": feedback.key_id,
            "query_id": UUID(feedback.query_id),
            "result_id": feedback.result_id,
            "project": feedback.project,
            "query_text": feedback.query_text,
            "feedback_text": feedback.feedback_text,
            "relevant": feedback.relevant,
            "rating": feedback.rating,
            "is_tied": hit is not None,
            "method": feedback.method,
        }
        for name in ("rank", "semantic", "lexical", "fused", "rerank_score"):
            arguments[name] = getattr(hit, name, None)
        with self._database.transaction() as connection:
            row = connection.execute(QUERIES["save_feedback"].encode(), arguments).fetchone()
        return bool(row and row["is_tied"])

    def find_project(
        self, node: Sha256, among: Collection[ProjectName] | None
    ) -> ProjectName | None:
        """The one of these projects (None: of all) that holds a node."""
        arguments = {"sha256": node, "projects": None if among is None else sorted(among)}
        rows = self._read("project_of", arguments)
        return str(rows[0]["project"]) if rows else None

    def report(
        self,
        principal: Principal,
        *,
        project: ProjectName | None,
        about: str | None,
        keys: int,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> Rows:
        """One page of results that are doubtful, each with what was said of it as `remarks`."""
        projects = None if principal.projects is None else sorted(principal.projects)
        arguments = {
            "projects": projects,
            "key_id": principal.key_id,
            "project": project,
            "about": about,
            "keys": keys,
            "before_at": before[0] if before else None,
            "before_id": before[1] if before else None,
            "limit": limit,
        }
        rows = self._read("report_feedback", arguments)
        asked = {
            "projects": [row["project"] for row in rows],
            "shas": [row["result_id"] for row in rows],
            "key_id": principal.key_id,
            "is_all": _reads_all(principal),
        }
        remarks: list[Rows] = [[] for _ in rows]
        for remark in self._read("remarks_on", asked) if rows else ():
            remarks[remark["place"] - 1].append(remark)
        return [row | {"remarks": own} for row, own in zip(rows, remarks, strict=True)]

    def judgements(
        self,
        principal: Principal,
        *,
        project: ProjectName | None,
        before: tuple[datetime, int] | None,
        limit: int,
    ) -> Rows:
        """One page of what was said of results that are still there."""
        arguments = {
            "projects": None if principal.projects is None else sorted(principal.projects),
            "key_id": principal.key_id,
            "is_all": _reads_all(principal),
            "project": project,
            "before_at": before[0] if before else None,
            "before_id": before[1] if before else None,
            "limit": limit,
        }
        return self._read("list_judgements", arguments)

    def _read(self, name: str, arguments: dict[str, Any]) -> Rows:
        statement = Statement(QUERIES[name], arguments)
        (rows,) = self._database.read([statement], Deadline.after(_READ_S))
        return rows


def _reads_all(principal: Principal) -> bool:
    """Whether it may read what others asked and said."""
    return principal.can_write and principal.projects is None
