"""`mem bench soak`: mixed load for a long time, while workers are killed and Valkey restarts."""

import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import cycle
from pathlib import Path
from typing import Any

from app.bench.calls import JOBS, LATE_S, Body, Call, Caller
from app.bench.data import Size
from app.bench.errors import BenchError
from app.bench.figures import percentile
from app.bench.growth import Reading, read, roles_of
from app.bench.kept import KeptStack, kept_stack
from app.bench.load import (
    AT_ONCE_S,
    JOB_LATE_S,
    Client,
    Crowd,
    Ledger,
    answer_of,
    instant,
)
from app.bench.machine import Watch
from app.bench.processes import tree
from app.bench.query import Options as Filling
from app.bench.query import fill
from app.bench.scratch import Announce
from app.bench.texts import Writer
from config.settings import Settings

KILL_EVERY_S = 30.0
ROLES = ("query", "jobs", "merge")  # whose workers are killed, in turn
WARM_S = 75.0  # what Redis keeps of an answer is there after so long
SETTLE_S = 3.0
QUIET_WITHIN_S = 60.0
ALL_LIVE_WITHIN_S = 60.0
READY_S = 5.0  # readiness looks at every dependency
TOLD_EVERY_S = 30.0
QUESTIONS = 200  # different ones: what is remembered of them is there soon
EXAMPLES = 5


@dataclass(frozen=True)
class Options:
    """How long, and how large. seconds: of load, with all that is killed meanwhile."""

    seed: int = 1
    seconds: int = 900
    clients: int = 16
    projects: int = 50
    nodes: int = 170
    logs: Path | None = None  # where the service's logs are copied to


@dataclass(frozen=True)
class Plan:
    """When what happens, in seconds from the beginning of the load."""

    read_at_s: float
    kills_at_s: tuple[float, ...]
    valkey_at_s: float

    @classmethod
    def of(cls, seconds: float) -> "Plan":
        """Kills every 30 s, or three at least; Valkey in the middle, between two of them."""
        every_s = min(KILL_EVERY_S, seconds / 4)
        warm_s = min(WARM_S, seconds / 6)
        count = int((seconds - every_s / 2) / every_s)
        kills = (every_s * number for number in range(1, count + 1))
        middle_s = (int(seconds / 2 / every_s) + 0.5) * every_s
        return cls(warm_s, tuple(at for at in kills if at > warm_s), middle_s)


@dataclass
class Soak:
    """A run under way."""

    options: Options
    stack: KeptStack
    ledger: Ledger
    crowd: Crowd
    caller: Caller
    announce: Announce
    workers_killed: int = 0
    summaries: dict[str, Body] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    _killed: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Let the clients ask for the whole time, and do the damage meanwhile."""
        plan, victims = Plan.of(self.options.seconds), cycle(ROLES)
        began = time.monotonic()
        events = sorted(
            [
                (plan.read_at_s, "read"),
                (plan.valkey_at_s, "valkey"),
                *((at, "worker") for at in plan.kills_at_s),
            ]
        )
        told_every_s = min(TOLD_EVERY_S, self.options.seconds / 6)
        tell_at = began + told_every_s
        self.crowd.start()
        while (passed := time.monotonic() - began) < self.options.seconds:
            self.stack.watch()
            self.crowd.check()
            if events and passed >= events[0][0]:
                _, event = events.pop(0)
                self._do(event, victims)
            if time.monotonic() >= tell_at:
                tell_at += told_every_s
                self._tell(time.monotonic() - began)
        self.crowd.stop()
        self._watch_until(self.crowd.has_stopped, QUIET_WITHIN_S, "A client does not end")
        self._check_jobs()
        self._settle_and_read()

    def _do(self, event: str, victims: Iterator[str]) -> None:
        if event == "read":
            self.crowd.gate.close()
            self._watch_until(self.crowd.gate.is_quiet, QUIET_WITHIN_S, "A question does not end")
            self._settle_and_read()
            self.crowd.gate.open()
        elif event == "valkey":
            self.stack.kill_valkey()
        else:
            self._kill(next(victims))

    def _kill(self, role: str) -> None:
        """End the worker of a queue, which readiness names, and nothing that is not ours."""
        found: list[int] = []

        def is_found() -> bool:
            workers = self._workers()
            pids = (int(worker["pid"]) for worker in workers if role in worker["queues"])
            found[:] = [pid for pid in pids if pid not in self._killed]
            return bool(found)

        self._watch_until(is_found, ALL_LIVE_WITHIN_S, f"No live {role} worker")
        if found[0] not in {process.pid for process in tree([os.getpid()])}:
            raise BenchError(f"Readiness names process {found[0]}, which is not this stack's.")
        os.kill(found[0], signal.SIGKILL)
        self._killed.add(found[0])
        self.workers_killed += 1

    def _workers(self) -> list[Body]:
        call = self.caller.call("ready", "GET", "/health/ready", READY_S)
        return list(call.body.get("workers", ()))

    def _settle_and_read(self) -> None:
        roles: dict[str, int] = {}

        def are_all_live() -> bool:
            found = roles_of(self._workers())
            roles.clear()
            roles.update({role: pid for role, pid in found.items() if pid not in self._killed})
            return len(roles) == len(self.stack.info.pids.workers)

        self._watch_until(are_all_live, ALL_LIVE_WITHIN_S, "Not every worker is live")
        self.stack.watch(SETTLE_S)
        info = self.stack.info
        servers = {"postgres": info.pids.postgres, "valkey": self.stack.valkey_pid}
        roles |= {"web": info.pids.web[0]} | servers
        self.readings.append(read(roles, info.database_url, info.redis_url))

    def _watch_until(self, is_done: Callable[[], bool], within_s: float, what: str) -> None:
        end = time.monotonic() + within_s
        while not is_done():
            if time.monotonic() > end:
                raise BenchError(f"{what} after {within_s:.0f} s.")
            self.stack.watch()
            self.crowd.check()

    def _check_jobs(self) -> None:
        """Wait for the end of every accepted job, and see what came of those left alone."""
        last_at = max((job.deadline_at for job in self.ledger.accepted.values()), default=0.0)

        def have_ended() -> bool:
            return time.time() > last_at + JOB_LATE_S or not any(self._listed("running"))

        within_s = max(0.0, last_at - time.time()) + 2 * JOB_LATE_S
        self._watch_until(have_ended, within_s, "The list of jobs does not come")
        self.summaries = {job["id"]: job for job in self._listed(None)}
        for job in self.ledger.accepted.values():
            if job.kind == "left":
                call = self.caller.call("poll", "GET", f"{JOBS}/{job.id}", AT_ONCE_S)
                said = call.body if call.status == HTTPStatus.OK else {}
                self.ledger.add(answer_of(job.kind, said))

    def _listed(self, status: str | None) -> Iterator[Body]:
        """One's own jobs, page by page."""
        parameters: dict[str, str | int] = {"limit": 100} | ({"status": status} if status else {})
        while True:
            call = self.caller.call("list", "GET", JOBS, AT_ONCE_S, parameters=parameters)
            if call.status != HTTPStatus.OK:
                raise BenchError(f"The list of jobs was answered with {call.status} {call.error}.")
            yield from call.body["jobs"]
            if not call.body["next_cursor"]:
                return
            parameters["cursor"] = call.body["next_cursor"]

    def _tell(self, passed_s: float) -> None:
        calls, asked = self.ledger.calls.made(), list(self.ledger.asked)
        hits = sum(one.has_hits for one in asked) / max(1, len(asked))
        failed = sum(call.has_failed for call in calls)
        silent = sum(not call.is_answered for call in calls)
        self.announce(
            f"{passed_s:.0f} of {self.options.seconds} s: {len(asked)} questions, {hits:.1%} with"
            f" hits, {failed} answers 5xx, {silent} without answer; {self.workers_killed} workers"
            f" killed, Valkey restarted {self.stack.valkey_restarts} times"
        )


def run(
    settings: Settings, options: Options, announce: Announce
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run the load on a stack that is gone afterwards; the figures, and every single request.

    Raises:
        StackError: the service cannot run here.
        BenchError: it cannot be filled, or does not come back after damage.
    """
    watch, ledger = Watch(), Ledger()
    names = [f"soak-{number:02}" for number in range(options.projects)]
    with kept_stack(settings, announce) as stack, _keeping_logs(stack, options.logs):
        with stack.unwatched():
            filling = Filling(options.seed, options.projects, options.nodes, sources=2)
            fill(stack.info, filling, names, announce)
        stop = threading.Event()
        writer = Writer(f"{options.seed}:questions")
        questions = [writer.question() for _ in range(QUESTIONS)]
        key = stack.info.key_file.read_text().strip()
        clients = [
            Client(
                Caller(stack.info.url, key, ledger.calls),
                ledger,
                names,
                questions,
                f"{options.seed}:{number}",
                stop,
            )
            for number in range(options.clients)
        ]
        announce(f"{options.clients} clients ask for {options.seconds} s")
        caller = Caller(stack.info.url, key, ledger.calls)
        soak = Soak(options, stack, ledger, Crowd(clients, stop), caller, announce)
        soak.run()
        killed = {"workers_killed": soak.workers_killed, "valkey_restarts": stack.valkey_restarts}
        described = watch.describe()
    sizes = {"projects": options.projects, "nodes": Size.of(options.nodes).nodes}
    report = {"bench": "soak", **described, "seed": options.seed, "seconds": options.seconds}
    report |= {"clients": options.clients} | sizes
    report |= figures(ledger, soak.summaries) | killed | _grown(*soak.readings)
    return report, [call.as_sample() for call in ledger.calls.made()]


@contextmanager
def _keeping_logs(stack: KeptStack, target: Path | None) -> Iterator[None]:
    try:
        yield
    finally:
        if target is not None:
            shutil.copytree(stack.logs, target, dirs_exist_ok=True)


def figures(ledger: Ledger, summaries: dict[str, Body]) -> dict[str, Any]:
    """What became of the questions, of the requests they took, and of the accepted jobs."""
    calls = [call for call in ledger.calls.made() if call.kind != "ready"]
    failed = [call for call in calls if call.has_failed]
    late_calls = [call for call in calls if call.late_s > LATE_S]
    ends = {
        job.id: end - job.deadline_at
        for job in ledger.accepted.values()
        if (end := _end_of(summaries.get(job.id))) is not None
    }
    late_jobs = [job_id for job_id, late_s in ends.items() if late_s > JOB_LATE_S]
    return {
        "requests": len(ledger.asked),
        "answered_with_hits": sum(asked.has_hits for asked in ledger.asked),
        "unanswered": sum(not call.is_answered for call in calls),
        "late": len(late_calls) + len(late_jobs),
        "max_late_ms": round(max((call.late_s for call in calls), default=0.0) * 1000, 1),
        "jobs_accepted": len(ledger.accepted),
        "jobs_lost": len(ledger.accepted) - len(ends),
        "max_job_late_ms": round(max([0.0, *ends.values()]) * 1000, 1),
        "partial": sum(asked.is_partial for asked in ledger.asked),
        "errors_5xx": len(failed),
        "errors_5xx_without_retry_after": sum(call.retry_after_s is None for call in failed),
        "errors_5xx_by_code": _counted(
            f"{call.kind} {call.status} {call.error}" for call in failed
        ),
        "broken_promises": len(ledger.wrong),
        "revisions_back": len(ledger.went_back),
        "http_requests": len(calls),
        "http_by_kind": _counted(call.kind for call in calls),
        "http_by_status": _counted(str(call.status) for call in calls),
        "jobs_by_end": _counted(
            f"{job.kind} {summaries[job.id]['status']}"
            for job in ledger.accepted.values()
            if job.id in summaries
        ),
        "jobs_failed_by_code": _counted(
            f"{asked.kind} {asked.error}" for asked in ledger.asked if asked.error
        ),
        "http_p95_ms": _p95_ms(calls),
        "finalized_by": _counted(asked.by for asked in ledger.asked if asked.by),
        "examples": _examples(calls, late_calls, late_jobs, ledger),
    }


def _p95_ms(calls: Sequence[Call]) -> dict[str, float]:
    took: dict[str, list[float]] = {}
    for call in calls:
        took.setdefault(call.kind, []).append(call.took_s * 1000)
    return {kind: round(percentile(values, 95), 1) for kind, values in took.items()}


def _end_of(summary: Body | None) -> float | None:
    """When a job ended, if it has."""
    if summary is None or summary["is_running"]:
        return None
    return instant(summary["finished_at"])


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _examples(
    calls: Sequence[Call], late_calls: Sequence[Call], late_jobs: Sequence[str], ledger: Ledger
) -> list[str]:
    """Some of what should not have been, to look for in the logs."""
    silent = [call for call in calls if not call.is_answered]
    bare = [call for call in calls if call.has_failed and call.retry_after_s is None]
    said = [f"{call.kind} was not answered: {call.error}" for call in silent[:EXAMPLES]]
    said += [
        f"{call.kind} was answered after {call.took_s:.2f} of {call.within_s:.0f} s:"
        f" {call.status} {call.error or ''} (request {call.request_id})"
        for call in late_calls[:EXAMPLES]
    ]
    said += [
        f"{call.kind} {call.status} {call.error} without Retry-After (request {call.request_id})"
        for call in bare[:EXAMPLES]
    ]
    said += [f"job {job_id} ended late" for job_id in late_jobs[:EXAMPLES]]
    return said + ledger.wrong[:EXAMPLES] + ledger.went_back[:EXAMPLES]


def _grown(before: Reading, after: Reading) -> dict[str, Any]:
    return {
        "rss_growth_mb": round(after.growth_mb(before), 1),
        "connections_growth": after.more_connections(before),
        "memory_mb": {role: [mb, after.memory_mb[role]] for role, mb in before.memory_mb.items()},
        "connections": {
            server: [count, after.connections[server]]
            for server, count in before.connections.items()
        },
    }
