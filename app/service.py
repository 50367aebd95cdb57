"""The use cases. HTTP today, and every face to come, call these and nothing below them."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

import structlog

from app.dispatch import Dispatcher
from app.parameters import IngestParameters, ProjectParameters, QueryParameters
from workers.contracts import NodesPayload
from workers.deadline import Deadline, merge_reserve
from workers.errors import (
    AllProjectsFailed,
    DeadlineExceeded,
    EmbeddingServiceUnavailable,
    IngestNotFound,
    ModelMismatch,
    NotPermitted,
    PoimenError,
    ProjectNotFound,
    QueueUnavailable,
    StoreUnavailable,
)
from workers.model import Answer, Principal, ProjectName, Status
from workers.ports import IngestJobs, Projects, QueryStates

log = structlog.get_logger(__name__)

_READ_S = 5.0  # for reads that belong to no query


class Service:
    """What this memory does for a principal."""

    def __init__(
        self,
        projects: Projects,
        jobs: IngestJobs,
        states: QueryStates,
        finalize: Callable[[str, str], Answer | None],
        dispatcher: Dispatcher,
    ) -> None:
        self._projects = projects
        self._jobs = jobs
        self._states = states
        self._finalize = finalize
        self._dispatcher = dispatcher

    def ask(self, parameters: QueryParameters, principal: Principal, began_at: float) -> Answer:
        """Answer a question within its timeout, from whatever projects answered by then.

        Args:
            began_at: when the request began, on the monotonic clock; its timeout counts from there.

        Raises:
            ProjectNotFound: a named project is unknown, or not this principal's.
            DeadlineExceeded: every project timed out.
            EmbeddingServiceUnavailable, StoreUnavailable, AllProjectsFailed: every project failed.
        """
        deadline = Deadline(began_at + parameters.timeout_s)
        reserve = merge_reserve(parameters.timeout_s)
        query_id = uuid4().hex
        projects = self._resolve(parameters, principal, deadline)
        if not projects:
            return Answer(query_id, (), (), (), (), finalized_by="waiter")
        query = parameters.to_query()
        self._states.open(query_id, projects, query.limit, deadline.remaining())
        left = max(0.0, deadline.remaining() - reserve)
        if parameters.project is not None:
            self._dispatcher.search_one(query_id, query, parameters.project, left)
        else:
            self._dispatcher.search_all(query_id, query, projects, left)
        # Workers stop a reserve before the deadline; a third of it is kept for merging here.
        self._states.wait(query_id, deadline.remaining() - reserve / 3)
        answer = self._finalize(query_id, "waiter")
        if answer is None:
            raise QueueUnavailable("Redis lost this query's state; ask again.")
        if not any(outcome.status.has_answered for outcome in answer.outcomes):
            raise _nobody_answered(answer)
        return answer

    def _resolve(
        self, parameters: QueryParameters, principal: Principal, deadline: Deadline
    ) -> list[ProjectName]:
        name = "projects" if parameters.project is None else "project"
        asked = parameters.projects if parameters.project is None else [parameters.project]
        permitted = self._projects.names(principal, deadline, asked)
        if asked is None:
            return permitted
        for project in asked:
            if project not in permitted:
                raise ProjectNotFound(project, name)
        return sorted(set(asked))

    def list_projects(self, principal: Principal) -> list[dict[str, Any]]:
        return self._projects.list_projects(principal, Deadline.after(_READ_S))

    def save_project(self, parameters: ProjectParameters, principal: Principal) -> dict[str, Any]:
        """Create a project, or add a title and roots to it."""
        _check_writer(principal, parameters.project)
        self._projects.save_project(parameters.project, parameters.title, parameters.roots)
        deadline = Deadline.after(_READ_S)
        return self._projects.list_projects(principal, deadline, parameters.project)[0]

    def submit_ingest(self, parameters: IngestParameters, principal: Principal) -> UUID:
        """Accept nodes. On return they are in PostgreSQL, whatever becomes of the queue."""
        _check_writer(principal, parameters.project)
        payload: NodesPayload = {
            "format": parameters.format,
            "project": parameters.project,
            "projects": None if principal.projects is None else sorted(principal.projects),
            "nodes": parameters.nodes,
        }
        job_id = uuid4()
        self._jobs.save_job(job_id, principal, payload, len(parameters.nodes))
        try:
            self._dispatcher.ingest(str(job_id))
        except QueueUnavailable:
            # Accepted all the same: upkeep sends it once the queue is back.
            log.warning("ingest_dispatch_delayed", job=str(job_id))
        return job_id

    def load_ingest(self, job_id: str, principal: Principal) -> dict[str, Any]:
        """
        Raises:
            IngestNotFound: no such job, or someone else's.
        """
        try:
            parsed = UUID(job_id)
        except ValueError as error:
            raise IngestNotFound(
                "An ingest job's id is what POST /memory/ingest returned."
            ) from error
        return self._jobs.load_job(parsed, principal)


def _check_writer(principal: Principal, project: ProjectName | None) -> None:
    if not principal.can_write:
        raise NotPermitted("This key may only read; `mem keys create` makes one that may write.")
    if project is not None and not principal.may_reach(project):
        raise NotPermitted(f"This key may not write to project {project!r}.")


_UNSEEN = ("no_answer_by_deadline", "expired_in_queue")

_COMMON: dict[str, type[PoimenError]] = {
    kind.code: kind
    for kind in (EmbeddingServiceUnavailable, StoreUnavailable, QueueUnavailable, ModelMismatch)
}


def _nobody_answered(answer: Answer) -> PoimenError:
    """The error of a query without a single answering project; never an empty success."""
    outcomes = answer.outcomes
    if all(outcome.status is Status.TIMED_OUT for outcome in outcomes):
        error: PoimenError = DeadlineExceeded(_why_late(answer))
    else:
        failed = [outcome for outcome in outcomes if outcome.status is Status.FAILED]
        reasons = {outcome.reason for outcome in failed}
        kind = _COMMON.get(next(iter(reasons)) or "") if len(reasons) == 1 else None
        error = (kind or AllProjectsFailed)(_first_message(failed))
    warnings = [warning.message for warning in answer.warnings]
    return error.with_facts(warnings=warnings, query_id=answer.query_id)


def _why_late(answer: Answer) -> str:
    if all(outcome.reason in _UNSEEN for outcome in answer.outcomes):
        return "No worker took the question in time; see GET /health/ready, then ask again."
    return "No project answered in time; ask again with a larger timeout_seconds."


def _first_message(failed: Sequence[Any]) -> str:
    said = [outcome.message for outcome in failed if outcome.message]
    return said[0] if said else "Every project failed; `warnings` says how."
