"""Clients that ask in every way there is, side by side, and whether each question was answered."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from itertools import accumulate
from typing import Any
from uuid import uuid4

from app.bench.calls import JOBS, Body, Call, Caller, Calls

TIMEOUT_S = 5  # of a query that is waited for
JOB_TIMEOUTS_S = (10, 20, 30)
JOB_LATE_S = 5.0  # that a job may end after its deadline
AT_ONCE_S = 5.0  # in which whatever waits for nothing is answered: as long as a write may take
WAIT_S = 10  # of a long poll
PAUSE_S = 1.0  # between two questions of a client, on average
JOB_PROJECTS = 10
MOST_RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, put at once or as a job, and what came of it in the end."""

    kind: str
    has_hits: bool  # answered with 200 and at least one hit
    is_partial: bool  # the same, though not from every project in full
    by: str | None = None  # who merged its answer
    error: str | None = None  # the code of a job that failed


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job that the service has promised to end."""

    id: str
    kind: str
    deadline_at: float  # seconds since the epoch


@dataclass
class Ledger:
    """What all clients together have seen. Safe to share."""

    calls: Calls = field(default_factory=Calls)
    asked: list[Asked] = field(default_factory=list)
    accepted: dict[str, Accepted] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)  # answers that break a promise
    went_back: list[str] = field(default_factory=list)  # revisions lower than one seen before
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, asked: Asked) -> None:
        with self.lock:
            self.asked.append(asked)

    def accept(self, kind: str, job: Body) -> None:
        with self.lock:
            accepted = Accepted(job["id"], kind, instant(job["deadline_at"]))
            self.accepted[job["id"]] = accepted

    def complain(self, text: str) -> None:
        with self.lock:
            self.wrong.append(text)

    def saw_back(self, text: str) -> None:
        with self.lock:
            self.went_back.append(text)


def instant(text: str) -> float:
    """Seconds since the epoch of an instant as the service writes it."""
    return datetime.fromisoformat(text).timestamp()


class Gate:
    """Lets clients go on or holds them before their next question, and knows when all are held."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._at_work = 0

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def is_quiet(self) -> bool:
        with self._lock:
            return self._at_work == 0

    def enter(self) -> None:
        while True:
            self._open.wait()
            with self._lock:
                if self._open.is_set():
                    self._at_work += 1
                    return

    def leave(self) -> None:
        with self._lock:
            self._at_work -= 1


class Client:
    """One caller of the service. What it does next is drawn from its own seed."""

    def __init__(
        self,
        caller: Caller,
        ledger: Ledger,
        projects: Sequence[str],
        questions: Sequence[str],
        seed: str,
        stop: threading.Event,
    ) -> None:
        self._caller = caller
        self._ledger = ledger
        self._projects = projects
        self._questions = questions
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._stop = stop

    def work(self, gate: Gate) -> None:
        """Ask one question after the other until it is time to stop."""
        self._stop.wait(self._random.uniform(0, PAUSE_S))
        while not self._stop.is_set():
            gate.enter()
            try:
                self._one()
            finally:
                gate.leave()
            self._stop.wait(self._random.uniform(0.5, 1.5) * PAUSE_S)

    def _one(self) -> None:
        drawn = self._random.random() * _TOTAL
        kind = next(kind for kind, most in _DRAWS.items() if drawn <= most)
        _KINDS[kind][1](self, kind)

    def single(self, kind: str) -> None:
        """A query to one project, waited for."""
        self._ask(kind, {"project": self._random.choice(self._projects)})

    def many(self, kind: str) -> None:
        """A query to all projects, waited for."""
        self._ask(kind, {})

    def _ask(self, kind: str, where: dict[str, str]) -> None:
        parameters: dict[str, str | int] = {"query": self._question(), **where}
        parameters["timeout_seconds"] = TIMEOUT_S
        call = self._caller.call(kind, "GET", "/memory/query", TIMEOUT_S, parameters=parameters)
        self._ledger.add(answer_of(kind, call.body if call.status == HTTPStatus.OK else {}))
        self._heed(call)

    def followed(self, kind: str) -> None:
        """A job, and a long poll for its end."""
        job = self._submit(kind)
        if job is not None:
            self._follow(kind, job)

    def watched(self, kind: str) -> None:
        """A job, and long polls from one revision to the next."""
        job = self._submit(kind)
        if job is not None:
            self._follow(kind, job, polls="revisions")

    def waited(self, kind: str) -> None:
        """A job whose submission waits for its end."""
        job = self._submit(kind, wait_s=WAIT_S)
        if job is not None:
            self._follow(kind, job)

    def polled(self, kind: str) -> None:
        """A job, looked at as often as the service says."""
        job = self._submit(kind)
        if job is not None:
            self._follow(kind, job, polls="at once")

    def left(self, kind: str) -> None:
        """A job that nobody looks at before all is over."""
        self._submit(kind)

    def stopped(self, kind: str) -> None:
        """A job, stopped soon: what was found by then is its answer."""
        job = self._submit(kind)
        if job is None:
            return
        time.sleep(self._random.uniform(0, 0.3))
        call = self._caller.call("stop", "POST", f"{JOBS}/{job['id']}/stop", AT_ONCE_S)
        if call.status == HTTPStatus.OK and call.body["is_running"]:
            self._ledger.complain(f"job {job['id']} runs on after a stop")
        self._follow(kind, job, seen=call)

    def cancelled(self, kind: str) -> None:
        """A job, cancelled soon: nothing of it is kept."""
        job = self._submit(kind)
        if job is None:
            return
        time.sleep(self._random.uniform(0, 0.3))
        call = self._caller.call(
            "cancel", "DELETE", f"{JOBS}/{job['id']}", AT_ONCE_S, parameters={"if_running": "true"}
        )
        if call.status == HTTPStatus.OK and call.body["is_running"]:
            self._ledger.complain(f"job {job['id']} runs on after a cancel")
        self._follow(kind, job, seen=call)

    def resubmitted(self, kind: str) -> None:
        """A job that is submitted twice with one key: there must be one job."""
        body, key = self._body(), uuid4().hex
        first = self._submit(kind, body=body, key=key)
        if first is None:
            return
        again = self._send("resubmit", body, key, 0)
        if _is_accepted(again) and again.body["id"] != first["id"]:
            self._ledger.accept(kind, again.body)
            self._ledger.complain(f"one key made two jobs: {first['id']} and {again.body['id']}")
        self._follow(kind, first, seen=again)

    def _submit(
        self, kind: str, *, wait_s: int = 0, body: Body | None = None, key: str | None = None
    ) -> Body | None:
        """The accepted job; None if it was not, which ends this question."""
        call = self._send("submit", body or self._body(), key or uuid4().hex, wait_s)
        if _is_accepted(call):
            self._ledger.accept(kind, call.body)
            return call.body
        self._ledger.add(answer_of(kind, {}))
        self._heed(call)
        return None

    def _send(self, name: str, body: Body, key: str, wait_s: int) -> Call:
        waiting = {"wait_seconds": wait_s} if wait_s else {}
        within_s = wait_s or AT_ONCE_S
        headers = {"Idempotency-Key": key}
        return self._caller.call(name, "POST", JOBS, within_s, body=body | waiting, headers=headers)

    def _follow(
        self, kind: str, job: Body, *, polls: str = "end", seen: Call | None = None
    ) -> None:
        """Look at a job until it has ended, or should have."""
        give_up_at = instant(job["deadline_at"]) + JOB_LATE_S
        if seen is not None and _is_accepted(seen):
            job = seen.body
        while job["is_running"] and time.time() < give_up_at:
            call = self._poll(job, polls)
            if call.status != HTTPStatus.OK:
                self._heed(call)
                continue
            if call.body["revision"] < job["revision"]:
                went = f"{job['revision']} to {call.body['revision']}"
                self._ledger.saw_back(f"job {job['id']} went from revision {went} ({_told(call)})")
            job = call.body
        self._ledger.add(answer_of(kind, job))

    def _poll(self, job: Body, polls: str) -> Call:
        """polls: for the `end`, for `revisions`, or `at once` when the service said."""
        path, since = f"{JOBS}/{job['id']}", {"since": job["revision"]}
        if polls == "at once":
            time.sleep((job["poll_after_ms"] or 250) / 1000)
            return self._caller.call("poll", "GET", path, AT_ONCE_S)
        waiting = {"wait_seconds": WAIT_S} | (since if polls == "revisions" else {})
        return self._caller.call("long_poll", "GET", path, WAIT_S, parameters=waiting)

    def _body(self) -> Body:
        return {
            "query": self._question(),
            "projects": self._random.sample(
                list(self._projects), min(JOB_PROJECTS, len(self._projects))
            ),
            "timeout_seconds": self._random.choice(JOB_TIMEOUTS_S),
        }

    def _question(self) -> str:
        return self._random.choice(list(self._questions))

    def _heed(self, call: Call) -> None:
        """Who is asked to come back later does."""
        if call.status != HTTPStatus.OK:
            time.sleep(min(MOST_RETRY_AFTER_S, call.retry_after_s or 0.2))


def _is_accepted(call: Call) -> bool:
    return call.status in (HTTPStatus.OK, HTTPStatus.ACCEPTED) and "is_running" in call.body


def _told(call: Call) -> str:
    return f"{call.kind}, request {call.request_id}, attempt {call.body['attempts']}"


def answer_of(kind: str, said: Body) -> Asked:
    """What came of a question, by its answer or by its job's document when last looked at."""
    if not said or said.get("is_running"):
        return Asked(kind, has_hits=False, is_partial=False)
    has_hits, error = bool(said["results"]), said.get("error")
    return Asked(
        kind,
        has_hits,
        is_partial=has_hits and said["degraded"],
        by=said["federation"]["finalized_by"],
        error=error["error"] if error else None,
    )


# How many of a hundred questions, and what is done.
_KINDS: dict[str, tuple[int, Callable[[Client, str], Any]]] = {
    "single": (50, Client.single),
    "many": (12, Client.many),
    "followed": (7, Client.followed),
    "watched": (3, Client.watched),
    "waited": (8, Client.waited),
    "polled": (5, Client.polled),
    "cancelled": (5, Client.cancelled),
    "stopped": (4, Client.stopped),
    "resubmitted": (3, Client.resubmitted),
    "left": (3, Client.left),
}
_DRAWS = dict(zip(_KINDS, accumulate(share for share, _ in _KINDS.values()), strict=True))
_TOTAL = max(_DRAWS.values())


class Crowd:
    """Clients in threads of their own, from the start to the end of a block."""

    def __init__(self, clients: Sequence[Client], stop: threading.Event) -> None:
        self.gate = Gate()
        self._stop = stop
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, args=[client], daemon=True) for client in clients
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raise what has ended a client that should still be asking."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stop.set()
        self.gate.open()

    def has_stopped(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, client: Client) -> None:
        try:
            client.work(self.gate)
        except BaseException as failure:  # noqa: BLE001 - told to whoever watches
            self._failure = failure
