"""Working through accepted ingest jobs. PostgreSQL says what is to do; a message only says when."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

import structlog
from celery import shared_task

from workers import wiring
from workers.contracts import INGEST_NODES
from workers.errors import EmbeddingServiceUnavailable, PoimenError
from workers.ingest.nodes import Refusal, read_nodes
from workers.model import Encoding, Level, Node, ProjectName, Sha256
from workers.store.ingest_jobs import Claim
from workers.store.nodes import PostgresNodes

log = structlog.get_logger(__name__)

BATCH = 64  # nodes encoded, then stored in one transaction
REFUSALS_SHOWN = 1000


class ClaimLost(Exception):
    """Another worker took the job over, or it was cancelled."""


@shared_task(name=INGEST_NODES)
def ingest_nodes(job_id: str) -> None:
    """Work through one job, if it is there to be worked on.

    A fault that may pass puts the job back with a growing delay; the last attempt ends it as
    failed, with the reason. A worker that dies leaves the claim to be taken over.
    """
    claim = wiring.jobs().claim(UUID(job_id))
    if claim is None:
        return
    work = wiring.ingest()
    if claim.attempt > work.attempts:
        error = ("attempts_exhausted", f"given up after {work.attempts} attempts")
        work.jobs.finish(claim, "failed", [], error=error)
        return
    try:
        _ingest(work, claim)
    except ClaimLost:
        log.warning("ingest_claim_lost", job=job_id)
    except PoimenError as error:
        _put_back(work, claim, error.code, str(error))
    except Exception as error:
        # Written down before it is raised, so that the job's reader sees it too.
        _put_back(work, claim, "internal_error", f"a fault of this service: {type(error).__name__}")
        raise


def _put_back(work: wiring.Ingest, claim: Claim, code: str, message: str) -> None:
    if claim.attempt >= work.attempts:
        work.jobs.finish(claim, "failed", [], error=(code, message))
    else:
        work.jobs.retry(claim, min(300.0, 2.0**claim.attempt), (code, message))


def _ingest(work: wiring.Ingest, claim: Claim) -> None:
    payload = claim.payload
    projects = payload["projects"]
    nodes, refusals = read_nodes(
        payload["nodes"],
        payload["project"],
        None if projects is None else frozenset(projects),
        work.encoder.model,
        lambda project, shas: _levels(work, project, shas),
    )
    total = len(payload["nodes"])
    counts = {"stored": 0, "updated": 0, "unchanged": 0}
    for done, batch in _batches(nodes):
        if not work.jobs.beat(claim, len(refusals) + done, total):
            raise ClaimLost
        for result in _store(work, batch):
            counts[result] += 1
    status = "completed" if not refusals else "partial" if nodes else "failed"
    error = ("all_refused", "every node was refused; see the skipped lines")
    work.jobs.finish(
        claim,
        status,
        [_report(total, counts, refusals)],
        done=total,
        error=error if status == "failed" else None,
    )


def _levels(work: wiring.Ingest, project: ProjectName, shas: Any) -> dict[Sha256, Level]:
    with work.database.transaction() as connection:
        nodes = PostgresNodes(connection, work.model, work.encoder.token_model)
        return {sha: level for sha, (level, _) in nodes.find_nodes(project, shas).items()}


def _batches(nodes: Sequence[Node]) -> Iterator[tuple[int, Sequence[Node]]]:
    for start in range(0, len(nodes), BATCH):
        yield start, nodes[start : start + BATCH]


def _store(work: wiring.Ingest, batch: Sequence[Node]) -> list[str]:
    """Encode what has no vector yet, then write the batch in one transaction.

    Encoding comes first and outside of it: a failing engine leaves nothing half visible, and no
    lock is held while a model works.
    """
    encodings = _encode(work, batch)
    with work.database.transaction() as connection:
        nodes = PostgresNodes(connection, work.model, work.encoder.token_model)
        nodes.claim_projects(node.project for node in batch)
        # One order for every writer, within a level: two that meet then wait, never deadlock.
        ordered = sorted(batch, key=lambda node: (node.level, node.project, node.sha256))
        return [nodes.save(node, encodings.get((node.project, node.sha256))) for node in ordered]


def _encode(
    work: wiring.Ingest, batch: Sequence[Node]
) -> dict[tuple[ProjectName, Sha256], Encoding]:
    known: set[tuple[ProjectName, Sha256]] = set()
    with work.database.transaction() as connection:
        store = PostgresNodes(connection, work.model, work.encoder.token_model)
        for project in {node.project for node in batch}:
            shas = [node.sha256 for node in batch if node.project == project]
            found = store.find_nodes(project, shas)
            known |= {(project, sha) for sha, (_, has_vector) in found.items() if has_vector}
    new = [node for node in batch if (node.project, node.sha256) not in known]
    if not new:
        return {}
    encodings = work.encoder.encode_passages([node.text for node in new])
    if len(encodings) != len(new):
        raise EmbeddingServiceUnavailable("The engine returned another number of vectors.")
    pairs = zip(new, encodings, strict=True)
    return {(node.project, node.sha256): encoding for node, encoding in pairs}


def _report(total: int, counts: dict[str, int], refusals: Sequence[Refusal]) -> dict[str, Any]:
    return {
        "name": "nodes",
        "received": total,
        **counts,
        "skipped": [asdict(refusal) for refusal in refusals[:REFUSALS_SHOWN]],
        "skipped_count": len(refusals),
    }
