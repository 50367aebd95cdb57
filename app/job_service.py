"""The use cases of submitted queries: accept, follow, stop, cancel, remove, list."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal
from uuid import UUID, uuid4

import structlog

from app.paging import cursor_after, read_cursor
from app.parameters import JobListParameters, JobParameters, check_idempotency_key
from app.reach import resolve
from workers.deadline import Clock, Deadline
from workers.errors import (
    JobExpired,
    JobNotFound,
    PoimenError,
    QueueUnavailable,
)
from workers.jobs import Jobs, request_of
from workers.model import Answer, Change, Job, Pace, Principal, Silence
from workers.ports import JobStates, JobStore, Projects, Submission

log = structlog.get_logger(__name__)

_READ_S = 5.0
_LOOK_S = 0.25  # between two looks while Redis does not answer
_HITS_S = 0.25  # between two merges shown to one who watches
STREAM_S = 60.0
HEARTBEAT_S = 15.0
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as one look shows it."""

    job: Job
    answer: Answer | None  # so far, if it runs; None of a cancelled one
    pace: Pace | None  # None once it has ended, and while Redis does not tell

    @property
    def status(self) -> str:
        if self.job.has_ended:
            return self.job.status
        return "running" if self.pace is not None and self.pace.is_begun else "queued"

    @property
    def revision(self) -> int:
        return _revision(self.job, self.pace)


@dataclass(frozen=True, slots=True)
class Event:
    """What one who watches a job is told: a change, or what has been found by then."""

    kind: Literal["progress", "hits", "done"]
    revision: int
    view: JobView
    change: Change | None = None


class JobService:
    """What this memory does with the submitted queries of a principal."""

    def __init__(
        self,
        projects: Projects,
        store: JobStore,
        states: JobStates,
        jobs: Jobs,
        clock: Clock = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._projects = projects
        self._store = store
        self._states = states
        self._jobs = jobs
        self._clock = clock
        self._pause = pause

    def submit(
        self, parameters: JobParameters, principal: Principal, idempotency_key: str | None
    ) -> tuple[JobView, bool]:
        """Accept a query. On return it is in PostgreSQL, whatever becomes of the queue.

        Returns:
            Its job, and whether that is an earlier one with the same idempotency key.

        Raises:
            ProjectNotFound: a named project is unknown, or not this principal's.
            QueueUnavailable: Redis does not answer; nothing was accepted.
            IdempotencyConflict, IdempotencyInProgress, TooManyJobs, Overloaded: not accepted.
        """
        check_idempotency_key(idempotency_key)
        self._states.waiting()  # nothing is accepted that nobody could begin
        asked = parameters.model_dump(mode="json")
        found = resolve(self._projects, parameters, principal, Deadline.after(_READ_S))
        submission = Submission(
            id=uuid4().hex,
            key_id=principal.key_id,
            idempotency_key=idempotency_key,
            fingerprint=hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).digest(),
            request=request_of(parameters.to_query(), asked, parameters.allow_partial),
            projects=tuple(found),
            documents=tuple(found.values()),
            timeout_s=parameters.timeout_s,
            keep_alive_s=parameters.keep_alive_s,
        )
        saved = self._store.save(submission)
        if saved.has_turn:
            try:
                self._jobs.start_next()
            except PoimenError as error:
                # Accepted all the same: a sweep sends it.
                log.warning("job_dispatch_delayed", job=saved.job.id, reason=str(error))
        if saved.is_replayed or not found:
            return self.show(saved.job.id, principal), saved.is_replayed
        return JobView(saved.job, self._jobs.nothing_yet(saved.job), None), False

    def show(self, job_id: str, principal: Principal) -> JobView:
        """
        Raises:
            JobNotFound: there is none, or it is someone else's.
            JobExpired: its result is no longer kept.
            QueueUnavailable: it runs, and Redis does not tell how far it is.
        """
        return self._view(self._current(job_id, principal))

    def revision(self, job_id: str, principal: Principal) -> int:
        """The revision `show` would have, without loading what has been found."""
        job = self._current(job_id, principal)
        return _revision(job, None if job.has_ended else self._pace(job))

    def wait(self, job_id: str, principal: Principal, since: int | None, seconds: float) -> JobView:
        """As `show`, once there is news, or after `seconds`.

        Args:
            since: news is a later revision than this; None: the end of the job.
        """
        end = self._clock() + seconds
        job = self._current(job_id, principal)
        seen = -1 if since is None else since
        while not job.has_ended and (left_s := end - self._clock()) > 0:
            revision = self._revision_if_told(job)
            if since is not None and revision > since:
                break
            seen = max(seen, revision)
            self._changes(job_id, seen, min(left_s, max(0.05, job.left_s)))
            job = self._current(job_id, principal)
        return self._view(job)

    def events(self, job_id: str, principal: Principal, since: int) -> Iterator[Event | None]:
        """What happens to a job after a revision, until it ends or the stream has lasted long.

        None is a sign of life while nothing happens.
        """
        job = self._current(job_id, principal)
        end = self._clock() + STREAM_S
        told_at = shown_at = self._clock()
        has_news = since < self._revision_if_told(job)
        while not job.has_ended and (now := self._clock()) < end:
            if has_news and now - shown_at >= _HITS_S:
                # It may show more than has been told; who comes back is told the rest of it.
                yield Event("hits", since, self._view(job))
                has_news, shown_at = False, now
            left_s = _HITS_S if has_news else min(1.0, max(0.05, job.left_s))
            for change in self._changes(job_id, since, left_s):
                since, told_at, has_news = change.revision, now, True
                if not change.is_end:
                    yield Event("progress", change.revision, self._glance(job), change)
            if now - told_at >= HEARTBEAT_S:
                told_at = now
                yield None
            job = self._current(job_id, principal)
        if job.has_ended:
            view = self._view(job)
            yield Event("done", view.revision, view)

    def stop(self, job_id: str, principal: Principal) -> JobView:
        """End a job now, and keep what has been found."""
        job = self._load(job_id, principal)
        if not job.has_ended:
            self._jobs.end(job_id, "stop", Silence.STOPPED)
        return self.show(job_id, principal)

    def remove(self, job_id: str, principal: Principal, if_running: bool) -> JobView | None:
        """Cancel a job that runs, or remove the result of one that has ended.

        One that ends at this very moment keeps its result: that is not what was asked to go.

        Returns:
            The job, unless its result was removed.
        """
        job = self._load(job_id, principal)
        if job.has_ended and not if_running:
            self._store.expire(job_id)
            return None
        if not job.has_ended:
            self._jobs.cancel(job_id)
        return self.show(job_id, principal)

    def list_jobs(
        self, parameters: JobListParameters, principal: Principal
    ) -> tuple[list[JobView], str | None]:
        """One page, without results, and the cursor of the next one."""
        known = {None: None, "running": ["open"], "ended": list(_ENDED)}
        statuses = known.get(parameters.status, [str(parameters.status)])
        before = None if parameters.cursor is None else read_cursor(parameters.cursor)
        jobs = self._store.list_jobs(principal.key_id, statuses, before, parameters.page + 1)
        page = jobs[: parameters.page]
        running = [job.id for job in page if not job.has_ended]
        try:
            paces = dict(zip(running, self._states.pace(running), strict=True))
        except QueueUnavailable:
            paces = {}
        cursor = (
            cursor_after(page[-1].submitted_at, UUID(page[-1].id))
            if len(jobs) > len(page)
            else None
        )
        return [JobView(job, None, paces.get(job.id)) for job in page], cursor

    def _load(self, job_id: str, principal: Principal) -> Job:
        if not _ID.fullmatch(job_id):
            raise _unknown()
        job = self._store.find(job_id)
        if job is None or job.key_id != principal.key_id:
            raise _unknown()
        is_over = job.expires_at is not None and job.expires_at <= job.asked_at
        if job.status == "expired" or is_over:
            raise _expired()
        return job

    def _current(self, job_id: str, principal: Principal) -> Job:
        """The job; one whose deadline is over is ended here, if nobody else did."""
        job = self._load(job_id, principal)
        if job.has_ended or job.left_s > 0:
            return job
        try:
            self._jobs.end(job_id, "poll")
        except QueueUnavailable as error:
            log.warning("job_end_delayed", job=job_id, reason=str(error))
        return self._load(job_id, principal)

    def _view(self, job: Job) -> JobView:
        if job.has_ended:
            answer = self._store.find_answer(job.id)
            if answer is None and job.status != "cancelled":
                raise _expired()  # it was removed at this very moment
            return JobView(job, answer, None)
        pace = self._pace(job)
        return JobView(job, self._jobs.so_far(job), pace)

    def _glance(self, job: Job) -> JobView:
        try:
            return JobView(job, None, self._pace(job))
        except QueueUnavailable:
            return JobView(job, None, None)

    def _pace(self, job: Job) -> Pace | None:
        """How far a running job is; None if Redis does not know it (yet, or any more).

        Raises:
            QueueUnavailable: Redis does not answer. Nothing is shown then that a look before or
                after might contradict.
        """
        return self._states.pace([job.id])[0]

    def _revision_if_told(self, job: Job) -> int:
        """Its revision, or -1 while nobody can tell."""
        try:
            return _revision(job, None if job.has_ended else self._pace(job))
        except QueueUnavailable:
            return -1

    def _changes(self, job_id: str, since: int, seconds: float) -> list[Change]:
        try:
            return self._states.changes(job_id, since, seconds)
        except QueueUnavailable:
            self._pause(min(seconds, _LOOK_S))
            return []


_ENDED = ("completed", "partial", "failed", "cancelled")


def _revision(job: Job, pace: Pace | None) -> int:
    if job.has_ended:
        return job.last_revision
    if pace is not None:
        return pace.revision
    # Just claimed, and not yet in Redis; or forgotten there, when any revision of this attempt may
    # have been seen.
    return job.first_revision if job.sent_s < 1.0 else job.last_revision - 1


def _expired() -> JobExpired:
    return JobExpired("Submit the query again, with a larger keep_alive_seconds if need be.")


def _unknown() -> JobNotFound:
    return JobNotFound("No such job, or it is another key's; GET /memory/query/jobs lists yours.")
