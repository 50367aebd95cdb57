"""A submitted query from its acceptance to its end, whoever drives it.

The front door starts and ends jobs, tasks end them, and a sweep does what died with others: it
ends what is overdue, sends again what was lost, and lets the next ones begin. All of it may happen
at once, anywhere: every step is one conditional write in PostgreSQL, and the first one counts.
"""

from collections.abc import Sequence
from typing import Any

import structlog

from workers.deadline import merge_reserve
from workers.errors import PoimenError, QueueUnavailable
from workers.model import (
    Answer,
    Frozen,
    Job,
    JobLook,
    Level,
    ProjectName,
    Query,
    Sending,
    Silence,
    Status,
)
from workers.pipeline.merge import finalize, merge_outcomes
from workers.ports import JobStates, JobStore, Searches
from workers.verdict import verdict

log = structlog.get_logger(__name__)

SETTLED_S = 1.0  # from when a job was sent: now it stands in Redis, or is lost
UNBEGUN_S = 5.0  # a task that nobody began for this long, though none waits, is lost
BLIND_S = 3.0  # past its deadline a job ends without Redis, if it has to


def request_of(query: Query, asked: dict[str, Any], allow_partial: bool) -> dict[str, Any]:
    """What a job keeps of what was asked: for its workers, and as it was asked for its readers."""
    return {
        "text": query.text,
        "levels": [level.value for level in query.levels],
        "limit": query.limit,
        "is_explained": query.is_explained,
        "allow_partial": allow_partial,
        "asked": asked,
    }


def query_of(job: Job) -> Query:
    """The question of a job that has not expired."""
    return Query(
        text=job.request["text"],
        levels=tuple(Level(level) for level in job.request["levels"]),
        limit=job.request["limit"],
        is_explained=job.request["is_explained"],
    )


class Jobs:
    """Starting and ending jobs. Implements `workers.ports.Runs` for them."""

    def __init__(self, store: JobStore, states: JobStates, searches: Searches) -> None:
        self._store = store
        self._states = states
        self._searches = searches

    def start_next(self) -> None:
        """Send the jobs whose turn it is. What cannot be sent now is sent by a later sweep.

        Raises:
            StoreUnavailable: PostgreSQL does not answer.
        """
        for job in self._store.claim_next():
            self.send(job, job.projects)

    def send(self, job: Job, projects: Sequence[ProjectName]) -> None:
        """Send the searches of these projects of a job, which this process has claimed."""
        timeout_s = (job.deadline_at - job.submitted_at).total_seconds()
        left_s = max(0.0, job.left_s - merge_reserve(timeout_s))
        query = query_of(job)
        try:
            opened = self._states.open_job(job, query.limit)
            sending = Sending(job.id, opened.at, left_s, is_job=True)
            if len(job.projects) == 1:
                self._searches.search_one(query, job.projects[0], sending)
            elif projects:
                self._searches.search_all(query, projects, sending)
            else:
                self.end(job.id, "task")
        except QueueUnavailable as error:
            log.warning("job_dispatch_delayed", job=job.id, reason=str(error))

    def end(self, job_id: str, by: str, silence: Silence = Silence.NO_ANSWER) -> Answer | None:
        """End a job with what has arrived; None if there is none, or it was cancelled.

        Raises:
            StoreUnavailable, QueueUnavailable: it cannot be ended now.
        """
        return finalize(self, job_id, by, silence)

    def end_complete(self, job_id: str, by: str) -> None:
        """End a job if each of its projects has an outcome."""
        (pace,) = self._states.pace([job_id])
        if pace is not None and pace.done == pace.total:
            self.end(job_id, by)

    def end_blind(self, job_id: str) -> None:
        """End an overdue job without what Redis may hold of it."""
        job = self._store.find(job_id)
        if job is not None and not job.has_ended:
            log.warning("job_ended_blind", job=job_id)
            self.publish(job_id, merge_outcomes(job_id, _empty(job, "sweep", Silence.NO_ANSWER)))

    def cancel(self, job_id: str) -> bool:
        """End a job and keep nothing; False if it has ended before."""
        job = self._store.finish(job_id, "cancelled", None, None)
        if job is not None:
            self._let_go(job, "cancel")
        return job is not None

    def so_far(self, job: Job) -> Answer:
        """The merge of what has arrived of a job that runs."""
        try:
            frozen = self._states.so_far(job.id)
        except QueueUnavailable:
            frozen = None
        return merge_outcomes(job.id, frozen or _empty(job, "", Silence.UNFINISHED))

    def find_answer(self, query_id: str) -> Answer | None:
        return self._store.find_answer(query_id)

    def freeze(self, query_id: str, by: str, silence: Silence) -> Frozen | None:
        frozen = self._states.freeze(query_id, by, silence)
        if frozen is not None:
            return frozen
        job = self._store.find(query_id)
        if job is None or job.has_ended:
            return None
        if job.dispatched_at is None and silence is Silence.NO_ANSWER:
            silence = Silence.NEVER_BEGUN
        return _empty(job, by, silence)

    def publish(self, query_id: str, answer: Answer) -> Answer | None:
        job = self._store.find(query_id)
        if job is None:
            return None
        error = verdict(answer, job.request.get("allow_partial", True))
        is_whole = all(outcome.status is Status.SUCCESSFUL for outcome in answer.outcomes)
        status = "failed" if error else "completed" if is_whole else "partial"
        ended = self._store.finish(query_id, status, answer, error.code if error else None)
        if ended is None:
            return self._store.find_answer(query_id)
        self._let_go(ended, answer.finalized_by)
        return answer

    def _let_go(self, job: Job, by: str) -> None:
        """What is good to do at once, and done by the next sweep otherwise."""
        try:
            self._states.close(job.id, job.last_revision, by)
            self.start_next()
        except PoimenError as error:
            log.warning("job_end_not_told", job=job.id, reason=str(error))


class Sweep:
    """What keeps the promise of a 202, whatever died. Run once a second, by any number of workers.

    Not thread-safe: each worker has its own.
    """

    def __init__(self, jobs: Jobs, store: JobStore, states: JobStates, attempts: int) -> None:
        """attempts: after so many a job that loses its workers is given up."""
        self._jobs = jobs
        self._store = store
        self._states = states
        self._attempts = attempts
        # As the last run saw them; what two runs see is no passing state.
        self._complete: set[str] = set()
        self._lost: set[str] = set()

    def run(self) -> None:
        """
        Raises:
            StoreUnavailable: PostgreSQL does not answer.
            QueueUnavailable: Redis does not; what can be done without it is done.
        """
        self._end_overdue()
        self._tend()
        self._jobs.start_next()

    def _end_overdue(self) -> None:
        for job in self._store.overdue():
            try:
                self._jobs.end(job.id, "sweep")
            except QueueUnavailable:
                if -job.left_s > BLIND_S:
                    self._jobs.end_blind(job.id)

    def _tend(self) -> None:
        at_work = self._store.at_work()
        looks = self._states.look([job.id for job in at_work])
        workers = {worker for look in looks if look for worker in look.begun.values()}
        seen_lost = self._states.lost(workers)
        # After a restart of Redis nobody seems alive until each worker has said so again.
        lost, self._lost = seen_lost & self._lost, seen_lost
        is_idle = self._states.waiting() == 0
        complete: set[str] = set()
        for job, look in zip(at_work, looks, strict=True):
            if look is None:
                if job.sent_s > SETTLED_S:
                    log.warning("job_forgotten", job=job.id)
                    self._send_again(job, job.projects, is_counted=True)
                continue
            left = [project for project in job.projects if project not in look.answered]
            if not left or look.is_frozen:
                # Its callback, or who froze it, is about to end it; else this does, a turn later.
                complete.add(job.id)
                if job.id in self._complete:
                    self._jobs.end(job.id, "sweep")
            else:
                self._tend_one(job, look, left, lost, is_idle)
        self._complete = complete

    def _tend_one(
        self,
        job: Job,
        look: JobLook,
        left: Sequence[ProjectName],
        lost: set[str],
        is_idle: bool,
    ) -> None:
        orphans = [project for project in left if look.begun.get(project) in lost]
        if orphans and job.sent_s > SETTLED_S:
            log.warning("job_worker_lost", job=job.id, projects=len(orphans))
            self._send_again(job, orphans, is_counted=True)
            return
        unbegun = [project for project in left if project not in look.begun]
        if unbegun and is_idle and job.sent_s > UNBEGUN_S:
            log.warning("job_tasks_lost", job=job.id, projects=len(unbegun))
            self._send_again(job, unbegun, is_counted=False)

    def _send_again(self, job: Job, projects: Sequence[ProjectName], *, is_counted: bool) -> None:
        if is_counted and job.attempts >= self._attempts:
            self._jobs.end(job.id, "sweep", Silence.GIVEN_UP)
            return
        claimed = self._store.claim_again(job, is_counted)
        if claimed is not None:
            self._jobs.send(claimed, projects)


def _empty(job: Job, by: str, silence: Silence) -> Frozen:
    return Frozen(job.projects, job.request["limit"], by, {}, silence, job.documents)
