"""A memory whose every part a test may hold, kill and start again, and questions to it."""

import os
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

import psutil
import requests
from psycopg import Connection, OperationalError

from tests.faults.models import DIMENSION, Models
from tests.faults.servers import OwnServer, own_postgres, own_valkey
from tests.integration.obstacles import stopped
from tests.integration.service import Service, clean_environment, running, state_dir, until

JOBS = "/memory/query/jobs"
LATE_S = 0.5  # past its deadline a question has been answered
JOB_LATE_S = 5.0  # and a job has ended
PROJECTS = ("alpha", "bravo", "charlie", "delta")
WORKERS = ("query1", "query2", "jobs1", "jobs2", "merge", "background")
COUNTED = ("running", "successful", "partial", "timed_out", "failed", "skipped", "cancelled")
ENDED = ("completed", "partial", "failed", "cancelled")

Document = dict[str, Any]

# What a policy asks for each row: whether the project's rows may be seen yet.
_GATES = """
CREATE TABLE gate (project text, stage text, PRIMARY KEY (project, stage));
CREATE FUNCTION may_pass(asked text, at_stage text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM gate WHERE gate.project = asked AND gate.stage = 'broken') THEN
        RAISE EXCEPTION 'this project is broken';
    END IF;
    IF EXISTS (SELECT FROM gate WHERE gate.project = asked AND gate.stage = at_stage) THEN
        PERFORM pg_advisory_xact_lock_shared(hashtext(asked));
    END IF;
    RETURN true;
END $$;
ALTER TABLE node_vector ENABLE ROW LEVEL SECURITY;
ALTER TABLE node_vector FORCE ROW LEVEL SECURITY;
CREATE POLICY gate ON node_vector USING (may_pass(project, 'recall'));
ALTER TABLE memory_edge ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_edge FORCE ROW LEVEL SECURITY;
CREATE POLICY gate ON memory_edge USING (may_pass(project, 'walk'));
"""


@dataclass
class Memory:
    """Four projects of three notes each, on servers of the test's own."""

    service: Service
    postgres: OwnServer
    valkey: OwnServer
    models: Models
    settings: dict[str, str]
    known: set[int] = field(default_factory=set)  # workers that were seen ready

    # Questions

    def question(self, about: str = "gateway bodies") -> str:
        """One that nobody asked before, so that it has to be embedded."""
        return f"why does the gateway refuse {about} {uuid4().hex}"

    def ask(self, query: str, **parameters: Any) -> requests.Response:
        return self.service.get("/memory/query", query=query, limit=50, **parameters)

    def submit(self, query: str, **body: Any) -> str:
        """Submit a job that must be accepted; its id."""
        accepted = self.service.post(JOBS, {"query": query, "limit": 50} | body)
        assert accepted.status_code in (200, 202), accepted.text
        job_id: str = accepted.json()["id"]
        return job_id

    def delete(self, job_id: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.service.key}"}
        url = f"{self.service.url}{JOBS}/{job_id}"
        return requests.delete(url, headers=headers, timeout=40)

    def read(self, job_id: str, **parameters: Any) -> Document:
        response = self.service.get(f"{JOBS}/{job_id}", **parameters)
        assert response.status_code == 200, response.text
        document: Document = response.json()
        return document

    def ended(self, job_id: str, within_s: float = 60, timeout_s: int = 20) -> Document:
        """A job once it has ended: in time, with all that was found, and the same ever after."""

        def look() -> Document | None:
            with suppress(requests.ConnectionError):  # the front door may be down for a moment
                response = self.service.get(f"{JOBS}/{job_id}", wait_seconds=10)
                if response.status_code == 503:
                    return None
                assert response.status_code == 200, response.text
                said: Document = response.json()
                return said if said["status"] in ENDED else None
            return None

        document = until(look, within_s)
        assert self.late_s(document) < JOB_LATE_S
        first, second = (self.service.get(f"{JOBS}/{job_id}").content for _ in "12")
        assert first == second
        self.check(document, timeout_s)
        return document

    def check(self, said: Document, timeout_s: int = 20) -> None:
        """Its counts agree; its hits are those of the projects that answered, in their order."""
        federation = said["federation"]
        assert sum(federation.get(name, 0) for name in COUNTED) == federation["total"]
        assert len(federation["projects"]) == federation["total"]
        assert all(project["took_ms"] >= 0 for project in federation["projects"])
        searched = said["projects_searched"]
        if not searched:
            assert said["results"] == []
            return
        projects = ",".join(searched)
        alone = self.ask(said["query"], projects=projects, timeout_seconds=timeout_s)
        assert alone.status_code == 200, alone.text
        assert said["results"] == alone.json()["results"]
        assert alone.json()["projects_searched"] == searched

    @staticmethod
    def late_s(document: Document) -> float:
        """By how much a job ended after its deadline; negative if before."""
        finished, deadline = (
            datetime.fromisoformat(document[name]) for name in ("finished_at", "deadline_at")
        )
        return (finished - deadline).total_seconds()

    # What happens inside

    def begun(self, job_id: str) -> dict[str, int]:
        """The projects of a job that were begun, and by which process each."""
        with self.service.redis() as redis:
            taken = redis.hgetall(f"poimen:q:{{{job_id}}}:begun")
        return {
            project.decode(): int(worker.decode().split(":")[1])
            for project, worker in taken.items()
        }

    def done(self, query_id: str) -> set[str]:
        """The projects that have an outcome."""
        with self.service.redis() as redis:
            found = redis.hkeys(f"poimen:q:{{{query_id}}}:outcomes")
        return {project.decode() for project in found}

    def asked(self) -> str | None:
        """The id of a question that is waited for now."""
        with self.service.redis() as redis:
            for key in redis.scan_iter("poimen:q:{*}", count=1000):
                if redis.type(key) == b"hash" and key.endswith(b"}"):
                    names = redis.hkeys(key)
                    if b"by" not in names and b"base" not in names:
                        return str(key.decode()[10:-1])
        return None

    def row(self, job_id: str) -> tuple[Any, ...]:
        """Status, attempts and error of a job as PostgreSQL has it."""
        with self.service.connect() as connection:
            row = connection.execute(
                "SELECT status, attempts, error FROM query_job WHERE id = %s", [job_id]
            ).fetchone()
        assert row
        return row

    def open_jobs(self) -> int:
        with self.service.connect() as connection:
            row = connection.execute("SELECT count(*) FROM query_job WHERE status = 'open'")
            return int((row.fetchone() or [0])[0])

    # Holding

    @contextmanager
    def gate(self, stage: str, *projects: str) -> Iterator["Gate"]:
        """Let nobody read what a stage reads of these projects: recall or walk."""
        with self.service.connect() as connection:
            gate = Gate(connection)
            try:
                gate.shut(stage, projects)
                yield gate
            finally:
                gate.open()

    def at_gate(self) -> list[int]:
        """The processes whose statements wait at a gate."""
        with self.service.connect() as connection:
            rows = connection.execute(
                "SELECT application_name FROM pg_stat_activity"
                " WHERE wait_event = 'advisory' AND application_name LIKE 'poimen-%'"
            ).fetchall()
        return [int(name.rpartition("-")[2]) for (name,) in rows]

    def calling(self) -> list[int]:
        """The processes whose calls the model server holds."""
        with self.models.lock:
            ports = set(self.models.waiting)
        return [
            pid
            for name in WORKERS
            if (pid := self.pids().get(name))
            and any(
                connection.laddr and connection.laddr.port in ports
                for connection in _connections(pid)
            )
        ]

    # Processes

    def pids(self) -> dict[str, int]:
        """The live workers and the web server, by name."""
        found = {}
        for process in psutil.Process(self.service.process.pid).children():
            with suppress(psutil.Error):
                command = process.cmdline()
                if process.status() == psutil.STATUS_ZOMBIE or not command:
                    continue
                if "--hostname" in command:
                    name = command[command.index("--hostname") + 1].partition("@")[0]
                    found[name] = process.pid
                elif "gunicorn" in command:
                    found["web"] = process.pid
        return found

    def pids_of(self, kind: str) -> list[int]:
        return [pid for name, pid in self.pids().items() if name.startswith(kind)]

    @contextmanager
    def deaf(self, *workers: int) -> Iterator[None]:
        """Stop workers, and make Redis forget that they wait: it would hand them messages."""
        with stopped(workers):
            with self.service.redis() as redis:
                for client in redis.client_list():
                    if client["cmd"] == "brpop" and "b" in client["flags"]:
                        redis.client_kill_filter(_id=client["id"])
            yield

    def environment(self) -> dict[str, str]:
        """What a further worker needs to know."""
        return clean_environment() | self.settings

    def is_whole(self) -> bool:
        """Every process lives, and was ready at some time."""
        pids = self.pids()
        wanted = {pids.get(name, 0) for name in WORKERS}
        if 0 in wanted or "web" not in pids:
            return False
        if not wanted <= self.known:
            with suppress(requests.RequestException, KeyError, ValueError):
                self.known |= {worker["pid"] for worker in self.service.workers()}
        return wanted <= self.known

    def wait_until_whole(self) -> None:
        until(self.is_whole, within_s=60)
        until(self._answers, within_s=30)

    def _answers(self) -> bool:
        with suppress(requests.RequestException):
            return self.ask("gateway", timeout_seconds=5).status_code == 200
        return False


class Gate:
    """A lock that a policy asks for; whoever holds it keeps the others from reading."""

    def __init__(self, connection: "Connection[tuple[Any, ...]]") -> None:
        self._connection = connection

    def shut(self, stage: str, projects: Iterable[str]) -> None:
        for project in projects:
            self._connection.execute("SELECT pg_advisory_lock(hashtext(%s))", [project])
            self._connection.execute("INSERT INTO gate VALUES (%s, %s)", [project, stage])

    def open(self) -> None:
        with suppress(OperationalError):  # a test may have killed the server
            self._connection.execute("DELETE FROM gate")
            self._connection.execute("SELECT pg_advisory_unlock_all()")


def kill(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _connections(pid: int) -> list[Any]:
    with suppress(psutil.Error):
        return list(psutil.Process(pid).net_connections("tcp"))
    return []


def _nodes() -> list[Document]:
    nodes: list[Document] = []
    for project in PROJECTS:
        turn = {"project": project, "level": "L0", "kind": "turn", "source": "pi:s"}
        note = {"project": project, "level": "L1", "kind": "note", "source": "s"}
        for n, what in enumerate(("bodies over 10 KB", "long headers", "slow clients")):
            key = f"{project}-{n}"
            nodes.append(turn | {"id": key, "position": n, "text": f"{project} refuses {what}"})
            text = f"the {project} gateway refuses {what}"
            nodes.append(note | {"text": text, "parents": [key]})
    return nodes


@contextmanager
def fragile_memory(**settings: str) -> Iterator[Memory]:
    """`mem up` on servers of its own, with the four projects in it."""
    folder = state_dir()
    with ExitStack() as held:
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        models = Models()
        held.callback(models.close)
        postgres, database_url = held.enter_context(own_postgres(folder))
        valkey, redis_url = held.enter_context(own_valkey(folder))
        settings |= {
            "POIMEN_DATABASE_URL": database_url,
            "POIMEN_REDIS_URL": redis_url,
            "POIMEN_EMBEDDING_URL": models.url,
            "POIMEN_EMBEDDING_MODEL": "words",
            "POIMEN_EMBEDDING_DIMENSION": str(DIMENSION),
            "POIMEN_RERANK_URL": models.url,
            "POIMEN_QUERY_WORKERS": "2",
            "POIMEN_JOB_WORKERS": "2",
        }
        service = held.enter_context(running(**settings))
        assert service.ingest(_nodes())["status"] == "completed"
        with service.connect() as connection:
            connection.execute(_GATES)
        yield Memory(service, postgres, valkey, models, settings)


def pause(seconds: float) -> None:
    """Only where time itself is what a test is about."""
    threading.Event().wait(seconds)
