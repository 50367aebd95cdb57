"""`mem reindex` on the real service: it answers all the while, and the switch loses nothing."""

import hashlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.model_stub import ModelStub, Reply, embeddings
from tests.integration.service import MEM, Service, clean_environment, running, state_dir, until

# Two whole stacks beside the session's; the tables' part of it is in test_models.py.
pytestmark = pytest.mark.long

DIMENSION = 16
NODES = 300
EXACT_ROWS = "200"
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jetty")


def text_of(number: int) -> str:
    words = np.random.default_rng(number).choice(WORDS, 6)
    return f"{' '.join(words)} number{number}"


def turn(text: str) -> dict[str, Any]:
    return {"project": "notes", "level": "L0", "kind": "turn", "source": "s", "text": text}


class OtherModel(ModelStub):
    """Another dimension than the embedded model's, equal vectors for equal texts only.

    It stops answering once it has embedded so many texts, until it may go on.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.stops_after: int | None = None
        self.may_go_on = threading.Event()
        super().__init__(self.embed)

    @property
    def name(self) -> str:
        return "other-model"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--url", self.url, "--model", self.name, "--dimension", str(DIMENSION))

    @property
    def settings(self) -> dict[str, str]:
        return {
            "POIMEN_EMBEDDING_URL": self.url,
            "POIMEN_EMBEDDING_MODEL": self.name,
            "POIMEN_EMBEDDING_DIMENSION": str(DIMENSION),
        }

    def embed(self, body: dict[str, Any]) -> Reply:
        texts = body["input"]
        if self.stops_after is not None and len(self.texts) + len(texts) > self.stops_after:
            self.may_go_on.wait(60)
        self.texts += texts
        return embeddings([vector(text) for text in texts])


def vector(text: str) -> list[float]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    return [float(number) for number in np.random.default_rng(seed).normal(size=DIMENSION)]


class Asker:
    """Asks the same question again and again, and keeps what went wrong."""

    def __init__(self, service: Service) -> None:
        self.answered = 0
        self.wrong: list[Any] = []
        self._service = service
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> "Asker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(30)

    def _ask(self) -> None:
        while not self._ends.is_set():
            answer = self._service.get(
                "/memory/query", query=text_of(7), project="notes", level="L0", limit=1
            )
            body = answer.json()
            if answer.status_code != 200 or best(body) != text_of(7) or body["degraded"]:
                self.wrong.append(body)
            self.answered += 1


def best(answer: dict[str, Any]) -> str | None:
    return answer["results"][0]["text"] if answer["results"] else None


def embedder_of(answer: dict[str, Any]) -> str:
    (project,) = answer["federation"]["projects"]
    return str(project["models"]["embedder"])


def found(service: Service, text: str) -> bool:
    return best(service.ask(text, project="notes", level="L0", limit=1)) == text


def readiness(service: Service, name: str) -> tuple[str, str]:
    said = service.get("/health/ready").json()["dependencies"][name]
    return said["state"], said["detail"]


def vectors_of(service: Service, model: str) -> int:
    with service.connect() as connection:
        row = connection.execute(
            "SELECT count(*) FROM node_vector JOIN embedding_model USING (model) WHERE name = %s",
            [model],
        ).fetchone()
    assert row is not None
    return int(row[0])


def embedded_name(service: Service) -> str:
    with service.connect() as connection:
        row = connection.execute("SELECT name FROM embedding_model ORDER BY model").fetchone()
    assert row is not None
    return str(row[0])


@contextmanager
def reindexing(service: Service, other: OtherModel) -> Iterator["subprocess.Popen[str]"]:
    """`mem reindex` as a process that a test may kill."""
    process = subprocess.Popen(
        [str(MEM), "reindex", *other.options],
        env=clean_environment() | {"POIMEN_DATA_DIR": str(service.data_dir)},
        cwd=service.data_dir,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def up_with(service: Service, settings: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """A second `mem up` on the database of the first, that cannot start."""
    return subprocess.run(
        [str(MEM), "up"],
        env=clean_environment()
        | second(service)
        | settings
        | {"POIMEN_DATA_DIR": str(state_dir())},
        capture_output=True,
        text=True,
        timeout=90,
    )


def second(service: Service) -> dict[str, str]:
    return {
        "POIMEN_DATABASE_URL": service.database_url,
        "POIMEN_REDIS_URL": service.redis_url.replace("db=0", "db=1"),
        "POIMEN_EXACT_ROWS": EXACT_ROWS,
    }


@pytest.fixture(scope="module")
def other() -> Iterator[OtherModel]:
    stub = OtherModel()
    yield stub
    stub.may_go_on.set()
    stub.close()


@pytest.fixture(scope="module")
def old() -> Iterator[Service]:
    """Workers with the embedded model, and a memory made by them."""
    with running(POIMEN_EXACT_ROWS=EXACT_ROWS) as service:
        job = service.ingest([turn(text_of(number)) for number in range(NODES)])
        assert job["status"] == "completed", job
        yield service


@pytest.fixture(scope="module")
def switched(old: Service, other: OtherModel) -> Iterator[dict[str, Any]]:
    """The whole story once; the tests look at its chapters."""
    told: dict[str, Any] = {"old": old}
    with ExitStack() as stack:
        asker = stack.enter_context(Asker(old))
        other.stops_after = NODES // 2
        process = stack.enter_context(reindexing(old, other))
        until(lambda: vectors_of(old, other.name) >= 64, within_s=60)
        until(lambda: len(other.requests) * 32 > NODES // 2, within_s=60)
        process.send_signal(signal.SIGKILL)
        process.wait()
        told["readiness while filling"] = readiness(old, "vectors")
        told["made before the kill"] = vectors_of(old, other.name)
        old.ingest([turn("stored while it is reindexed")])
        told["unfinished"] = up_with(old, other.settings)

        other.stops_after = None
        other.may_go_on.set()
        asked = len(other.texts)
        told["done"] = old.mem("reindex", *other.options)
        told["made after the kill"] = len(other.texts) - asked - 1  # one to see that it is there
        told["readiness when ready"] = readiness(old, "vectors")
        old.ingest([turn("stored before the switch")])
        told["not dropped"] = old.mem("reindex", "--drop-old", "--yes")
        new = stack.enter_context(running(**second(old), **other.settings))
        told |= {"new": new, "asker": asker}
        yield told


def test_questions_are_answered_by_the_old_model_all_the_while(switched: dict[str, Any]) -> None:
    asker = switched["asker"]

    assert asker.answered > 20
    assert asker.wrong == []


def test_killed_in_the_middle_it_goes_on_where_it_was(switched: dict[str, Any]) -> None:
    done = switched["done"]
    before, after = switched["made before the kill"], switched["made after the kill"]

    assert 64 <= before < NODES
    assert done.returncode == 0, done.stderr
    assert after == NODES + 1 - before
    assert done.stdout == (
        f"other-model (16 dimensions) is ready: {NODES + 1} nodes, {after} encoded now\n"
    )
    assert "POIMEN_EMBEDDING_MODEL=other-model" in done.stderr


def test_a_worker_with_a_model_that_is_not_ready_is_refused(switched: dict[str, Any]) -> None:
    done = switched["unfinished"]

    assert done.returncode == 1
    assert "model_mismatch" in done.stderr
    assert re.search(r"not all there yet: \d+ of 301 nodes", done.stderr)
    assert "`mem reindex` goes on with it" in done.stderr


def test_readiness_tells_the_models_and_how_far_the_next_one_is(switched: dict[str, Any]) -> None:
    filling, ready = switched["readiness while filling"], switched["readiness when ready"]

    assert filling[0] == ready[0] == "ok"
    assert filling[1].startswith("all-MiniLM-L6-v2-int8 (384 dimensions")
    assert re.search(r"other-model has \d+ nodes to go", filling[1])
    assert "other-model is ready to be switched to" in ready[1]


def test_nothing_is_dropped_while_the_old_model_answers(switched: dict[str, Any]) -> None:
    assert "nothing to remove" in switched["not dropped"].stderr


def test_new_workers_answer_with_the_new_model(switched: dict[str, Any], other: OtherModel) -> None:
    answer = switched["new"].ask("heron inlet", project="notes", level="L0", explain="true")

    assert embedder_of(answer) == other.name
    assert "heron inlet" in other.texts


def test_every_node_is_found_after_the_switch(switched: dict[str, Any]) -> None:
    new: Service = switched["new"]
    until(lambda: readiness(new, "vectors")[0] == "ok", within_s=60)
    texts = [text_of(number) for number in range(0, NODES, 10)]
    texts += ["stored while it is reindexed", "stored before the switch"]

    assert [text for text in texts if not found(new, text)] == []
    assert vectors_of(new, "other-model") == NODES + 2


def test_old_workers_go_on_with_the_old_model(switched: dict[str, Any]) -> None:
    old: Service = switched["old"]

    answer = old.ask(text_of(3), project="notes", level="L0", limit=1, explain="true")

    assert best(answer) == text_of(3)
    assert embedder_of(answer) == embedded_name(old)
    state, said = readiness(old, "vectors")
    assert state == "degraded"
    assert "started with another model" in said


def test_what_an_old_worker_stores_after_the_switch_is_told_and_found(
    switched: dict[str, Any], other: OtherModel
) -> None:
    old, new = switched["old"], switched["new"]
    with other.held():
        old.ingest([turn("stored by an old worker after the switch")])
        state, said = readiness(new, "vectors")
        assert (state, "1 node without a vector yet" in said) == ("degraded", True), said

    until(lambda: readiness(new, "vectors")[0] == "ok", within_s=30)
    assert found(new, "stored by an old worker after the switch")


def test_the_large_project_has_an_index_of_the_new_model(switched: dict[str, Any]) -> None:
    answer = switched["new"].ask(text_of(5), project="notes", level="L0", explain="true")

    (project,) = answer["federation"]["projects"]
    assert project["plan"] == "hnsw"


def test_an_export_carries_the_new_model_s_name(switched: dict[str, Any]) -> None:
    lines = switched["new"].get("/memory/projects/notes/export").text.splitlines()

    assert sum('"embedding_model": "other-model"' in line for line in lines) >= NODES


def test_reindexing_to_the_active_model_has_nothing_to_do(
    switched: dict[str, Any], other: OtherModel
) -> None:
    done = switched["old"].mem("reindex", *other.options, "--format", "json")

    assert done.returncode == 0
    assert '"status": "active"' in done.stdout
    assert '"encoded": 0' in done.stdout


def test_the_old_model_is_dropped_once_no_worker_answers_by_it(switched: dict[str, Any]) -> None:
    old, new = switched["old"], switched["new"]
    name = embedded_name(old)

    refused = old.mem("reindex", "--drop-old", "--yes")
    dropped = subprocess.run(
        [str(MEM), "reindex", "--drop-old", "--yes"],
        env=clean_environment() | second(old) | {"POIMEN_DATA_DIR": str(new.data_dir)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert refused.returncode == 1
    assert "model_in_use" in refused.stderr
    assert dropped.returncode == 0, dropped.stderr
    assert re.fullmatch(rf"{name}: \d+ vectors removed\n", dropped.stdout)
    assert vectors_of(new, name) == 0
    assert found(new, text_of(11))
    with new.connect() as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE starts_with(relname, 'node_vector_hnsw_')"
        ).fetchall()
    assert len(rows) == 1


def test_ctrl_c_says_how_to_go_on(old: Service, other: OtherModel, tmp_path: Path) -> None:
    options = [*other.options[:-2], "--dimension", str(DIMENSION), "--model", "a-third-model"]
    other.stops_after = len(other.texts) + 65
    other.may_go_on.clear()
    process = subprocess.Popen(
        [str(MEM), "reindex", *options],
        env=clean_environment() | {"POIMEN_DATA_DIR": str(old.data_dir)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: vectors_of(old, "a-third-model") >= 64, within_s=60)

    os.kill(process.pid, signal.SIGINT)
    other.may_go_on.set()
    _, said = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "The same command goes on where it was." in said

    given_up = old.mem("reindex", "--cancel", "--yes")
    assert re.fullmatch(r"a-third-model: \d+ vectors removed\n", given_up.stdout), given_up.stderr
    assert vectors_of(old, "a-third-model") == 0
