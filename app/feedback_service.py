"""The use cases of what principals say of results: take it, and report what is doubtful."""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.paging import cursor_after, read_cursor
from app.parameters import FeedbackParameters, FeedbackReportParameters, JudgementParameters
from app.reach import check_writer
from workers.contracts import load_query
from workers.deadline import Deadline
from workers.errors import InvalidParameters, ProjectNotFound, QueryNotFound
from workers.model import Feedback, Principal, ProjectName, Served, Sha256
from workers.ports import JobStore, Projects, ServedAnswers

_READ_S = 5.0
_QUESTION_NEEDED = "is required: this query is not known any more"


class FeedbackStore(Protocol):
    """What was said of results, where it lasts."""

    def save(self, feedback: Feedback) -> bool: ...

    def find_project(
        self, node: Sha256, among: Collection[ProjectName] | None
    ) -> ProjectName | None: ...

    def report(
        self,
        principal: Principal,
        *,
        project: ProjectName | None,
        about: str | None,
        keys: int,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> list[dict[str, Any]]: ...

    def judgements(
        self,
        principal: Principal,
        *,
        project: ProjectName | None,
        before: tuple[datetime, int] | None,
        limit: int,
    ) -> list[dict[str, Any]]: ...


class FeedbackService:
    """What this memory learns of its results from a principal."""

    def __init__(
        self,
        projects: Projects,
        served: ServedAnswers,
        jobs: JobStore,
        store: FeedbackStore,
        masked: Callable[[str], str],
    ) -> None:
        """masked: a text without its secrets."""
        self._projects = projects
        self._served = served
        self._jobs = jobs
        self._store = store
        self._masked = masked

    def check_writer(self, principal: Principal) -> None:
        """
        Raises:
            NotPermitted: this principal may only read.
        """
        check_writer(principal, None)

    def give(self, parameters: FeedbackParameters, principal: Principal) -> bool:
        """Keep what is said of a result, without secrets. On return it is in PostgreSQL.

        Returns:
            Whether it is tied to the answer as it was served. That is not known for ever.

        Raises:
            QueryNotFound: the answer is another principal's.
            InvalidParameters: the result is not in that answer, or the answer is not known and
                neither is the question.
            QueueUnavailable: Redis does not tell what is known of the answer.
        """
        served, question = self._find(parameters.query_id, principal)
        hit = served.find(parameters.result_id) if served else None
        if served is not None and hit is None:
            raise InvalidParameters.of("result_id", "is not a result of this query")
        question = parameters.query_text or question
        if served is None and question is None:
            raise InvalidParameters.of("query_text", _QUESTION_NEEDED)
        said = parameters.feedback_text
        return self._store.save(
            Feedback(
                key_id=principal.key_id,
                query_id=parameters.query_id,
                result_id=parameters.result_id,
                query_text=None if question is None else self._masked(question),
                relevant=parameters.relevant,
                rating=parameters.rating,
                feedback_text=None if said is None else self._masked(said),
                project=hit.project if hit else self._project_of(parameters.result_id, principal),
                hit=hit,
                method=served.method if served else None,
            )
        )

    def report(
        self, parameters: FeedbackReportParameters, principal: Principal
    ) -> tuple[list[dict[str, Any]], str | None]:
        """One page of doubtful results, newest first, and the cursor of the next one.

        Raises:
            ProjectNotFound: the named project is unknown, or not this principal's.
        """
        self._check(parameters.project, principal)
        rows = self._store.report(
            principal,
            project=parameters.project,
            about=parameters.about,
            keys=parameters.least_keys,
            before=None if parameters.cursor is None else read_cursor(parameters.cursor),
            limit=parameters.page + 1,
        )
        page = rows[: parameters.page]
        if len(rows) == len(page):
            return page, None
        return page, cursor_after(page[-1]["updated_at"], UUID(page[-1]["result_id"][:32]))

    def judgements(
        self, parameters: JudgementParameters, principal: Principal
    ) -> tuple[list[dict[str, Any]], str | None]:
        """One page of what was said of results that are still there, newest first, and its cursor.

        Raises:
            ProjectNotFound: the named project is unknown, or not this principal's.
        """
        self._check(parameters.project, principal)
        before = None
        if parameters.cursor is not None:
            at, last = read_cursor(parameters.cursor)
            before = at, UUID(last).int % 2**63  # as large as an id may be
        rows = self._store.judgements(
            principal, project=parameters.project, before=before, limit=parameters.page + 1
        )
        page = rows[: parameters.page]
        if len(rows) == len(page):
            return page, None
        return page, cursor_after(page[-1]["updated_at"], UUID(int=page[-1]["id"]))

    def _check(self, project: ProjectName | None, principal: Principal) -> None:
        if project is not None and not self._projects.find_projects(
            principal, (), Deadline.after(_READ_S), [project]
        ):
            raise ProjectNotFound(project)

    def _find(self, query_id: str, principal: Principal) -> tuple[Served | None, str | None]:
        """What is known of an answer, and of a job also what was asked.

        Raises:
            QueryNotFound: it is another principal's.
            InvalidParameters: it is a job that still runs.
        """
        served = self._served.find(query_id)
        job = self._jobs.find(query_id) if served is None else None
        owner = served.key_id if served else job.key_id if job else principal.key_id
        if owner != principal.key_id:
            raise QueryNotFound("No such query, or it is another key's.")
        if job is None:
            return served, None
        if not job.has_ended:
            raise InvalidParameters.of("query_id", "is a job that runs; say it once it has ended")
        answer = self._jobs.find_answer(query_id)
        if answer is None:
            return None, None
        asked = load_query(job.request)
        return Served.of(answer, job.key_id, asked.method), asked.text

    def _project_of(self, node: Sha256, principal: Principal) -> ProjectName | None:
        return self._store.find_project(node, principal.projects)
