"""Submitted queries in this process: their table, their running state, and a time that is told."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from workers.errors import QueueUnavailable, StoreUnavailable
from workers.jobs import Jobs, request_of
from workers.model import (
    Answer,
    Change,
    Frozen,
    Job,
    JobLook,
    Opened,
    Outcome,
    Pace,
    ProjectName,
    Query,
    Sending,
    SignOfLife,
    Silence,
)
from workers.ports import Saved, Submission

EPOCH = datetime(2026, 7, 21, 9, 0, tzinfo=UTC)
OWNER = "owner"


class Timeline:
    """A clock that moves when somebody waits, and what happens while it does."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._coming: list[tuple[float, Callable[[], object]]] = []

    def __call__(self) -> float:
        return self.now

    def instant(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now)

    def after(self, seconds: float, happens: Callable[[], object]) -> None:
        self._coming.append((self.now + seconds, happens))
        self._coming.sort(key=lambda one: one[0])

    def advance(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, or less of it if something happens that is waited for."""
        end = self.now + seconds
        while self._coming and self._coming[0][0] <= end and not until():
            self.now, happens = self._coming.pop(0)
            happens()
        if not until():
            self.now = end


@dataclass
class FakeStore:
    """The table of jobs. Implements `workers.ports.JobStore`."""

    time: Timeline
    at_once: int = 8
    is_down: bool = False
    rows: dict[str, Job] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    keep_alive_s: dict[str, int] = field(default_factory=dict)

    def add(self, job_id: str, *projects: ProjectName, timeout_s: float = 60, **fields: Any) -> Job:
        """A job that waits for its turn."""
        query = Query("why", limit=3)
        allow_partial = fields.pop("allow_partial", True)
        asked = {"query": "why", "limit": 3, "allow_partial": allow_partial}
        self.rows[job_id] = Job(
            id=job_id,
            key_id=fields.pop("key_id", OWNER),
            status="open",
            request=request_of(query, asked, allow_partial),
            projects=projects,
            documents=tuple(range(1, len(projects) + 1)),
            attempts=0,
            submitted_at=self.time.instant(),
            deadline_at=self.time.instant() + timedelta(seconds=timeout_s),
            asked_at=self.time.instant(),
            **fields,
        )
        return self.rows[job_id]

    def save(self, submission: Submission) -> Saved:
        self._check()
        for job_id, row in self.rows.items():
            if submission.idempotency_key and job_id.endswith(submission.idempotency_key):
                return Saved(row, is_replayed=True)
        self.add(submission.id, *submission.projects, timeout_s=submission.timeout_s)
        self._change(
            submission.id,
            key_id=submission.key_id,
            request=submission.request,
            documents=submission.documents,
        )
        at_work = sum(one.dispatched_at is not None for one in self._open())
        return Saved(self.rows[submission.id], has_turn=at_work < self.at_once)

    def claim_next(self) -> list[Job]:
        self._check()
        at_work = sum(one.dispatched_at is not None for one in self._open())
        waiting = [one.id for one in self._open() if one.dispatched_at is None and one.left_s > 0]
        return [self._claim(job_id) for job_id in waiting[: max(0, self.at_once - at_work)]]

    def claim_again(self, job: Job, is_counted: bool) -> Job | None:
        self._check()
        now = self._now(job.id)
        if now is None or now.has_ended or now.dispatched_at != job.dispatched_at:
            return None
        return self._claim(job.id, int(is_counted))

    def give_back(self, job: Job) -> None:
        self._check()
        self._change(job.id, dispatched_at=None, attempts=job.attempts - 1)

    def find(self, job_id: str) -> Job | None:
        self._check()
        return self._now(job_id)

    def find_answer(self, job_id: str) -> Answer | None:
        self._check()
        return self.answers.get(job_id)

    def list_jobs(
        self,
        key_id: str,
        statuses: Sequence[str] | None,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> list[Job]:
        self._check()
        own = [one for one in self.rows.values() if one.key_id == key_id]
        asked = [one for one in own if statuses is None or one.status in statuses]
        newest = sorted(asked, key=lambda one: (one.submitted_at, one.id), reverse=True)
        older = [one for one in newest if before is None or (one.submitted_at, one.id) < before]
        return [replace(one, asked_at=self.time.instant()) for one in older[:limit]]

    def finish(
        self, job_id: str, status: str, answer: Answer | None, error: str | None
    ) -> Job | None:
        self._check()
        row = self._now(job_id)
        if row is None or row.has_ended:
            return None
        now = self.time.instant()
        expires = now + timedelta(seconds=60)
        self._change(job_id, status=status, error=error, finished_at=now, expires_at=expires)
        if answer is not None:
            self.answers[job_id] = answer
        return self._now(job_id)

    def expire(self, job_id: str) -> bool:
        self._check()
        self._change(job_id, status="expired")
        return self.answers.pop(job_id, None) is not None

    def at_work(self) -> list[Job]:
        self._check()
        return [one for one in self._open() if one.dispatched_at is not None and one.left_s > 0]

    def overdue(self) -> list[Job]:
        self._check()
        return [one for one in self._open() if one.left_s <= 0]

    def clean_up(self) -> None: ...

    def status(self, job_id: str) -> str:
        return self.rows[job_id].status

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable("no database")

    def _now(self, job_id: str) -> Job | None:
        row = self.rows.get(job_id)
        return None if row is None else replace(row, asked_at=self.time.instant())

    def _open(self) -> list[Job]:
        now = self.time.instant()
        return [replace(one, asked_at=now) for one in self.rows.values() if not one.has_ended]

    def _change(self, job_id: str, **fields: Any) -> None:
        self.rows[job_id] = replace(self.rows[job_id], **fields)

    def _claim(self, job_id: str, attempts: int = 1) -> Job:
        row = self.rows[job_id]
        now = self.time.instant()
        self._change(job_id, dispatched_at=now, attempts=row.attempts + attempts, asked_at=now)
        return self.rows[job_id]


@dataclass
class State:
    """What is known of one running job."""

    job: Job
    limit: int
    base: int
    begun: dict[ProjectName, str] = field(default_factory=dict)
    outcomes: dict[ProjectName, Outcome] = field(default_factory=dict)
    is_begun: bool = False
    by: str | None = None
    silence: Silence = Silence.NO_ANSWER
    changes: list[Change] = field(default_factory=list)


@dataclass
class FakeStates:
    """The running state of jobs. Implements `workers.ports.JobStates`."""

    time: Timeline
    is_down: bool = False
    is_full: bool = False
    tasks: int = 0  # that wait in the queue
    jobs: dict[str, State] = field(default_factory=dict)
    alive: dict[str, SignOfLife] = field(default_factory=dict)
    closed: list[tuple[str, int, str]] = field(default_factory=list)

    def open_job(self, job: Job, projects: Sequence[ProjectName], limit: int) -> Opened:
        self._check(is_write=True)
        state = self.jobs.setdefault(job.id, State(job, limit, job.first_revision))
        state.base = job.first_revision
        for project in projects:
            state.begun.pop(project, None)
        return Opened(self.tasks, self.time())

    def begin(self, job_id: str, worker: str, *projects: ProjectName) -> None:
        """A worker takes these projects, and says so."""
        state = self.jobs[job_id]
        if not state.is_begun:
            state.is_begun = True
            state.changes.append(Change(state.base + 1))
        state.begun |= dict.fromkeys(projects, worker)
        jobs = {job_id} | (self.alive[worker].jobs if worker in self.alive else set())
        self.alive[worker] = SignOfLife(0.0, frozenset(jobs))

    def record(self, job_id: str, *outcomes: Outcome) -> None:
        """What a worker found."""
        state = self.jobs[job_id]
        for outcome in outcomes:
            state.outcomes[outcome.project] = outcome
            revision = state.base + 1 + len(state.outcomes)
            state.changes.append(Change(revision, outcome.project, outcome.status, outcome.reason))

    def freeze(self, query_id: str, by: str, silence: Silence) -> Frozen | None:
        self._check(is_write=True)
        state = self.jobs.get(query_id)
        if state is None:
            return None
        if state.by is None:
            state.by, state.silence = by, silence
        return self._frozen(state, state.by, state.silence)

    def so_far(self, query_id: str) -> Frozen | None:
        self._check()
        state = self.jobs.get(query_id)
        return None if state is None else self._frozen(state, "", Silence.UNFINISHED)

    def pace(self, query_ids: Sequence[str]) -> list[Pace | None]:
        self._check()
        return [self._pace(self.jobs.get(query_id)) for query_id in query_ids]

    def look(self, query_ids: Sequence[str]) -> list[JobLook | None]:
        self._check()
        states = [self.jobs.get(query_id) for query_id in query_ids]
        return [
            one and JobLook(one.by is not None, frozenset(one.outcomes), dict(one.begun))
            for one in states
        ]

    def signs(self, workers: Collection[str]) -> dict[str, SignOfLife]:
        self._check()
        return {worker: self.alive[worker] for worker in workers if worker in self.alive}

    def waiting(self) -> int:
        self._check()
        return self.tasks

    def takes_writes(self) -> bool:
        self._check()
        return not self.is_full

    def changes(self, query_id: str, since: int, seconds: float) -> list[Change]:
        def news() -> list[Change]:
            changes = self.jobs[query_id].changes if query_id in self.jobs else []
            return [change for change in changes if change.revision > since]

        self._check()
        if not news():
            self.time.advance(min(1.0, seconds), until=lambda: bool(news()))
        return news()

    def close(self, query_id: str, revision: int, by: str) -> None:
        self._check(is_write=True)
        self.closed.append((query_id, revision, by))
        if query_id in self.jobs:
            self.jobs[query_id].by = self.jobs[query_id].by or by
            self.jobs[query_id].changes.append(Change(revision, is_end=True))

    def _check(self, is_write: bool = False) -> None:
        if self.is_down or (is_write and self.is_full):
            raise QueueUnavailable("no Redis")

    @staticmethod
    def _frozen(state: State, by: str, silence: Silence) -> Frozen:
        job = state.job
        return Frozen(job.projects, state.limit, by, dict(state.outcomes), silence, job.documents)

    @staticmethod
    def _pace(state: State | None) -> Pace | None:
        if state is None:
            return None
        done = len(state.outcomes)
        revision = state.base + state.is_begun + done
        return Pace(revision, state.is_begun, done, len(state.job.projects))


@dataclass
class FakeSearches:
    """The queue. Implements `workers.ports.Searches`."""

    is_down: bool = False
    sent: list[tuple[str, str, list[ProjectName]]] = field(default_factory=list)
    left_s: list[float] = field(default_factory=list)

    def search_one(self, query: Query, project: ProjectName, sending: Sending) -> None:
        self._send("one", [project], sending)

    def search_all(self, query: Query, projects: Sequence[ProjectName], sending: Sending) -> None:
        self._send("all", list(projects), sending)

    def _send(self, how: str, projects: list[ProjectName], sending: Sending) -> None:
        if self.is_down:
            raise QueueUnavailable("no broker")
        assert sending.is_job
        self.sent.append((how, sending.query_id, projects))
        self.left_s.append(sending.left_s)


@dataclass
class World:
    """Jobs, and everything they reach."""

    time: Timeline = field(default_factory=Timeline)
    searches: FakeSearches = field(default_factory=FakeSearches)

    def __post_init__(self) -> None:
        self.store = FakeStore(self.time)
        self.states = FakeStates(self.time)
        self.jobs = Jobs(self.store, self.states, self.searches)

    def begun(self, job_id: str, *projects: ProjectName, **fields: Any) -> None:
        """A job that was sent, and that one worker has begun."""
        self.store.add(job_id, *projects, **fields)
        self.jobs.start_next()
        self.states.begin(job_id, "worker", *projects)
        self.searches.sent.clear()

    def answer(self, job_id: str) -> Answer:
        return self.store.answers[job_id]


def statuses(answer: Answer) -> Mapping[ProjectName, tuple[str, str | None]]:
    return {one.project: (one.status.value, one.reason) for one in answer.outcomes}
