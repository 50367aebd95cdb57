"""Working through accepted ingest jobs. PostgreSQL says what is to do; a message only says when."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

import structlog
from celery import shared_task

from workers import wiring
from workers.contracts import INGEST_NODES, PREPARE_TOKENS, NodesPayload
from workers.deadline import Deadline
from workers.errors import EmbeddingServiceUnavailable, ModelMismatch, PoimenError
from workers.ingest.nodes import Refusal, read_nodes
from workers.model import Encoding, Level, Node, NodeKey, ProjectName, Refused, Sha256
from workers.pulse import pulse
from workers.store.ingest_jobs import Claim, UnreadablePayload
from workers.store.nodes import PostgresNodes
from workers.tasks.files import take_file

log = structlog.get_logger(__name__)

BATCH = 128  # nodes encoded, then stored in one transaction
ENCODED = 64  # texts encoded between two signs of life
REFUSALS_SHOWN = 1000
PREPARED_FOR_S = 4.0  # then jobs get their turn again
LONGEST_DELAY_S = 86_400.0  # that a server's Retry-After may put a job off for


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
            nodes = PostgresNodes(connection, work.model, work.encoder.token_model)
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
            _ingest(wiring.ingest(), claim, claim.read())
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
    if claim.attempt >= attempts:
        wiring.jobs().finish(claim, "failed", [], error=(code, message), keeps_payload=True)
    else:
        delay_s = max(min(300.0, 2.0**claim.attempt), min(LONGEST_DELAY_S, asked_s))
        wiring.jobs().retry(claim, delay_s, (code, message))


def _take_files(work: wiring.Ingest, claim: Claim) -> None:
    """Take one file after the other; those that ended in an earlier attempt are not read again."""
    jobs = work.jobs
    while (file := jobs.next_file(claim)) is not None:
        done, total = jobs.count_files(claim)

        def beat(stage: str, done: int = done, total: int = total) -> None:
            pulse.beat()
            if not jobs.beat(claim, done, total, stage):
                raise ClaimLost

        report = take_file(work, claim, file, beat)
        log.info("file_taken", job=str(claim.id), status=report.status, format=report.format)
        jobs.finish_file(claim, file.number, report.as_json(), keeps_data=False)
    statuses = jobs.statuses(claim)
    status = "completed" if statuses == {"completed"} else "partial"
    error = None
    if statuses == {"failed"}:
        status, error = "failed", ("all_refused", "no file could be stored; see their reasons")
    jobs.finish(claim, status, [], done=jobs.count_files(claim)[1], error=error)


def _ingest(work: wiring.Ingest, claim: Claim, payload: NodesPayload) -> None:
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

        results, unencoded = _store(work, batch, missing, beat)
        refusals += unencoded
        for result in results:
            counts[result] += 1
    refusals.sort(key=lambda refusal: refusal.line)
    status = "completed" if not refusals else "partial" if any(counts.values()) else "failed"
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
    new = [node for node in batch if node.embedding is None and not found.get(node.key)]
    encodings = _encode(work, new, beat)
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
        nodes = PostgresNodes(connection, work.model, work.encoder.token_model)
        nodes.claim_projects(node.project for node in kept)
        vectors = {key: one for key, one in encodings.items() if isinstance(one, Encoding)}
        results = nodes.save(
            kept, {node.key: vectors[node.key] for node in kept if node.key in vectors}
        )
    return list(results.values()), refusals


def _find(work: wiring.Ingest, batch: Sequence[Node]) -> dict[NodeKey, bool]:
    """Those of the batch that are stored, and whether they have a vector."""
    stored: dict[NodeKey, bool] = {}
    with work.database.transaction() as connection:
        nodes = PostgresNodes(connection, work.model, work.encoder.token_model)
        for project in {node.project for node in batch}:
            shas = [node.sha256 for node in batch if node.project == project]
            found = nodes.find_nodes(project, shas)
            stored |= {(project, sha): has_vector for sha, (_, has_vector) in found.items()}
    return stored


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


def _report(total: int, counts: dict[str, int], refusals: Sequence[Refusal]) -> dict[str, Any]:
    return {
        "name": "nodes",
        "received": total,
        **counts,
        "skipped": [asdict(refusal) for refusal in refusals[:REFUSALS_SHOWN]],
        "skipped_count": len(refusals),
    }
