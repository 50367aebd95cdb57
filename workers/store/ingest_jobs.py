"""Accepted submissions, from the 202 to their end."""

import json
import os
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from psycopg.types.json import Jsonb

from workers.contracts import NodesPayload
from workers.deadline import Deadline
from workers.errors import IngestNotFound
from workers.model import Principal
from workers.store.database import Database, Statement
from workers.store.queries import load_queries

QUERIES = load_queries("ingest_jobs.sql")

SILENT_S = 60.0  # a running job without a heartbeat for this long has lost its worker
WAITED_S = 5.0  # a due job that nobody began for this long has lost its message


@dataclass(frozen=True, slots=True)
class Claim:
    """A job this worker may work on, until someone else's attempt is a later one."""

    id: UUID
    attempt: int
    payload: bytes

    def read(self) -> NodesPayload:
        """What was submitted.

        Raises:
            UnreadablePayload: it is damaged, or nested deeper than can be read.
        """
        try:
            return cast(NodesPayload, json.loads(zlib.decompress(self.payload)))
        except (zlib.error, ValueError, RecursionError) as error:
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

    def save_job(
        self, job_id: UUID, principal: Principal, payload: Mapping[str, Any], total: int
    ) -> None:
        arguments = {
            "id": job_id,
            "key_id": principal.key_id,
            "project": payload["project"],
            "format": payload["format"],
            "payload": zlib.compress(json.dumps(payload).encode(), level=1),
            "total": total,
        }
        self._execute("save_job", arguments)

    def load_job(self, job_id: UUID, principal: Principal) -> dict[str, Any]:
        """
        Raises:
            IngestNotFound: no such job, or another key's that this one may not see.
        """
        sees_all = principal.can_write and principal.projects is None
        arguments = {"id": job_id, "key_id": principal.key_id, "sees_all": sees_all}
        row = self._execute("find_job", arguments)
        if row is None:
            raise IngestNotFound(f"No ingest job {job_id}, or it is another key's.")
        return row

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
            connection.execute(QUERIES["give_up_job"].encode(), arguments)
            row = connection.execute(QUERIES["claim_job"].encode(), arguments).fetchone()
        return Claim(row["id"], row["attempts"], row["payload"]) if row else None

    def beat(self, claim: Claim, done: int, total: int) -> bool:
        """Whether the job is still this claim's to work on."""
        arguments = {"id": claim.id, "attempt": claim.attempt, "done": done, "total": total}
        return self._execute("beat_job", arguments) is not None

    def finish(
        self,
        claim: Claim,
        status: str,
        files: list[dict[str, Any]],
        done: int = 0,
        error: tuple[str, str] | None = None,
    ) -> None:
        arguments = {
            "id": claim.id,
            "attempt": claim.attempt,
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
