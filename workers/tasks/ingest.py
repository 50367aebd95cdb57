"""Working through accepted ingest jobs. PostgreSQL says what is to do; a message only says when."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any
from uuid import UUID

import structlog
from celery import shared_task

from workers import wiring
from workers.contracts import INGEST_NODES, PREPARE_TOKENS, NodesPayload
from workers.deadline import Deadline
from workers.errors import (
    EmbeddingServiceUnavailable,
    ModelMismatch,
    PoimenError,
    StoreUnavailable,
)
from workers.ingest.nodes import Refusal, read_nodes
from workers.model import Encoding, Level, Node, NodeKey, ProjectName, Refused, Sha256
from workers.pulse import pulse
from workers.store.ingest_jobs import Claim, SubmittedFile, UnreadablePayload
from workers.store.nodes import PostgresNodes
from workers.tasks.files import take_file
from workers.tasks.report import Beat, Report

log = structlog.get_logger(__name__)

BATCH = 128  # nodes encoded, then stored in one transaction
ENCODED = 64  # texts encoded between two signs of life
REFUSALS_SHOWN = 1000
PREPARED_FOR_S = 4.0  # then jobs get their turn again
LONGEST_DELAY_S = 86_400.0  # that a server's Retry-After may put a job off for
PATIENCE_S = 60.0  # with a database that is away, until a job is left to be taken over


class Forgotten(Exception):
    """Nodes were forgotten between the look at them and their storing."""


class ClaimLost(Exception):
    """The job was taken from this process: it was too quiet, or its worker is to end."""


@shared_task(name=PREPARE_TOKENS)
def prepare_tokens() -> None:
    """Prepare for the reranker what was stored with a vector of its own, some seconds' worth.

    Batches are locked, not claimed: one that fails or dies with its process is simply there again.
    """
    end = Deadline.after(PREPARED_FOR_S)
    work = wiring.ingest()
    while not end.passed():
        with work.database.transaction() as connection:
            nodes = work.nodes(connection)
            backlog = nodes.take_backlog(ENCODED)
            if not backlog:
                return
            tokens = work.encoder.prepare_passages([text for _, text in backlog])
            keys = [key for key, _ in backlog]
            nodes.save_tokens({key: own for key, own in zip(keys, tokens, strict=True) if own})


@shared_task(name=INGEST_NODES)
def ingest_nodes(job_id: str) -> None:
    """Work through one job, if it is there to be worked on.

    A fault that may pass puts the job back with a growing delay; the last attempt ends it as
    failed, with the reason. A worker that dies leaves the claim to be taken over.
    """
    pulse.beat()
    attempts = wiring.settings().ingest_attempts
    claim = wiring.jobs().claim(UUID(job_id), attempts)
    if claim is None:
        return
    try:
        if claim.payload is None:
            _take_files(wiring.ingest(), claim)
        else:
            _take_nodes(wiring.ingest(), claim, claim.read())
    except ClaimLost:
        log.info("ingest_claim_lost", job=job_id)
    except UnreadablePayload as error:  # nor will it be readable later
        said = f"the stored submission cannot be read ({error})"
        wiring.jobs().finish(claim, "failed", [], error=("unreadable_submission", said))
    except ModelMismatch as error:  # it takes an operator, not time
        wiring.jobs().finish(claim, "failed", [], error=(error.code, str(error)))
    except EmbeddingServiceUnavailable as error:
        # A server that says when to come back is not asked before; meanwhile the worker is free.
        _put_back(attempts, claim, error.code, str(error), error.retry_after_s or 0.0)
    except PoimenError as error:
        _put_back(attempts, claim, error.code, str(error))
    except Exception as error:
        # Written down before it is raised, so that the job's reader sees it too.
        said = f"a fault of this service: {type(error).__name__}"
        _put_back(attempts, claim, "internal_error", said)
        raise


def _put_back(attempts: int, claim: Claim, code: str, message: str, asked_s: float = 0.0) -> None:
    end = Deadline.after(PATIENCE_S)
    while True:
        try:
            _give_back(attempts, claim, (code, message), asked_s)
        except StoreUnavailable:
            if end.passed():
                raise  # upkeep finds the job once it has been silent for long
            pulse.beat()
            time.sleep(1.0)
        else:
            return


def _give_back(attempts: int, claim: Claim, error: tuple[str, str], asked_s: float) -> None:
    if claim.attempt < attempts:
        delay_s = max(min(300.0, 2.0**claim.attempt), min(LONGEST_DELAY_S, asked_s))
        wiring.jobs().retry(claim, delay_s, error)
    elif claim.payload is None:
        wiring.jobs().give_up_files(claim, error[1])
        _finish_files(claim, error)
    else:
        wiring.jobs().finish(claim, "failed", [], error=error, keeps_payload=True)


def _take_files(work: wiring.Ingest, claim: Claim) -> None:
    """Take one file after the other; those that ended in an earlier attempt are not read again."""
    jobs = work.jobs
    tried: list[int] = []
    fault: Exception | None = None
    while (file := jobs.begin_file(claim, tried)) is not None:
        tried.append(file.number)
        done, total = jobs.count_files(claim)

        def beat(stage: str, done: int = done, total: int = total) -> None:
            pulse.beat()
            if not jobs.beat(claim, done, total, stage):
                raise ClaimLost

        try:
            report = _take_file(work, claim, file, beat)
        except (ClaimLost, PoimenError):  # it is not this file's fault
            raise
        except Exception as error:  # noqa: BLE001  # its neighbours need not have it
            log.error("file_failed", job=str(claim.id), error=type(error).__name__)
            fault = error
            continue
        log.info("file_taken", job=str(claim.id), status=report.status, format=report.format)
        jobs.finish_file(claim, file.number, report.as_json(), keeps_data=False)
    if fault is not None:
        raise fault
    said = ("all_refused", "no file could be stored; see their reasons")
    _finish_files(claim, said, is_told=False)


def _take_file(work: wiring.Ingest, claim: Claim, file: SubmittedFile, beat: Beat) -> Report:
    """Take one file; again if something was forgotten meanwhile, so that no half of it is left."""
    while True:
        report = Report(file.name)
        forgotten = work.jobs.last_forgetting()
        take_file(work, claim, file, report, beat)
        if work.jobs.last_forgetting() == forgotten:
            return report


def _finish_files(claim: Claim, error: tuple[str, str], *, is_told: bool = True) -> None:
    """End a job by how its files ended. is_told: the error also where some were stored."""
    statuses = wiring.jobs().statuses(claim)
    status = "completed" if statuses == {"completed"} else "partial"
    if statuses == {"failed"}:
        status, is_told = "failed", True
    done, _ = wiring.jobs().count_files(claim)
    wiring.jobs().finish(claim, status, [], done=done, error=error if is_told else None)


def _take_nodes(work: wiring.Ingest, claim: Claim, payload: NodesPayload) -> None:
    """Take nodes; again if something was forgotten meanwhile, so that no half of them is left."""
    while True:
        forgotten = work.jobs.last_forgetting()
        status, report = _store_nodes(work, claim, payload)
        if work.jobs.last_forgetting() == forgotten:
            break
    error = ("all_refused", "every node was refused; see the skipped lines")
    work.jobs.finish(
        claim,
        status,
        [report],
        done=len(payload["nodes"]),
        error=error if status == "failed" else None,
    )


def _store_nodes(
    work: wiring.Ingest, claim: Claim, payload: NodesPayload
) -> tuple[str, dict[str, Any]]:
    """How a job ends, and what became of its nodes."""
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
    missing: dict[NodeKey, int] = {}
    unread = len(refusals)
    for done, batch in _batches(nodes):

        def beat(done: int = unread + done) -> None:
            pulse.beat()
            if not work.jobs.beat(claim, done, total):
                raise ClaimLost

        while True:
            with suppress(Forgotten):
                results, unencoded = _store(work, batch, missing, beat)
                break
        refusals += unencoded
        for result in results:
            counts[result] += 1
    refusals.sort(key=lambda refusal: refusal.line)
    status = "completed" if not refusals else "partial" if any(counts.values()) else "failed"
    return status, _report(status, total, counts, refusals)


def _levels(work: wiring.Ingest, project: ProjectName, shas: Any) -> dict[Sha256, Level]:
    with work.database.transaction() as connection:
        nodes = work.nodes(connection)
        return {sha: level for sha, (level, _) in nodes.find_nodes(project, shas).items()}


def _batches(nodes: Sequence[Node]) -> Iterator[tuple[int, Sequence[Node]]]:
    for start in range(0, len(nodes), BATCH):
        yield start, nodes[start : start + BATCH]


def _store(
    work: wiring.Ingest,
    batch: Sequence[Node],
    missing: dict[NodeKey, int],
    beat: Callable[[], None],
) -> tuple[list[str], list[Refusal]]:
    """Encode what has no vector yet and brings none, then write the batch in one transaction.

    Encoding comes first and outside of it: a failing engine leaves nothing half visible, and no
    lock is held while a model works. A node that cannot be encoded is refused, and so are those
    that stand on it; `missing` remembers the lines of these for the batches to come.
    """
    found = _find(work, batch)
    encodings = _encode(work, _bare(batch, found), beat)
    refusals: list[Refusal] = []
    kept: list[Node] = []
    for node in batch:
        reason = _why_not(node, encodings.get(node.key), missing)
        if reason is None:
            kept.append(node)
            continue
        refusals.append(Refusal(node.line or 0, reason))
        if node.key not in found:
            missing[node.key] = node.line or 0
    if not kept:
        return [], refusals
    with work.database.transaction() as connection:
        nodes = work.nodes(connection)
        nodes.claim_projects(node.project for node in kept)
        if any(node.key not in encodings for node in _bare(kept, _found(nodes, kept))):
            raise Forgotten  # what had a vector is no more
        vectors = {key: one for key, one in encodings.items() if isinstance(one, Encoding)}
        results = nodes.save(
            kept, {node.key: vectors[node.key] for node in kept if node.key in vectors}
        )
    return list(results.values()), refusals


def _find(work: wiring.Ingest, batch: Sequence[Node]) -> dict[NodeKey, bool]:
    """Those of the batch that are stored, and whether they have a vector."""
    with work.database.transaction() as connection:
        nodes = work.nodes(connection)
        return _found(nodes, batch)


def _found(nodes: PostgresNodes, batch: Sequence[Node]) -> dict[NodeKey, bool]:
    stored: dict[NodeKey, bool] = {}
    for project in {node.project for node in batch}:
        shas = [node.sha256 for node in batch if node.project == project]
        found = nodes.find_nodes(project, shas)
        stored |= {(project, sha): has_vector for sha, (_, has_vector) in found.items()}
    return stored


def _bare(batch: Sequence[Node], found: Mapping[NodeKey, bool]) -> list[Node]:
    """Those of the batch that have no vector and bring none."""
    return [node for node in batch if node.embedding is None and not found.get(node.key)]


def _encode(
    work: wiring.Ingest, nodes: Sequence[Node], beat: Callable[[], None]
) -> dict[NodeKey, Encoding | Refused]:
    beat()
    encodings: list[Encoding | Refused] = []
    while len(encodings) < len(nodes):
        some = nodes[len(encodings) :][:ENCODED]
        encoded = work.encoder.encode_passages([node.text for node in some])
        if len(encoded) != len(some):
            raise EmbeddingServiceUnavailable("The engine returned another number of vectors.")
        encodings += encoded
        beat()
    return {node.key: encoding for node, encoding in zip(nodes, encodings, strict=True)}


def _why_not(
    node: Node, encoding: Encoding | Refused | None, missing: Mapping[NodeKey, int]
) -> str | None:
    if isinstance(encoding, Refused):
        return f"text: cannot be embedded: {encoding.reason}"
    lost = [missing[node.project, sha] for sha in node.parents if (node.project, sha) in missing]
    return f"a parent was refused (line {lost[0]})" if lost else None


def _report(
    status: str, total: int, counts: dict[str, int], refusals: Sequence[Refusal]
) -> dict[str, Any]:
    return {
        "name": "nodes",
        "status": status,
        "format": "nodes",
        "received": total,
        **counts,
        "skipped": [asdict(refusal) for refusal in refusals[:REFUSALS_SHOWN]],
        "skipped_count": len(refusals),
    }
