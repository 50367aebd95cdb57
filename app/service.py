"""The use cases. HTTP today, and every face to come, call these and nothing below them."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import structlog

from app.parameters import ProjectParameters, QueryParameters
from app.reach import check_writer, resolve
from app.schemas import Federation
from workers.deadline import Deadline, merge_reserve
from workers.errors import (
    Overloaded,
    QueueUnavailable,
)
from workers.model import Answer, Method, Principal, Sending, Served
from workers.ports import Projects, QueryStates, Searches, ServedAnswers
from workers.verdict import verdict

log = structlog.get_logger(__name__)

_READ_S = 5.0  # for reads that belong to no query


class Service:
    """What this memory does for a principal."""

    def __init__(
        self,
        projects: Projects,
        states: QueryStates,
        finalize: Callable[[str, str], Answer | None],
        searches: Searches,
        expected_wait_s: Callable[[int], float],
        served: ServedAnswers,
    ) -> None:
        """expected_wait_s: of a task behind so many others, as the workers have been lately."""
        self._projects = projects
        self._states = states
        self._finalize = finalize
        self._searches = searches
        self._expected_wait_s = expected_wait_s
        self._served = served

    def ask(self, parameters: QueryParameters, principal: Principal, began_at: float) -> Answer:
        """Answer a question within its timeout, from whatever projects answered by then.

        Args:
            began_at: when the request began, on the monotonic clock; its timeout counts from there.

        Raises:
            ProjectNotFound: a named project is unknown, or not this principal's.
            Overloaded: what waits already would take longer than this may.
            DeadlineExceeded: every project timed out.
            EmbeddingServiceUnavailable, StoreUnavailable, AllProjectsFailed: every project failed.
            IncompleteAnswer: some did, and no partial answer is wanted.
        """
        deadline = Deadline(began_at + parameters.timeout_s)
        reserve = merge_reserve(parameters.timeout_s)
        query_id = uuid4().hex
        query = parameters.to_query()
        projects = resolve(self._projects, parameters, principal, deadline)
        if not projects:
            return Answer(query_id, (), (), (), (), finalized_by="waiter")
        documents = list(projects.values())
        opened = self._states.open(
            query_id, list(projects), documents, query.limit, deadline.remaining()
        )
        left_s = max(0.0, deadline.remaining() - reserve)
        check_queue(self._expected_wait_s(opened.waiting), left_s)
        sending = Sending(query_id, opened.at, left_s)
        if parameters.project is not None:
            self._searches.search_one(query, parameters.project, sending)
        else:
            self._searches.search_all(query, list(projects), sending)
        # Workers stop a reserve before the deadline; a third of it is kept for merging here.
        answer = self._states.wait(query_id, deadline.remaining() - reserve / 3)
        if answer is None:
            answer = self._finalize(query_id, "waiter")
        if answer is None:
            raise QueueUnavailable("Redis lost this query's state; ask again.")
        error = verdict(answer, parameters.allow_partial)
        if error is not None:
            raise error.with_facts(federation=Federation.of(answer).model_dump(mode="json"))
        self._remember(answer, principal, query.method)
        return answer

    def _remember(self, answer: Answer, principal: Principal, method: Method) -> None:
        """So that feedback can be tied to it; an answer is not withheld for that."""
        try:
            self._served.save(answer.query_id, Served.of(answer, principal.key_id, method))
        except QueueUnavailable as error:
            log.warning("answer_not_remembered", reason=str(error))

    def list_projects(self, principal: Principal) -> list[dict[str, Any]]:
        return self._projects.list_projects(principal, Deadline.after(_READ_S))

    def save_project(self, parameters: ProjectParameters, principal: Principal) -> dict[str, Any]:
        """Create a project, or add what is new about it."""
        check_writer(principal, parameters.project)
        self._projects.save_project(
            parameters.project, parameters.title, parameters.roots, parameters.semantic_weight
        )
        deadline = Deadline.after(_READ_S)
        return self._projects.list_projects(principal, deadline, parameters.project)[0]


def check_queue(wait_s: float, left_s: float) -> None:
    """Refuse at once what would only wait until its deadline.

    Raises:
        Overloaded: it would.
    """
    if wait_s > left_s:
        raise Overloaded(
            f"About {wait_s:.0f} s of work wait already, longer than this question may take; ask"
            " again later, with a larger timeout_seconds, or submit it as a job.",
            retry_after_s=min(30.0, max(1.0, wait_s - left_s)),
        )
