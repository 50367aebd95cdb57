"""Sessions taken in from files: how fast, and what is lost or doubled when processes are killed."""

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psutil
import psycopg

from app.bench.errors import BenchError
from app.bench.scratch import Announce
from app.bench.texts import Writer
from app.client import Client
from workers.engines.minilm import MiniLM

TURNS_PER_SESSION = 250
ONE_BY_ONE = 400  # texts read one at a time: enough to know
BATCH = 64
POLL_S = 0.1
ENDS_S = 300.0
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)

File = tuple[str, bytes]


@dataclass(frozen=True)
class Plan:
    """How much is taken in, and how often the process that does it is killed."""

    turns: int
    kills: int
    seed: int


@dataclass(frozen=True)
class Talk:
    """Sessions of one project as files, and the texts said in them."""

    project: str
    files: list[File]
    texts: list[str]


def write_talk(seed: str, project: str, turns: int) -> Talk:
    """Sessions as Claude Code keeps them; the same seed writes the same ones."""
    writer, source = Writer(seed), random.Random(seed)  # noqa: S311 - no secret
    texts = [writer.passage() for _ in range(turns)]
    files = []
    for start in range(0, turns, TURNS_PER_SESSION):
        session = str(UUID(int=source.getrandbits(128), version=4))
        said = texts[start : start + TURNS_PER_SESSION]
        files.append((f"{session}.jsonl", _session(session, said, source)))
    return Talk(project, files, texts)


def _session(session: str, texts: Sequence[str], source: random.Random) -> bytes:
    lines, parent = [], None
    for number, text in enumerate(texts):
        uuid = str(UUID(int=source.getrandbits(128), version=4))
        role = "user" if number % 2 == 0 else "assistant"
        content: Any = text if role == "user" else [{"type": "text", "text": text}]
        lines.append(
            {
                "type": role,
                "uuid": uuid,
                "parentUuid": parent,
                "sessionId": session,
                "cwd": "/srv/bench",
                "timestamp": f"{BEGUN + timedelta(minutes=number):%Y-%m-%dT%H:%M:%SZ}",
                "message": {"role": role, "content": content},
            }
        )
        parent = uuid
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def measure(
    plan: Plan, client: Client, database_url: str, model: MiniLM, announce: Announce
) -> dict[str, float]:
    """Take sessions in, once undisturbed and once with the process that does it killed.

    The model reads the same texts alone, half before and half after, so that a machine's drift
    cancels out.

    Raises:
        BenchError: a submission did not end, or ended otherwise than completed.
    """
    turns = plan.turns
    announce(f"{turns} turns of sessions")
    talk = write_talk(f"{plan.seed}:talk", "talk", turns)
    half = len(talk.texts) // 2
    some = talk.texts[:ONE_BY_ONE]
    one_by_one_s = _seconds(model, some, 1)
    bare_s = _seconds(model, talk.texts[:half], BATCH)
    began = time.perf_counter()
    largest = _ended(client, [client.submit_files(talk.files, project=talk.project)["id"]])
    took_s = time.perf_counter() - began
    bare_s += _seconds(model, talk.texts[half:], BATCH)
    announce(f"The same, with {plan.kills} kills")
    torn = write_talk(f"{plan.seed}:torn", "torn", turns)
    kills = _take_under_fire(client, torn, plan)
    with closing(psycopg.connect(database_url, autocommit=True)) as connection:
        missing = [_compared(connection, each) for each in (talk, torn)]
    return {
        "turns": turns,
        "turns_per_s": turns / took_s,
        "bare_model_turns_per_s": turns / bare_s,
        "one_by_one_turns_per_s": len(some) / one_by_one_s,
        "largest_process_mb": largest,
        "kills": kills,
        "lost": sum(lost for lost, _ in missing),
        "doubled": sum(doubled for _, doubled in missing),
    }


def _take_under_fire(client: Client, talk: Talk, plan: Plan) -> int:
    """Submit each session by itself, and kill the process at work on them at random moments."""
    source = random.Random(plan.seed)  # noqa: S311 - no secret
    jobs = [client.submit_files([file], project=talk.project)["id"] for file in talk.files]
    kills = 0
    while kills < plan.kills and _is_open(client, jobs):
        time.sleep(source.uniform(0.2, 2.0))
        children = _background(client).children()
        if children:  # the one that was killed before may not have a successor yet
            source.choice(children).kill()
            kills += 1
    _ended(client, jobs)
    return kills


def _background(client: Client) -> psutil.Process:
    """The worker whose processes take memories in.

    Raises:
        BenchError: none is alive.
    """
    for worker in client.ready()["workers"]:
        if "ingest" in worker["queues"]:
            return psutil.Process(worker["pid"])
    raise BenchError("No background worker is alive.")


def _is_open(client: Client, jobs: Sequence[str]) -> bool:
    return any(client.show_ingest(job)["status"] in ("queued", "running") for job in jobs)


def _ended(client: Client, jobs: Sequence[str]) -> float:
    """Wait until all have ended; the most memory that a process of the worker had, in MB."""
    largest, end = 0.0, time.monotonic() + ENDS_S
    worker = _background(client)
    for job in jobs:
        while (said := client.show_ingest(job))["status"] in ("queued", "running"):
            if time.monotonic() > end:
                raise BenchError(f"A submission did not end within {ENDS_S:.0f} s.")
            largest = max([largest, *(_memory_mb(child) for child in worker.children())])
            time.sleep(POLL_S)
        if said["status"] != "completed":
            why = (said["error"] or {}).get("message", said["status"])
            raise BenchError(f"The service did not store what it was given: {why}")
    return largest


def _memory_mb(process: psutil.Process) -> float:
    try:
        return process.memory_info().rss / 1e6
    except psutil.Error:
        return 0.0


def _compared(connection: psycopg.Connection[Any], talk: Talk) -> tuple[int, int]:
    """How many of the texts are not stored, and how many are stored more often than they were."""
    rows = connection.execute("SELECT text FROM memory_node WHERE project = %s", [talk.project])
    stored = Counter(text for (text,) in rows)
    said = Counter(talk.texts)
    return (said - stored).total(), (stored - said).total()


def _seconds(model: MiniLM, texts: Sequence[str], batch: int) -> float:
    began = time.perf_counter()
    for start in range(0, len(texts), batch):
        model.read_each(texts[start : start + batch], lambda reading: reading.vector)
    return time.perf_counter() - began
