"""Submitted queries in PostgreSQL: accepted before the 202, and ended once."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import errors
from psycopg.types.json import Jsonb

from workers.contracts import dump_answer, load_answer
from workers.deadline import Deadline
from workers.errors import (
    IdempotencyConflict,
    IdempotencyInProgress,
    Overloaded,
    TooManyJobs,
)
from workers.model import Answer, Job, Parent, ProjectName
from workers.ports import Saved, Submission
from workers.store.database import Database, Statement
from workers.store.queries import load_queries

QUERIES = load_queries("query_jobs.sql")

_BATCH = 500
_READ_S = 5.0


@dataclass(frozen=True, slots=True)
class JobLimits:
    """How much of it there may be."""

    at_once: int  # jobs worked on at the same time; others wait for their turn
    open: int  # unfinished jobs of all keys
    open_of_key: int  # unfinished jobs of one key
    tasks_of_key: int  # of one key's jobs that are at work, unless it is a single one
    tasks_per_query: int


class PostgresQueryJobs:
    """The query_job table. Each method is one transaction.

    Every method raises StoreUnavailable when PostgreSQL does not answer.
    """

    def __init__(self, database: Database, limits: JobLimits) -> None:
        self._database = database
        self._limits = limits

    def save(self, submission: Submission) -> Saved:
        """Accept a submission, or find the first with its idempotency key.

        Raises:
            IdempotencyConflict: the first one asked for something else.
            IdempotencyInProgress: the first one is being accepted at this moment.
            TooManyJobs: this key has as many unfinished ones as it may.
            Overloaded: its turn would not come before its deadline.
        """
        arguments = {
            "id": UUID(submission.id),
            "key_id": submission.key_id,
            "idempotency_key": submission.idempotency_key,
            "fingerprint": submission.fingerprint,
            "request": Jsonb(submission.request),
            "projects": list(submission.projects),
            "documents": list(submission.documents),
            "keep_alive_s": submission.keep_alive_s,
            "timeout_s": submission.timeout_s,
        }
        with self._database.transaction() as connection:
            connection.execute(QUERIES["bound_wait"].encode())

            def row_of(name: str) -> dict[str, Any] | None:
                return connection.execute(QUERIES[name].encode(), arguments).fetchone()

            first = row_of("first_with_key") if submission.idempotency_key else None
            if first is None:
                crowd = row_of("crowd") or {}
                self._check_room(crowd, submission.timeout_s)
                try:
                    if saved := row_of("save_job"):
                        at_work = crowd["all_open"] - crowd["waiting"]
                        return Saved(_job(saved), has_turn=at_work < self._limits.at_once)
                except errors.LockNotAvailable as error:
                    raise _in_progress() from error
                first = row_of("first_with_key")
        if first is None:  # it was forgotten between two statements
            raise _in_progress()
        if bytes(first["fingerprint"]) != submission.fingerprint:
            raise IdempotencyConflict("Use another Idempotency-Key for another request.")
        return Saved(_job(first), is_replayed=True)

    def _check_room(self, crowd: Mapping[str, Any], timeout_s: float) -> None:
        if crowd["own"] >= self._limits.open_of_key:
            raise TooManyJobs(
                f"This key has {crowd['own']} unfinished jobs; wait for some, or stop them:"
                " GET /memory/query/jobs?status=running lists them."
            )
        wait_s = crowd["waiting"] * (crowd["took_s"] or 0.0) / self._limits.at_once
        if crowd["all_open"] >= self._limits.open or wait_s > timeout_s:
            raise Overloaded(
                f"{crowd['all_open']} jobs are unfinished, and this one's turn would come too late;"
                " ask again later, or with a larger timeout_seconds.",
                retry_after_s=min(60.0, max(1.0, wait_s - timeout_s)),
            )

    def claim_next(self) -> list[Job]:
        """The jobs whose turn it is now; they are for the caller to send."""
        with self._database.transaction() as connection:
            rows = connection.execute(QUERIES["claim_next"].encode(), asdict(self._limits))
            return [_job(row) for row in rows]

    def claim_again(self, job: Job, is_counted: bool) -> Job | None:
        """The job for one more attempt; None if another process makes it, or it has ended."""
        arguments = {
            "id": UUID(job.id),
            "dispatched_at": job.dispatched_at,
            "counted": int(is_counted),
        }
        row = self._write("claim_again", arguments)
        return _job(row) if row else None

    def give_back(self, job: Job) -> None:
        """Let a job that was claimed and could not be sent wait for its turn again."""
        arguments = {"id": UUID(job.id), "dispatched_at": job.dispatched_at}
        self._write("give_back", arguments)

    def find(self, job_id: str) -> Job | None:
        rows = self._read("find_job", {"id": UUID(job_id)})
        return _job(rows[0]) if rows else None

    def find_answer(self, job_id: str) -> Answer | None:
        rows = self._read("find_answer", {"id": UUID(job_id)})
        return load_answer(zlib.decompress(rows[0]["answer"])) if rows else None

    def list_jobs(
        self,
        key_id: str,
        statuses: Sequence[str] | None,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> list[Job]:
        """One page, newest first; `before` is when the last one seen was submitted, and its id."""
        arguments = {
            "key_id": key_id,
            "status": None if statuses is None else list(statuses),
            "before_at": before[0] if before else None,
            "before_id": UUID(before[1]) if before else None,
            "limit": limit,
        }
        return [_job(row) for row in self._read("list_jobs", arguments)]

    def finish(
        self, job_id: str, status: str, answer: Answer | None, error: str | None
    ) -> Job | None:
        """End a job, with its answer unless it was cancelled; None if it had ended before."""
        done = 0
        if answer is not None:
            done = sum(outcome.status.has_answered for outcome in answer.outcomes)
        arguments = {
            "id": UUID(job_id),
            "status": status,
            "answer": zlib.compress(dump_answer(answer), level=1) if answer else None,
            "nodes": _nodes_in(answer) if answer else [],
            "done": done,
            "error": error,
        }
        row = self._write("finish_job", arguments)
        return _job(row) if row else None

    def expire(self, job_id: str) -> bool:
        """Remove an ended job's result; whether there was one."""
        return self._write("expire_job", {"id": UUID(job_id)}) is not None

    def at_work(self) -> list[Job]:
        """The jobs that were sent and have time left."""
        return [_job(row) for row in self._read("at_work", {"limit": _BATCH})]

    def overdue(self) -> list[Job]:
        """Unfinished jobs past their deadline."""
        return [_job(row) for row in self._read("overdue", {"limit": _BATCH})]

    def clean_up(self) -> None:
        """Remove what is no longer to be kept, a batch at a time."""
        for name in ("expire_jobs", "forget_jobs"):
            self._write(name, {"limit": _BATCH})

    def _read(self, name: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        (rows,) = self._database.read(
            [Statement(QUERIES[name], arguments)], Deadline.after(_READ_S)
        )
        return rows

    def _write(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        with self._database.transaction() as connection:
            cursor = connection.execute(QUERIES[name].encode(), arguments)
            return cursor.fetchone() if cursor.description else None


def _nodes_in(answer: Answer) -> list[str]:
    """The sha256 of every node that an answer shows, so that it can be forgotten with them.

    Facets tell of nodes that are not shown: their answer goes with any node of their projects.
    """

    def below(parents: Sequence[Parent]) -> Iterator[str]:
        for parent in parents:
            yield parent.sha256
            yield from below(parent.parents)

    shown = {sha for hit in answer.hits for sha in (hit.sha256, *below(hit.parents))}
    explained = {each.sha256 for outcome in answer.outcomes for each in outcome.explained}
    counted = {
        counted_in(outcome.project)
        for outcome in answer.outcomes
        if answer.facets is not None and outcome.status.has_answered
    }
    return sorted(shown | explained | counted)


def counted_in(project: ProjectName) -> str:
    """What stands beside the sha256 of nodes for all nodes of a project."""
    return f"facets of {project}"


def _in_progress() -> IdempotencyInProgress:
    return IdempotencyInProgress("Ask again in a second, with the same key.")


_SAME = ("key_id", "status", "attempts", "done", "error")
_INSTANTS = (
    *("submitted_at", "deadline_at", "asked_at"),
    *("dispatched_at", "finished_at", "expires_at"),
)


def _job(row: Mapping[str, Any]) -> Job:
    return Job(
        id=row["id"].hex,
        request=row["request"] or {},
        projects=tuple(row["projects"] or ()),
        documents=tuple(row["documents"] or ()),
        **{name: row[name] for name in (*_SAME, *_INSTANTS)},
    )
