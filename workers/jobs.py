"""A submitted query from its acceptance to its end, whoever drives it.

The front door starts and ends jobs, tasks end them, and a sweep does what died with others: it
ends what is overdue, sends again what was lost, and lets the next ones begin. All of it may happen
at once, anywhere: every step is one conditional write in PostgreSQL, and the first one counts.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from workers.contracts import dump_query, load_query
from workers.deadline import Clock, merge_reserve
from workers.errors import PoimenError, QueueUnavailable, StoreUnavailable
from workers.model import (
    Answer,
    Frozen,
    Job,
    JobLook,
    ProjectName,
    Query,
    Sending,
    SignOfLife,
    Silence,
    Status,
)
from workers.pipeline.merge import finalize, merge_outcomes
from workers.ports import JobStates, JobStore, Searches
from workers.verdict import verdict

log = structlog.get_logger(__name__)

SETTLED_S = 1.0  # from when a job was sent: now it stands in Redis, or is lost
SUSPECT_S = 1.5  # a worker that lives says within this what it works on
UNBEGUN_S = 5.0  # a task that nobody began for this long, though none waits, is lost
BLIND_S = 2.0  # past its deadline a job ends without Redis, if it has to


def request_of(query: Query, asked: dict[str, Any], allow_partial: bool) -> dict[str, Any]:
    """What a job keeps of what was asked: for its workers, and as it was asked for its readers."""
    return dump_query(query) | {"allow_partial": allow_partial, "asked": asked}


def query_of(job: Job) -> Query:
    """The question of a job that has not expired."""
    return load_query(job.request)


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
            opened = self._states.open_job(job, projects, query.limit)
        except QueueUnavailable as error:
            log.warning("job_dispatch_delayed", job=job.id, reason=str(error))
            self._store.give_back(job)  # nothing has begun, so it was no attempt
            return
        try:
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

    def end_unfrozen(self, job: Job, has_redis: bool) -> None:
        """End an overdue job while Redis takes no writes, with what it may still tell.

        Args:
            has_redis: it is worth asking; a wait for one that hangs would hold up other jobs.

        Raises:
            StoreUnavailable: it cannot be ended now.
            QueueUnavailable: Redis was asked, and does not answer.
        """
        frozen = self._states.so_far(job.id) if has_redis else None
        log.warning("job_ended_unfrozen", job=job.id, is_blind=frozen is None)
        frozen = frozen or _empty(job, "sweep", Silence.NO_ANSWER)
        frozen = replace(frozen, by="sweep", silence=Silence.NO_ANSWER)
        self._finish(job, merge_outcomes(job.id, frozen))

    def cancel(self, job_id: str) -> bool:
        """End a job and keep nothing; False if it has ended before."""
        job = self._store.finish(job_id, "cancelled", None, None)
        if job is not None:
            self._let_go(job, "cancel")
        return job is not None

    def so_far(self, job: Job) -> Answer:
        """The merge of what has arrived of a job that runs.

        Raises:
            QueueUnavailable: Redis does not answer.
        """
        frozen = self._states.so_far(job.id)
        return merge_outcomes(job.id, frozen) if frozen else self.nothing_yet(job)

    def nothing_yet(self, job: Job) -> Answer:
        """The answer of a job of which nothing has arrived."""
        return merge_outcomes(job.id, _empty(job, "", Silence.UNFINISHED))

    def freeze(self, query_id: str, by: str, silence: Silence) -> Frozen | Answer | None:
        answer = self._store.find_answer(query_id)
        if answer is not None:
            return answer
        frozen = self._states.freeze(query_id, by, silence)
        if frozen is not None:
            return frozen
        job = self._store.find(query_id)
        if job is None or job.has_ended:
            return None
        if silence is Silence.NO_ANSWER and job.left_s > 0:
            return None  # Redis forgot it at this very moment: it is sent again
        if job.dispatched_at is None and silence is Silence.NO_ANSWER:
            silence = Silence.NEVER_BEGUN
        return _empty(job, by, silence)

    def publish(self, query_id: str, answer: Answer) -> Answer | None:
        job = self._store.find(query_id)
        if job is None:
            return None
        ended = self._finish(job, answer)
        if ended is None:
            return self._store.find_answer(query_id)
        self._let_go(ended, answer.finalized_by)
        return answer

    def _finish(self, job: Job, answer: Answer) -> Job | None:
        error = verdict(answer, job.request.get("allow_partial", True))
        is_whole = all(outcome.status is Status.SUCCESSFUL for outcome in answer.outcomes)
        status = "failed" if error else "completed" if is_whole else "partial"
        return self._store.finish(job.id, status, answer, error.code if error else None)

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

    def __init__(
        self,
        jobs: Jobs,
        store: JobStore,
        states: JobStates,
        attempts: int,
        clock: Clock = time.monotonic,
    ) -> None:
        """attempts: after so many a job that loses its workers is given up."""
        self._jobs = jobs
        self._store = store
        self._states = states
        self._attempts = attempts
        self._clock = clock
        # As the runs before saw them; what is seen for a while is no passing state.
        self._complete: set[str] = set()
        self._suspects: dict[_Suspect, float] = {}

    def run(self) -> None:
        """
        Raises:
            StoreUnavailable: PostgreSQL does not answer.
            QueueUnavailable: Redis does not, or takes no writes; what can be done so is done.
        """
        takes_writes = has_redis = False
        refusal = QueueUnavailable("Redis takes no writes; see GET /health/ready.")
        try:
            takes_writes, has_redis = self._states.takes_writes(), True
        except QueueUnavailable as error:
            refusal = error
        self._end_overdue(takes_writes, has_redis)
        if not takes_writes:
            # Nobody can say that they live, and nothing can be sent.
            self._suspects.clear()
            raise refusal
        self._tend()
        self._jobs.start_next()

    def _end_overdue(self, takes_writes: bool, has_redis: bool) -> None:
        for job in self._store.overdue():
            if takes_writes:
                try:
                    with _alone(job):
                        self._jobs.end(job.id, "sweep")
                        continue
                except QueueUnavailable:
                    takes_writes = False
            if -job.left_s <= BLIND_S:
                continue
            try:
                with _alone(job):
                    self._jobs.end_unfrozen(job, has_redis)
                    continue
            except QueueUnavailable:
                has_redis = False
            self._jobs.end_unfrozen(job, has_redis=False)

    def _tend(self) -> None:
        at_work = self._store.at_work()
        looks = self._states.look([job.id for job in at_work])
        workers = {worker for look in looks if look for worker in look.begun.values()}
        signs = self._states.signs(workers)
        is_idle = self._states.waiting() == 0
        complete: set[str] = set()
        suspects: dict[_Suspect, float] = {}
        for job, look in zip(at_work, looks, strict=True):
            with _alone(job):
                if look is None:
                    self._tend_forgotten(job)
                    continue
                left = [project for project in job.projects if project not in look.answered]
                if left and not look.is_frozen:
                    seen = self._suspected(job, look, left, signs)
                    suspects |= seen
                    orphans = [suspect.project for suspect in seen if self._is_lost(suspect, signs)]
                    self._tend_one(job, look, left, orphans, is_idle)
                    continue
                # Its callback, or who froze it, is about to end it; else this does, a turn later.
                complete.add(job.id)
                if job.id in self._complete:
                    self._jobs.end(job.id, "sweep")
        self._complete, self._suspects = complete, suspects

    def _suspected(
        self,
        job: Job,
        look: JobLook,
        left: Sequence[ProjectName],
        signs: Mapping[str, SignOfLife],
    ) -> dict["_Suspect", float]:
        """The projects whose worker does not say that it works on this job, and since when.

        It may have ended, or be done with a search whose outcome Redis has lost.
        """
        begun = [_Suspect(job.id, project, look.begun.get(project, "")) for project in left]
        return {
            suspect: self._suspects.get(suspect, self._clock())
            for suspect in begun
            if suspect.worker
            and (suspect.worker not in signs or job.id not in signs[suspect.worker].jobs)
        }

    def _is_lost(self, suspect: "_Suspect", signs: Mapping[str, SignOfLife]) -> bool:
        """Whether the worker had time to say so, after a restart of Redis for example."""
        since_s = self._clock() - self._suspects.get(suspect, self._clock())
        sign = signs.get(suspect.worker)
        return since_s > SUSPECT_S and (sign is None or sign.age_s < since_s)

    def _tend_forgotten(self, job: Job) -> None:
        if job.sent_s > SETTLED_S:
            log.warning("job_forgotten", job=job.id)
            # That Redis forgets is no fault of the job's, however often.
            self._send_again(job, job.projects, is_counted=True)

    def _tend_one(
        self,
        job: Job,
        look: JobLook,
        left: Sequence[ProjectName],
        orphans: Sequence[ProjectName],
        is_idle: bool,
    ) -> None:
        if orphans:
            log.warning("job_worker_lost", job=job.id, projects=len(orphans))
            if job.attempts >= self._attempts:
                self._jobs.end(job.id, "sweep", Silence.GIVEN_UP)
            else:
                self._send_again(job, orphans, is_counted=True)
            return
        unbegun = [project for project in left if project not in look.begun]
        if unbegun and is_idle and job.sent_s > UNBEGUN_S:
            log.warning("job_tasks_lost", job=job.id, projects=len(unbegun))
            self._send_again(job, unbegun, is_counted=False)

    def _send_again(self, job: Job, projects: Sequence[ProjectName], *, is_counted: bool) -> None:
        claimed = self._store.claim_again(job, is_counted)
        if claimed is not None:
            self._jobs.send(claimed, projects)


class _Suspect(NamedTuple):
    """A project that was begun, and that nobody may be working on any more."""

    job_id: str
    project: ProjectName
    worker: str


@contextmanager
def _alone(job: Job) -> Iterator[None]:
    """What is broken about one job ends no care for the others."""
    try:
        yield
    except (StoreUnavailable, QueueUnavailable):
        raise
    except Exception as error:  # its outcomes may be of another version
        log.error("job_not_tended", job=job.id, error=type(error).__name__, exc_info=error)


def _empty(job: Job, by: str, silence: Silence) -> Frozen:
    return Frozen(job.projects, job.request["limit"], by, {}, silence, job.documents)
