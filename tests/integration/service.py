"""The real service for tests: `mem up` as a process, and a caller of its HTTP interface."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
import requests
from psycopg import sql
from redis import Redis

FIXTURE = Path(__file__).parents[1] / "fixtures" / "memory_nodes.jsonl"
MEM = Path(sys.executable).with_name("mem")
READY_S = 90.0
Found = TypeVar("Found")
ALIVE = b"poimen:worker:"
KEPT_TABLES = ("alembic_version", "embedding_model", "api_key")


@dataclass(frozen=True)
class Service:
    """A running service and everything a test may look at."""

    url: str
    key: str
    database_url: str
    redis_url: str
    pids: dict[str, Any]
    data_dir: Path
    process: "subprocess.Popen[str]"

    def get(self, path: str, **parameters: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        return requests.get(self.url + path, params=parameters, headers=headers, timeout=40)

    def post(self, path: str, body: Any, **headers: str) -> requests.Response:
        headers = {name.replace("_", "-"): said for name, said in headers.items()}
        headers |= {"Authorization": f"Bearer {self.key}"}
        return requests.post(self.url + path, json=body, headers=headers, timeout=40)

    def ask(self, query: str, **parameters: Any) -> dict[str, Any]:
        """A question that must be answered."""
        response = self.get("/memory/query", query=query, **parameters)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def ingest(self, nodes: list[dict[str, Any]], project: str | None = None) -> dict[str, Any]:
        """Submit nodes and follow the job to its end."""
        body = {"format": "nodes", "nodes": nodes} | ({"project": project} if project else {})
        # With a key of its own, so that the same nodes again are not taken for the first job.
        accepted = self.post("/memory/ingest", body, Idempotency_Key=uuid4().hex)
        assert accepted.status_code == 202, accepted.text
        return self.ended(accepted.json()["id"])

    def ended(self, job_id: str, within_s: float = 60) -> dict[str, Any]:
        def status() -> dict[str, Any] | None:
            said: dict[str, Any] = self.get(f"/memory/ingest/{job_id}").json()
            return said if said["status"] not in ("queued", "running") else None

        return until(status, within_s)

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(self.database_url, autocommit=True)

    def redis(self) -> Redis:
        return Redis.from_url(self.redis_url)

    def mem(self, *arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run the command line against this service, as a user on its machine would."""
        return self._mem({"POIMEN_DATA_DIR": str(self.data_dir)}, arguments, cwd)

    def mem_as(self, key: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the command line with a key, as a user on another machine would."""
        return self._mem({"POIMEN_URL": self.url, "POIMEN_API_KEY": key}, arguments)

    def _mem(
        self, settings: dict[str, str], arguments: tuple[str, ...], cwd: Path | None = None
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(MEM), *arguments],
            env=clean_environment() | settings,
            cwd=cwd or self.data_dir,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/health/ready").json()["workers"]
        return found

    def empty(self) -> None:
        """Forget every project and everything in Valkey but who is alive; API keys stay."""
        with self.connect() as connection:
            rows = connection.execute(
                "SELECT tablename FROM pg_tables"
                " WHERE schemaname = 'public' AND tablename <> ALL(%s)",
                [list(KEPT_TABLES)],
            ).fetchall()
            tables = sql.SQL(", ").join(sql.Identifier(name) for (name,) in rows)
            while True:
                with suppress(psycopg.errors.DeadlockDetected):  # with upkeep, which goes on
                    connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(tables))
                    break
        with self.redis() as redis:
            keys = [key for key in redis.scan_iter(count=1000) if not key.startswith(ALIVE)]
            if keys:
                redis.delete(*keys)


def until(look: Callable[[], Found | None], within_s: float = 20.0) -> Found:
    """Look until there is something to see; the bound only ends a hopeless wait."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        threading.Event().wait(0.02)
    raise AssertionError(f"nothing came of it within {within_s} s")


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("POIMEN_")}


def state_dir() -> Path:
    """A folder that the account of PostgreSQL may enter, which pytest's own are not for root."""
    folder = Path(tempfile.mkdtemp(prefix="poimen-test-"))
    folder.chmod(0o711)
    return folder


@contextmanager
def running(**environment: str) -> Iterator[Service]:
    """`mem up` with these POIMEN_ settings, until the block ends."""
    folder = state_dir()
    process = subprocess.Popen(
        [str(MEM), "up", "--format", "json"],
        env=clean_environment() | {"POIMEN_DATA_DIR": str(folder)} | environment,
        stdout=subprocess.PIPE,
        stderr=(folder / "up.log").open("w"),
        text=True,
    )
    try:
        yield _ready(process, folder)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) in (0, 130)
        shutil.rmtree(folder, ignore_errors=True)


def _ready(process: "subprocess.Popen[str]", folder: Path) -> Service:
    assert process.stdout is not None
    killer = threading.Timer(READY_S, process.kill)
    killer.start()
    try:
        line = process.stdout.readline()
    finally:
        killer.cancel()
    assert line, f"mem up did not start: {(folder / 'up.log').read_text()[-3000:]}"
    said = json.loads(line)
    return Service(
        url=said["url"],
        key=Path(said["key_file"]).read_text().strip(),
        database_url=said["database_url"],
        redis_url=said["redis_url"],
        pids=said["pids"],
        data_dir=folder,
        process=process,
    )


def fixture_nodes() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FIXTURE.read_text().splitlines() if line.strip()]
