"""Accepted submissions, from the 202 to their end."""

import json
import os
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from psycopg import Connection, errors
from psycopg.types.json import Jsonb

from workers.contracts import NodesPayload
from workers.deadline import Deadline
from workers.errors import IdempotencyConflict, IdempotencyInProgress, IngestNotFound
from workers.model import Principal, ProjectName
from workers.naming import document_name
from workers.ports import Accepted, IngestSubmission
from workers.store.database import Database, Statement
from workers.store.queries import load_queries

QUERIES = load_queries("ingest_jobs.sql")

SILENT_S = 60.0  # a running job without a heartbeat for this long has lost its worker
_READ_S = 5.0
WAITED_S = 5.0  # a due job that nobody began for this long has lost its message


@dataclass(frozen=True, slots=True)
class Claim:
    """A job this worker may work on, until someone else's attempt is a later one."""

    id: UUID
    attempt: int
    key_id: str
    project: ProjectName | None
    format: str
    scope: frozenset[ProjectName] | None  # projects the submitter may write to; None: all
    payload: bytes | None  # None: it has files

    def read(self) -> NodesPayload:
        """What was submitted.

        Raises:
            UnreadablePayload: it is damaged, or nested deeper than can be read.
        """
        try:
            return cast(NodesPayload, json.loads(zlib.decompress(self.payload or b"")))
        except (zlib.error, ValueError, RecursionError) as error:
            raise UnreadablePayload(type(error).__name__) from error


@dataclass(frozen=True, slots=True)
class SubmittedFile:
    """One file of a job, as it was sent."""

    number: int
    name: str
    packed: bytes

    def read(self) -> bytes:
        """Its content.

        Raises:
            UnreadablePayload: it is damaged.
        """
        try:
            return zlib.decompress(self.packed)
        except zlib.error as error:
            raise UnreadablePayload(type(error).__name__) from error


class UnreadablePayload(Exception):
    """A stored submission cannot be read, however often it is tried."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Jobs that are not worked on though they are due."""

    jobs: int
    oldest_s: float


class PostgresIngestJobs:
    """The ingest_job table. Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def submit(self, submission: IngestSubmission) -> Accepted:
        """Accept a submission, unless there is a job for the same already.

        Raises:
            IdempotencyConflict: its idempotency key was used for another one.
            IdempotencyInProgress: the first one with its key is being accepted at this moment.
        """
        payload = submission.payload
        arguments = {
            "id": submission.id,
            "key_id": submission.key_id,
            "project": submission.project,
            "format": submission.format,
            "payload": None if payload is None else _packed(json.dumps(payload).encode()),
            "total": submission.total,
            "scope": None if submission.scope is None else sorted(submission.scope),
            "idempotency_key": submission.idempotency_key,
            "fingerprint": submission.fingerprint,
        }
        with self._database.transaction() as connection:
            connection.execute(QUERIES["bound_wait"].encode())

            def row_of(name: str) -> dict[str, Any] | None:
                return connection.execute(QUERIES[name].encode(), arguments).fetchone()

            first = row_of("first_with_key") if submission.idempotency_key else None
            if first is None:
                if submission.idempotency_key is None:
                    # An equal one that takes too long to be stored is not waited for: both are
                    # then worked through, and the second changes nothing.
                    with suppress(errors.LockNotAvailable), connection.transaction():
                        connection.execute(QUERIES["take_turn"].encode(), arguments)
                    same = row_of("first_with_content")
                    if same is not None:
                        return Accepted(same["id"], is_duplicate=True)
                try:
                    if row_of("save_job"):
                        _save_files(connection, submission)
                        return Accepted(submission.id)
                except errors.LockNotAvailable as error:
                    raise _in_progress() from error
                first = row_of("first_with_key")
        if first is None:  # it was forgotten between two statements
            raise _in_progress()
        # Of what was forgotten since, the fingerprint is gone too.
        if first["fingerprint"] not in (None, submission.fingerprint):
            raise IdempotencyConflict("Use another Idempotency-Key for another submission.")
        return Accepted(first["id"], is_duplicate=True, is_replayed=True)

    def load_job(self, job_id: UUID, principal: Principal) -> dict[str, Any]:
        """
        Raises:
            IngestNotFound: no such job, or another key's that this one may not see.
        """
        row = self._execute("find_job", {"id": job_id, **_seeing(principal)})
        if row is None:
            raise IngestNotFound(f"No ingest job {job_id}, or it is another key's.")
        return row | {"files": row["files"] or self._reports(job_id)}

    def list_jobs(
        self,
        principal: Principal,
        statuses: Sequence[str] | None,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> list[dict[str, Any]]:
        """One page, newest first; `before` is when the last one seen was submitted, and its id."""
        arguments = {
            **_seeing(principal),
            "status": None if statuses is None else list(statuses),
            "before_at": before[0] if before else None,
            "before_id": UUID(before[1]) if before else None,
            "limit": limit,
        }
        statement = Statement(QUERIES["list_jobs"], arguments)
        (rows,) = self._database.read([statement], Deadline.after(_READ_S))
        return rows

    def cancel(self, job_id: UUID, principal: Principal) -> bool:
        """End a job that has not ended; whether there was one."""
        arguments = {"id": job_id, **_seeing(principal)}
        with self._database.transaction() as connection:
            found = connection.execute(QUERIES["cancel_job"].encode(), arguments).fetchone()
            if found is not None:
                connection.execute(QUERIES["cancel_files"].encode(), arguments)
        return found is not None

    def retry_ended(self, job_id: UUID, principal: Principal) -> bool:
        """Put a job that failed back into the queue; False if it has nothing to try again."""
        arguments = {"id": job_id, **_seeing(principal)}
        with self._database.transaction() as connection:
            found = connection.execute(QUERIES["retry_ended_job"].encode(), arguments).fetchone()
            if found is not None:
                connection.execute(QUERIES["reopen_files"].encode(), arguments)
        return found is not None

    def begin_file(self, claim: Claim, tried: Sequence[int]) -> SubmittedFile | None:
        """A file of the job that has not ended and is none of those tried; None: there is none."""
        arguments = {"id": claim.id, "attempt": claim.attempt, "tried": list(tried)}
        row = self._execute("begin_file", arguments)
        return SubmittedFile(row["number"], row["name"], row["data"] or b"") if row else None

    def has_namesake(self, claim: Claim, file: SubmittedFile) -> bool:
        """Whether a file that stands before this one in the job would be the same document."""
        arguments = {"id": claim.id, "number": file.number}
        statement = Statement(QUERIES["namesakes_before"], arguments)
        (rows,) = self._database.read([statement], Deadline.after(_READ_S))
        own = document_name(file.name)
        return any(document_name(row["name"]) == own for row in rows)

    def count_files(self, claim: Claim) -> tuple[int, int]:
        """The job's files that have ended, and all of them."""
        row = self._execute("count_files", {"id": claim.id})
        return (row["done"], row["total"]) if row else (0, 0)

    def statuses(self, claim: Claim) -> set[str]:
        """How the job's files have ended."""
        return {report["status"] for report in self._reports(claim.id)}

    def finish_file(
        self, claim: Claim, number: int, report: Mapping[str, Any], *, keeps_data: bool
    ) -> None:
        """End a file. keeps_data: it may be worth another try."""
        arguments = {"id": claim.id, "attempt": claim.attempt, "number": number}
        arguments |= {"report": Jsonb(report), "keeps_data": keeps_data}
        self._execute("finish_file", arguments)

    def give_up_files(self, claim: Claim, reason: str) -> None:
        """End the files that have not ended as failed; they may be worth another try."""
        arguments = {"id": claim.id, "attempt": claim.attempt, "message": reason}
        self._execute("give_up_files", arguments)

    def last_forgetting(self) -> int:
        """The number of the last act of forgetting, whatever was forgotten."""
        row = self._execute("last_forgetting", {})
        return int(row["id"]) if row else 0

    def _reports(self, job_id: UUID) -> list[dict[str, Any]]:
        statement = Statement(QUERIES["files_of"], {"id": job_id})
        (rows,) = self._database.read([statement], Deadline.after(_READ_S))
        return [row["report"] or {"name": row["name"], "status": "queued"} for row in rows]

    def claim(self, job_id: UUID, attempts: int) -> Claim | None:
        """Take a job; None if it is not to be had. One that had all its attempts is failed here."""
        arguments = {
            "id": job_id,
            "attempts": attempts,
            "message": f"given up after {attempts} attempts",
            "silent_s": SILENT_S,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        with self._database.transaction() as connection:
            given_up = connection.execute(QUERIES["give_up_job"].encode(), arguments).fetchone()
            if given_up is not None:
                ended = arguments | {"attempt": None}
                connection.execute(QUERIES["give_up_files"].encode(), ended)
            row = connection.execute(QUERIES["claim_job"].encode(), arguments).fetchone()
        if row is None:
            return None
        return Claim(
            id=row["id"],
            attempt=row["attempts"],
            key_id=row["key_id"],
            project=row["project"],
            format=row["format"],
            scope=None if row["scope"] is None else frozenset(row["scope"]),
            payload=row["payload"],
        )

    def beat(self, claim: Claim, done: int, total: int, stage: str | None = None) -> bool:
        """Whether the job is still this claim's to work on."""
        arguments = {"id": claim.id, "attempt": claim.attempt, "done": done, "total": total}
        arguments |= {"stage": stage}
        return self._execute("beat_job", arguments) is not None

    def finish(
        self,
        claim: Claim,
        status: str,
        files: list[dict[str, Any]],
        done: int = 0,
        error: tuple[str, str] | None = None,
        keeps_payload: bool = False,
    ) -> None:
        """End a job. keeps_payload: it may be worth another try."""
        arguments = {
            "id": claim.id,
            "attempt": claim.attempt,
            "keeps_payload": keeps_payload,
            "status": status,
            "files": Jsonb(files),
            "done": done,
            "error_code": error[0] if error else None,
            "error_message": error[1] if error else None,
        }
        self._execute("finish_job", arguments)

    def retry(self, claim: Claim, delay_s: float, error: tuple[str, str]) -> None:
        arguments = {"id": claim.id, "attempt": claim.attempt, "delay_s": delay_s}
        arguments |= {"error_code": error[0], "error_message": error[1]}
        self._execute("retry_job", arguments)

    def forgotten(self, limit: int = 100) -> list[UUID]:
        arguments = {"waited_s": WAITED_S, "silent_s": SILENT_S, "limit": limit}
        with self._database.transaction() as connection:
            rows = connection.execute(QUERIES["forgotten_jobs"].encode(), arguments)
            return [row["id"] for row in rows]

    def requeue_lost(self, has_ended: Callable[[int, datetime], bool]) -> list[UUID]:
        """Take jobs from processes of this host that have ended; returns those jobs.

        Args:
            has_ended: whether the process with this number, at work at this instant, is no more.
        """
        lost = []
        with self._database.transaction() as connection:
            host = {"host": socket.gethostname()}
            for row in connection.execute(QUERIES["claims_of_host"].encode(), host).fetchall():
                if has_ended(row["claimed_pid"], row["heartbeat_at"]):
                    arguments = {"id": row["id"], "attempt": row["attempts"]}
                    requeued = connection.execute(QUERIES["requeue_job"].encode(), arguments)
                    lost += [row["id"] for row in requeued]
        return lost

    def release(self, pids: Sequence[int]) -> int:
        """Give back the jobs of these processes of this host; returns how many they were."""
        arguments = {"host": socket.gethostname(), "pids": list(pids)}
        with self._database.transaction() as connection:
            return connection.execute(QUERIES["release_jobs"].encode(), arguments).rowcount

    def backlog(self, patience_s: float, deadline: Deadline) -> Backlog:
        """The jobs that have been due, or silent, for longer than this."""
        statement = Statement(QUERIES["backlog"], {"patience_s": patience_s})
        ((row,),) = self._database.read([statement], deadline)
        return Backlog(row["jobs"], row["oldest_s"] or 0.0)

    def _execute(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        with self._database.transaction() as connection:
            cursor = connection.execute(QUERIES[name].encode(), arguments)
            return cursor.fetchone() if cursor.description else None


def _save_files(connection: Connection[dict[str, Any]], submission: IngestSubmission) -> None:
    rows = [
        {
            "id": submission.id,
            "number": number,
            "name": name,
            "size": len(data),
            "data": _packed(data),
        }
        for number, (name, data) in enumerate(submission.files, start=1)
    ]
    if rows:
        connection.cursor().executemany(QUERIES["save_file"].encode(), rows)


def _packed(data: bytes) -> bytes:
    return zlib.compress(data, level=1)


def _seeing(principal: Principal) -> dict[str, Any]:
    sees_all = principal.can_write and principal.projects is None
    return {"key_id": principal.key_id, "sees_all": sees_all}


def _in_progress() -> IdempotencyInProgress:
    return IdempotencyInProgress("Send it again in a second, with the same key.")
