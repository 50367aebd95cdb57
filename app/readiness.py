"""What readiness says of upkeep, the sweep, submissions, vectors and words, from others' facts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from workers.contracts import MERGE_QUEUE, UPKEEP_QUEUE
from workers.model import Missing, StoredModel

State = Literal["ok", "degraded", "failed"]

UPKEEP_PATIENCE_S = 30.0  # it runs every 5 s
SWEEP_PATIENCE_S = 30.0  # it runs every second, and is told with the heartbeat
BACKLOG_PATIENCE_S = 60.0
MOST_COUNTED = 100_000  # nodes; beyond, "or more" says enough


def upkeep_state(workers: Sequence[Mapping[str, Any]], now: datetime) -> tuple[State, str]:
    """Whether somebody sends again what was lost, and takes over what died.

    A worker that has only just started counts as one that ran upkeep then. Where every process is
    at work on a job upkeep waits, and ingest with it; questions do not.
    """
    able = [worker for worker in workers if UPKEEP_QUEUE in worker["queues"]]
    if not able:
        return "failed", "no live worker does it; start a background worker"
    started = max(datetime.fromisoformat(worker["started_at"]) for worker in able)
    ran = [datetime.fromisoformat(at) for worker in able if (at := worker.get("upkeep_at"))]
    said = f"last ran {(now - max(ran)).total_seconds():.0f} s ago" if ran else "has not run yet"
    if (now - max([started, *ran])).total_seconds() <= UPKEEP_PATIENCE_S:
        return "ok", said
    if all(worker.get("is_busy") for worker in able):
        return "degraded", f"{said}; every background process is at work"
    return "failed", f"{said}, though a background process is free; see its worker's log"


def sweep_state(workers: Sequence[Mapping[str, Any]], now: datetime) -> tuple[State, str]:
    """Whether somebody ends the jobs that nobody else ends, and begins lost ones again."""
    able = [worker for worker in workers if MERGE_QUEUE in worker["queues"]]
    if not able:
        return "failed", "no live worker does it; start a merge worker"
    started = max(datetime.fromisoformat(worker["started_at"]) for worker in able)
    swept = [datetime.fromisoformat(at) for worker in able if (at := worker.get("swept_at"))]
    said = (
        f"last ran {(now - max(swept)).total_seconds():.0f} s ago" if swept else "has not run yet"
    )
    if (now - max([started, *swept])).total_seconds() <= SWEEP_PATIENCE_S:
        return "ok", said
    return "failed", f"{said}; see the merge worker's log"


def vectors_state(
    known: Sequence[StoredModel],
    missing: Mapping[int, Missing],
    workers: Sequence[Mapping[str, Any]],
) -> tuple[State, str]:
    """Whether every node can be found by the model whose vectors are searched, and by whom.

    missing: of each model that is wanted.
    """
    active = next((one for one in known if one.is_active), None)
    if active is None:
        return "ok", "none yet; the first worker brings its model"
    name = active.model.name
    lacking = missing[active.number]
    told = []
    if lacking.waiting:
        told.append(f"{_counted(lacking.waiting)} without a vector yet")
    if lacking.refused:
        told.append(f"{_counted(lacking.refused)} cannot be embedded; mem reindex names them")
    others = [str(worker["name"]) for worker in workers if worker.get("embedder", name) != name]
    if others:
        told.append(f"started with another model, to be restarted: {', '.join(others)}")
    state: State = "degraded" if told else "ok"
    told += [
        f"{one.model.name} {_progress(one, missing[one.number])}"
        for one in known
        if one.is_wanted and not one.is_active
    ]
    return state, "; ".join([str(active.model), *told])


def words_state(waiting: int) -> tuple[State, str]:
    """Whether every node can be found by its words; upkeep adds those that are missing."""
    if not waiting:
        return "ok", "every node has its words"
    return "degraded", f"{_counted(waiting)} without words yet"


def _progress(target: StoredModel, missing: Missing) -> str:
    """How far a model is that mem reindex brings the memory to."""
    if target.ready_at is not None:
        return "is ready to be switched to"
    if target.listed_at is None:
        return "is registered; mem reindex goes on with it"
    return f"has {_counted(missing.waiting)} to go; mem reindex goes on with it"


def content(projects: int, nodes: int) -> str:
    """How much a memory holds, so that one which is not the one that is meant is noticed."""
    projects_said = f"{projects:,} project{'' if projects == 1 else 's'}"
    return f"{projects_said}, {nodes:,} node{'' if nodes == 1 else 's'}"


def _counted(nodes: int) -> str:
    if nodes >= MOST_COUNTED:
        return f"{MOST_COUNTED:,} nodes or more"
    return f"{nodes:,} node{'' if nodes == 1 else 's'}"


def word_index_state(version: str, is_read: bool, waiting: int) -> tuple[State, str]:
    """Whether there is an index to look for words in, and how far it is behind."""
    left = f"{_counted(waiting)} to be told it" if waiting else None
    if not is_read:
        return "degraded", "; ".join(filter(None, (version, "its index is being made", left)))
    return "ok", f"{version}; {left or 'up to date'}"


def backlog_state(jobs: int, oldest_s: float) -> tuple[State, str]:
    """Whether submissions wait for longer than they should."""
    if not jobs:
        return "ok", "no submission waits"
    return "degraded", f"{jobs} wait to be worked on, the oldest for {oldest_s:.0f} s"
