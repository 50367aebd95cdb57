"""The use cases of taking memories in: submit, follow, list, cancel, try again."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

import structlog

from app.paging import cursor_after, read_cursor
from app.parameters import IngestListParameters, check_idempotency_key
from app.reach import check_writer
from workers.contracts import NodesPayload
from workers.errors import IngestNotFound, NothingToRetry, QueueUnavailable
from workers.model import Principal, ProjectName
from workers.ports import Accepted, IngestJobs, IngestSubmission

log = structlog.get_logger(__name__)


class IngestService:
    """What this memory takes in for a principal."""

    def __init__(self, jobs: IngestJobs, send: Callable[[str], None]) -> None:
        """send: puts a job on the queue by its id."""
        self._jobs = jobs
        self._send = send

    def submit_nodes(
        self,
        nodes: list[Any],
        project: ProjectName | None,
        principal: Principal,
        idempotency_key: str | None,
    ) -> Accepted:
        """Accept nodes. On return they are in PostgreSQL, whatever becomes of the queue."""
        payload: NodesPayload = {
            "format": "nodes",
            "project": project,
            "projects": None if principal.projects is None else sorted(principal.projects),
            "nodes": nodes,
        }
        content = json.dumps(payload, sort_keys=True).encode()
        return self._submit(
            project, "nodes", principal, idempotency_key, content, len(nodes), payload=payload
        )

    def submit_files(
        self,
        files: Sequence[tuple[str, bytes]],
        form: str,
        project: ProjectName | None,
        principal: Principal,
        idempotency_key: str | None,
    ) -> Accepted:
        """Accept files, each a name and its content. On return they are in PostgreSQL."""
        told = [(name, hashlib.sha256(data).hexdigest()) for name, data in files]
        content = json.dumps([form, project, told]).encode()
        return self._submit(
            project, form, principal, idempotency_key, content, len(files), files=files
        )

    def load(self, job_id: str, principal: Principal) -> dict[str, Any]:
        """
        Raises:
            IngestNotFound: no such job, or someone else's.
        """
        return self._jobs.load_job(_as_id(job_id), principal)

    def list_jobs(
        self, parameters: IngestListParameters, principal: Principal
    ) -> tuple[list[dict[str, Any]], str | None]:
        """One page, newest first, and the cursor of the next one."""
        known = {None: None, "open": ["queued", "running"]}
        statuses = known.get(parameters.status, [str(parameters.status)])
        before = None if parameters.cursor is None else read_cursor(parameters.cursor)
        jobs = self._jobs.list_jobs(principal, statuses, before, parameters.page + 1)
        page = jobs[: parameters.page]
        more = len(jobs) > len(page)
        return page, cursor_after(page[-1]["created_at"], page[-1]["id"]) if more else None

    def cancel(self, job_id: str, principal: Principal) -> dict[str, Any]:
        """End a job that has not ended; what is stored of it stays."""
        check_writer(principal, None)
        self._jobs.cancel(_as_id(job_id), principal)
        return self.load(job_id, principal)

    def retry(self, job_id: str, principal: Principal) -> dict[str, Any]:
        """Try again what failed of a job.

        Raises:
            NothingToRetry: nothing of it failed that another try could help.
        """
        check_writer(principal, None)
        self.load(job_id, principal)
        if not self._jobs.retry_ended(_as_id(job_id), principal):
            raise NothingToRetry("Nothing of this job could go better a second time.")
        self._nudge(job_id)
        return self.load(job_id, principal)

    def _submit(
        self,
        project: ProjectName | None,
        form: str,
        principal: Principal,
        idempotency_key: str | None,
        content: bytes,
        total: int,
        *,
        payload: NodesPayload | None = None,
        files: Sequence[tuple[str, bytes]] = (),
    ) -> Accepted:
        check_writer(principal, project)
        check_idempotency_key(idempotency_key)
        accepted = self._jobs.submit(
            IngestSubmission(
                id=uuid4(),
                key_id=principal.key_id,
                idempotency_key=idempotency_key,
                fingerprint=hashlib.sha256(content).digest(),
                project=project,
                format=form,
                scope=principal.projects,
                payload=payload,
                files=files,
                total=total,
            )
        )
        if not accepted.is_duplicate:
            self._nudge(str(accepted.id))
        return accepted

    def _nudge(self, job_id: str) -> None:
        try:
            self._send(job_id)
        except QueueUnavailable:
            # Accepted all the same: upkeep sends it once the queue is back.
            log.warning("ingest_dispatch_delayed", job=job_id)


def _as_id(job_id: str) -> UUID:
    try:
        return UUID(job_id)
    except ValueError as error:
        raise IngestNotFound("An ingest job's id is what POST /memory/ingest returned.") from error
