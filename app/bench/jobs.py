"""`mem bench jobs`: what submitted queries cost, alone, in a burst and without any worker."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from statistics import median
from typing import Any

import psutil
import psycopg
from pgvector.psycopg import register_vector
from psycopg.rows import dict_row

from app.bench.calls import JOBS, Body, Call, Caller, Calls
from app.bench.data import Node, Size, ingest, project_nodes
from app.bench.errors import BenchError
from app.bench.figures import percentile
from app.bench.load import AT_ONCE_S, JOB_LATE_S, TIMEOUT_S, WAIT_S, instant
from app.bench.machine import Watch
from app.bench.scratch import Announce, client_of, scratch_stack
from app.bench.sides import retrieval_of
from app.bench.texts import Writer
from app.local.stack import StackInfo
from config.settings import Settings
from workers.deadline import Deadline
from workers.engines.build import build_embedded_encoder
from workers.engines.late_interaction import LateInteraction
from workers.model import SEMANTIC_WEIGHT, Candidate, Encoding, Level, Question, Weights
from workers.pipeline.fusion import fuse
from workers.store.database import Database

BEST = 10
ASKED = (Level.L1, Level.L2)
AT_A_TIME = 20  # projects of one submission
FEW = 10  # projects of a job that is waited for
BURST_PROJECTS = 3
BURST_CLIENTS = 8
BURST_TIMEOUT_S = 300
STOPPED_TIMEOUT_S = 3
SINGLE_PAUSE_S = 0.05
ENDED_WITHIN_S = 60.0
TOLD_EVERY_S = 5.0
ACCEPTED = (HTTPStatus.OK, HTTPStatus.ACCEPTED)  # OK: it has ended already
WORKERS_END_S = 15.0


@dataclass(frozen=True)
class Options:
    """How much is measured.

    nodes: of each project, few enough that every one on the asked levels is reranked, so that one
    exact run has something to be equal to.
    """

    seed: int = 1
    projects: int = 200
    nodes: int = 40
    jobs: int = 1000
    rounds: int = 5
    waited: int = 40
    stopped: int = 20

    @classmethod
    def quick(cls, seed: int) -> "Options":
        """Just enough for every figure to have a value; none of them means anything."""
        return cls(seed, 12, 20, 24, 1, waited=4, stopped=3)


@dataclass
class Bench:
    """The parts of a run, and everything measured so far."""

    options: Options
    stack: StackInfo
    announce: Announce
    projects: list[str]
    writer: Writer
    samples: list[dict[str, Any]] = field(default_factory=list)

    def caller(self) -> Caller:
        return Caller(self.stack.url, self.stack.key_file.read_text().strip(), Calls())

    def keep(self, of: str, values: Sequence[float]) -> None:
        self.samples += [{"of": of, "ms": value} for value in values]


def run(
    settings: Settings, options: Options, announce: Announce
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure, on a stack that is gone afterwards; the figures, and the raw samples.

    Raises:
        StackError: the service cannot run here.
        BenchError: it runs, but does not answer as it should.
    """
    watch = Watch()
    names = [f"bench-{number:03}" for number in range(options.projects)]
    with scratch_stack(settings, announce) as stack:
        _fill(stack, options, names, announce)
        bench = Bench(options, stack, announce, names, Writer(f"{options.seed}:questions"))
        figures = _whole(bench, settings)
        figures |= _waited(bench)
        figures |= _burst(bench)
        figures |= _without_workers(bench)
        described = watch.describe()
    report = {"bench": "jobs", **described, "seed": options.seed, "rounds": options.rounds}
    sizes = {"projects": options.projects, "nodes": Size.of(options.nodes).nodes}
    rounded = {
        name: round(value, 1) if isinstance(value, float) else value
        for name, value in figures.items()
    }
    return report | sizes | {"jobs": options.jobs} | rounded, bench.samples


def _fill(stack: StackInfo, options: Options, names: Sequence[str], announce: Announce) -> None:
    """Projects with texts of their own, since equal ones would leave an order to the names."""
    client, size = client_of(stack), Size.of(options.nodes)
    for start in range(0, len(names), AT_A_TIME):
        announce(f"Storing projects from {start + 1} of {len(names)}: {size.nodes} nodes each")
        nodes: list[Node] = [
            node | {"project": name}
            for name in names[start : start + AT_A_TIME]
            for node in project_nodes(Writer(f"{options.seed}:{name}"), size)
        ]
        ingest(client, None, nodes)


# One job over all projects: when its first hits can be read, and whether its answer is right.


@dataclass(frozen=True, slots=True)
class Whole:
    """One job over all projects, as a caller saw it."""

    best: list[tuple[str, str]]  # project and sha256 of its hits, best first
    first_partial_ms: float  # from the first project's end
    first_hits_ms: float  # from the submission
    complete_ms: float


def _whole(bench: Bench, settings: Settings) -> dict[str, Any]:
    bench.announce(f"{bench.options.rounds} jobs over {len(bench.projects)} projects each")
    caller = bench.caller()
    warm_up = {"query": bench.writer.question(), "projects": bench.projects}
    _follow(caller, _submit(caller, warm_up))
    found: list[Whole] = []
    is_equal = True
    with closing(Exact(bench.stack.database_url, settings)) as exact:
        for _ in range(bench.options.rounds):
            question = bench.writer.question()
            whole = _one_whole(caller, question, bench.projects)
            found.append(whole)
            is_equal = is_equal and whole.best == exact.best(question, bench.projects)
    bench.keep("first_partial", [whole.first_partial_ms for whole in found])
    bench.keep("first_hits_after_submit", [whole.first_hits_ms for whole in found])
    bench.keep("complete_after_submit", [whole.complete_ms for whole in found])
    return {
        "first_partial_ms": max(whole.first_partial_ms for whole in found),
        "first_hits_after_submit_ms": median(whole.first_hits_ms for whole in found),
        "complete_after_submit_ms": median(whole.complete_ms for whole in found),
        "order_equals_exact": is_equal,
    }


def _one_whole(caller: Caller, question: str, projects: Sequence[str]) -> Whole:
    began = time.time()
    job = _submit(caller, {"query": question, "projects": list(projects), "limit": BEST})
    hits_at = time.time() if job["results"] else None
    while job["is_running"]:
        job = _look(caller, job, since=job["revision"])
        if hits_at is None and job["results"]:
            hits_at = time.time()
    ended_at = time.time()
    if job["status"] != "completed" or hits_at is None:
        raise BenchError(f"A job over all projects ended as {job['status']}: {job['notes']}")
    outcomes = job["federation"]["projects"]
    first_end = min(instant(one["started_at"]) + one["took_ms"] / 1000 for one in outcomes)
    return Whole(
        best=[(hit["project"], hit["sha256"]) for hit in job["results"]],
        first_partial_ms=(hits_at - first_end) * 1000,
        first_hits_ms=(hits_at - began) * 1000,
        complete_ms=(ended_at - began) * 1000,
    )


class Exact:
    """One exact run over all projects: every node measured, reranked and sorted at once."""

    _NODES = """
    SELECT sha256, level, embedding <=> %(query)s AS distance
      FROM node_vector
     WHERE project = %(project)s AND model = %(model)s AND level = ANY(%(levels)s)
    """

    def __init__(self, database_url: str, settings: Settings) -> None:
        self._encoder = build_embedded_encoder()
        self._database = Database(database_url, 1)
        self._retrieval = retrieval_of(self._database, self._encoder, settings)
        self._depth = settings.rerank_depth
        self._connection = psycopg.connect(database_url, autocommit=True, row_factory=dict_row)
        register_vector(self._connection)

    def close(self) -> None:
        self._connection.close()
        self._database.close()

    def best(self, question: str, projects: Sequence[str]) -> list[tuple[str, str]]:
        """Project and sha256 of the best nodes of all, in their total order."""
        encoding = self._encoder.encode_query(question, Deadline.after(TIMEOUT_S))
        ranking = sorted(
            (one.rerank_score is None, -(one.rerank_score or 0.0), -one.fused, name, one.sha256)
            for name in projects
            for one in self._scored(Question(question, encoding), encoding, name)
        )
        return [(name, sha256) for *_, name, sha256 in ranking[:BEST]]

    def _scored(self, asked: Question, encoding: Encoding, project: str) -> list[Candidate]:
        """Every node of a project that is on the asked levels."""
        until, reranker = Deadline.after(TIMEOUT_S), LateInteraction()
        arguments = {
            "query": encoding.vector,
            "project": project,
            "model": self._retrieval.model,
            "levels": list(ASKED),
        }
        rows = self._connection.execute(self._NODES, arguments, binary=True).fetchall()
        nodes = [Candidate(row["sha256"], Level(row["level"]), row["distance"]) for row in rows]
        engines = self._retrieval.engines_of(
            project, lambda _text, _until: (encoding, "given"), reranker, self._depth
        )
        found = engines.nodes.read(nodes, engines.reads, until)
        bm25 = engines.lexical.scores(asked.text, ASKED, [node.sha256 for node in nodes], until)
        found = [one._replace(bm25=own) for one, own in zip(found, bm25, strict=True)]
        fused = fuse(found, Weights(SEMANTIC_WEIGHT, 1 - SEMANTIC_WEIGHT))
        if not self._depth:
            return fused
        scores = reranker.score(asked, fused, until)
        return [one._replace(rerank_score=own) for one, own in zip(fused, scores, strict=True)]


# One job after the other: how soon who waits for it knows that it has ended.


def _waited(bench: Bench) -> dict[str, float]:
    bench.announce(f"{bench.options.waited} jobs that are waited for")
    caller, late_ms = bench.caller(), list[float]()
    for _ in range(bench.options.waited):
        projects = bench.writer.choose(bench.projects, FEW)
        job = _submit(caller, {"query": bench.writer.question(), "projects": projects})
        began = time.time()
        job = _look(caller, job)
        known_at = time.time()
        ended_at = instant(job["finished_at"]) if job["finished_at"] else known_at
        if ended_at > began:  # otherwise nobody waited
            late_ms.append((known_at - ended_at) * 1000)
    if not late_ms:
        raise BenchError("Every job had ended before anybody could wait for it.")
    bench.keep("poll_after_final", late_ms)
    return {
        "poll_after_final_p50_ms": median(late_ms),
        "poll_after_final_p95_ms": percentile(late_ms, 95),
    }


# A thousand jobs at once, beside single questions.


def _burst(bench: Bench) -> dict[str, float]:
    options = bench.options
    bench.announce(f"{options.jobs} jobs of {BURST_CLIENTS} clients, as fast as they can")
    are_ended = threading.Event()
    bodies = [
        {
            "query": bench.writer.question(),
            "projects": bench.writer.choose(bench.projects, BURST_PROJECTS),
            "timeout_seconds": BURST_TIMEOUT_S,
        }
        for _ in range(options.jobs)
    ]
    singles = random.Random(f"{options.seed}:singles")  # noqa: S311 - no secret
    began = time.time()
    with ThreadPoolExecutor(BURST_CLIENTS + 1) as threads:
        asking = threads.submit(_ask_singles, bench, singles, are_ended)
        try:
            submitting = [
                threads.submit(_submit_all, bench.caller(), bodies[place::BURST_CLIENTS])
                for place in range(BURST_CLIENTS)
            ]
            submits = [call for done in submitting for call in done.result()]
            submitted_s = time.time() - began
            accepted = {call.body["id"] for call in submits if call.status in ACCEPTED}
            bench.announce(f"{len(accepted)} accepted within {submitted_s:.1f} s")
            ended = _wait_for(bench, accepted)
        finally:
            are_ended.set()
        single_calls = asking.result()
    finished_at = max((instant(job["finished_at"]) for job in ended), default=began)
    submit_ms = [call.took_s * 1000 for call in submits]
    single_ms = [call.took_s * 1000 for call in single_calls]
    bench.keep("burst_submit", submit_ms)
    bench.keep("single", single_ms)
    return {
        "burst_submit_p50_ms": percentile(submit_ms, 50),
        "burst_submit_p95_ms": percentile(submit_ms, 95),
        "burst_submitted_s": submitted_s,
        "burst_refused": len(submits) - len(accepted),
        "burst_terminal": len(ended),
        "burst_completed": sum(job["status"] == "completed" for job in ended),
        "burst_lost": len(accepted) - len(ended),
        "burst_took_s": finished_at - began,
        "single_asked": len(single_calls),
        "single_p50_ms": percentile(single_ms, 50),
        "single_p95_ms": percentile(single_ms, 95),
        "single_deadline_missed": sum(not _is_in_time(call) for call in single_calls),
    }


def _submit_all(caller: Caller, bodies: Sequence[Body]) -> list[Call]:
    return [caller.call("submit", "POST", JOBS, AT_ONCE_S, body=body) for body in bodies]


def _ask_singles(bench: Bench, source: random.Random, stop: threading.Event) -> list[Call]:
    """Questions to one project each, one after the other, from now to the end of the burst."""
    caller, writer = bench.caller(), Writer(f"{bench.options.seed}:singles")
    calls: list[Call] = []
    while not stop.is_set():
        parameters: dict[str, str | int] = {
            "query": writer.question(),
            "project": source.choice(bench.projects),
            "timeout_seconds": TIMEOUT_S,
        }
        calls.append(
            caller.call("single", "GET", "/memory/query", TIMEOUT_S, parameters=parameters)
        )
        stop.wait(SINGLE_PAUSE_S)
    return calls


def _is_in_time(call: Call) -> bool:
    is_answered = call.status == HTTPStatus.OK and bool(call.body["results"])
    return is_answered and not call.body["degraded"] and call.took_s <= call.within_s


def _wait_for(bench: Bench, accepted: set[str]) -> list[Body]:
    """The jobs that have ended, once all have or their deadline is over."""
    caller = bench.caller()
    give_up_at = time.monotonic() + BURST_TIMEOUT_S + JOB_LATE_S
    tell_at = time.monotonic() + TOLD_EVERY_S
    while True:
        running = sum(job["id"] in accepted for job in _listed(caller, "running"))
        if not running or time.monotonic() > give_up_at:
            return [job for job in _listed(caller, "ended") if job["id"] in accepted]
        if time.monotonic() > tell_at:
            bench.announce(f"{len(accepted) - running} of {len(accepted)} jobs have ended")
            tell_at = time.monotonic() + TOLD_EVERY_S
        time.sleep(0.5)


def _listed(caller: Caller, status: str) -> Iterator[Body]:
    parameters: dict[str, str | int] = {"limit": 100, "status": status}
    while True:
        call = caller.call("list", "GET", JOBS, ENDED_WITHIN_S, parameters=parameters)
        yield from _said(call)["jobs"]
        if not call.body["next_cursor"]:
            return
        parameters["cursor"] = call.body["next_cursor"]


# No worker at all.


def _without_workers(bench: Bench) -> dict[str, float]:
    """Submissions after every worker has been ended; their jobs must end all the same."""
    bench.announce(f"{bench.options.stopped} jobs without any worker")
    workers = [psutil.Process(pid) for pid in bench.stack.pids.workers]
    for worker in workers:
        worker.terminate()
    _, living = psutil.wait_procs(workers, timeout=WORKERS_END_S)
    for worker in living:
        worker.kill()
    caller, took_ms, jobs = bench.caller(), list[float](), list[Body]()
    for _ in range(bench.options.stopped):
        body = {
            "query": bench.writer.question(),
            "projects": bench.writer.choose(bench.projects, FEW),
            "timeout_seconds": STOPPED_TIMEOUT_S,
        }
        call = caller.call("submit", "POST", JOBS, AT_ONCE_S, body=body)
        took_ms.append(call.took_s * 1000)
        jobs.append(_said(call))
    ended = [_follow(caller, job) for job in jobs]
    bench.keep("submit_with_workers_stopped", took_ms)
    return {
        "submit_with_workers_stopped_ms": max(took_ms),
        "unbegun_lost": sum(job["is_running"] for job in ended),
    }


def _submit(caller: Caller, body: Body) -> Body:
    return _said(caller.call("submit", "POST", JOBS, AT_ONCE_S, body=body))


def _look(caller: Caller, job: Body, since: int | None = None) -> Body:
    """A long poll for the job's end, or for news since a revision."""
    parameters = {"wait_seconds": WAIT_S} | ({} if since is None else {"since": since})
    path = f"{JOBS}/{job['id']}"
    return _said(caller.call("long_poll", "GET", path, WAIT_S, parameters=parameters))


def _follow(caller: Caller, job: Body) -> Body:
    """A job once it has ended, or should have."""
    give_up_at = instant(job["deadline_at"]) + JOB_LATE_S
    while job["is_running"] and time.time() < give_up_at:
        job = _look(caller, job)
    return job


def _said(call: Call) -> Body:
    if call.status not in ACCEPTED:
        raise BenchError(f"A {call.kind} was answered with {call.status} {call.error}.")
    return call.body
