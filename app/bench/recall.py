"""`mem bench recall`: a large project's index against comparing with every node."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector.psycopg import register_vector

from app.bench.errors import BenchError
from app.bench.figures import over_rounds, percentile, percentiles
from app.bench.machine import Watch
from app.bench.scratch import Announce, client_of, scratch_stack
from app.bench.texts import Writer
from app.client import Client
from app.local.stack import StackInfo
from config.settings import Settings
from workers.deadline import Deadline
from workers.engines.build import build_embedded_encoder
from workers.engines.encoders import EmbeddedEncoder
from workers.model import Encoding, Level, Reads, Vector
from workers.store.database import Database
from workers.store.models import use_model
from workers.store.search import QUERIES, RECALL_HNSW, ProjectSearch
from workers.store.vector_indexes import IndexedProjects, index_name

PROJECT = "large"
ASKED = (Level.L1, Level.L2)
# Of ten nodes; enough of them on the asked levels that the index is not only filtered away.
LEVELS = ("L0", "L0", "L0", "L1", "L1", "L1", "L1", "L1", "L1", "L2")
BASES = 600  # texts encoded; every vector is a mixture of two of them, and noise
SHARES = (0.75, 0.45, 0.35)
DEPTH = 50
TIMEOUT_S = 30
INDEX_WITHIN_S = 300.0
KNOWN_AFTER_S = 6.0  # every process looks for new indexes every five seconds
LAST_ROUND_BEGINS_S = 480.0


@dataclass(frozen=True)
class Options:
    """exact_rows: up to how many nodes on the asked levels all are compared; None: as set."""

    seed: int = 1
    nodes: int = 40_000
    rounds: int = 3
    questions: int = 50
    exact_rows: int | None = None

    @classmethod
    def quick(cls, seed: int) -> "Options":
        """Just enough for every figure to have a value; none of them means anything."""
        return cls(seed, 1500, 1, 5, exact_rows=500)


@dataclass(frozen=True)
class Bench:
    """The service, and the large project twice: as it is served, and without its index."""

    client: Client
    encoder: EmbeddedEncoder
    served: ProjectSearch
    exact: ProjectSearch
    writer: Writer


def run(
    settings: Settings, options: Options, announce: Announce
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure, on a stack that is gone afterwards; the figures, and the raw samples.

    Raises:
        StackError: the service cannot run here.
        BenchError: the project is too small for an index, or did not get one.
    """
    watch, samples = Watch(), list[dict[str, Any]]()
    exact_rows = options.exact_rows or settings.exact_rows
    asked = sum(level != "L0" for level in _levels(options.nodes))
    if asked <= exact_rows:
        raise BenchError(
            f"{asked} of {options.nodes} nodes are on the asked levels, and up to {exact_rows} no"
            " index is used: take more --nodes, or a lower POIMEN_EXACT_ROWS."
        )
    # The nodes have no prepared tokens, so there is nothing to rerank with.
    plain = settings.model_copy(update={"rerank_depth": 0, "exact_rows": exact_rows})
    with scratch_stack(plain, announce) as stack, closing(Database(stack.database_url)) as database:
        encoder = build_embedded_encoder()
        model = use_model(database, encoder.model, encoder.token_model)
        announce(f"Writing {options.nodes} nodes")
        fill(stack.database_url, model, _vectors(encoder, options), announce)
        ready_s = _wait_for_index(stack.database_url, announce)
        bench = _bench(stack, database, model, encoder, exact_rows, options)
        explained = _explain(stack.database_url, model, bench)
        rounds = list(_rounds(bench, options, watch, samples))
        described = watch.describe()
    sizes = {"projects": 1, "nodes": options.nodes, "nodes_asked": asked}
    report = {"bench": "recall", **described, "seed": options.seed, "rounds": len(rounds)} | sizes
    plans = sorted({sample["plan"] for sample in samples})
    found = {"plan": ",".join(plans), "explain_uses_index": explained, "index_ready_s": ready_s}
    return report | found | over_rounds(rounds), samples


def _levels(nodes: int) -> Iterator[str]:
    return (LEVELS[number % len(LEVELS)] for number in range(nodes))


def _vectors(encoder: EmbeddedEncoder, options: Options) -> NDArray[np.float32]:
    """Mixtures of real texts' vectors: noise alone would be harder to search than any memory."""
    writer, random = Writer(f"{options.seed}:bases"), np.random.default_rng(options.seed)
    texts = [writer.passage() for _ in range(min(BASES, options.nodes))]
    encodings = encoder.encode_passages(texts)
    bases = np.stack([found.vector for found in encodings if isinstance(found, Encoding)])
    first, second = (bases[random.integers(0, len(bases), options.nodes)] for _ in range(2))
    noise = random.normal(size=first.shape) / np.sqrt(first.shape[1])
    mixed = SHARES[0] * first + SHARES[1] * second + SHARES[2] * noise
    unit: NDArray[np.float32] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    return unit.astype(np.float32)


def fill(database_url: str, model: int, vectors: NDArray[np.float32], announce: Announce) -> None:
    """Write a project's rows beside the service, as encoding so many texts would take too long."""
    shas = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(len(vectors))]
    with psycopg.connect(database_url, autocommit=True) as connection:
        register_vector(connection)
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("INSERT INTO project (project) VALUES (%s)", [PROJECT])
            cursor.execute(
                "CREATE TEMPORARY TABLE given"
                " (sha256 text, level text, parent text, embedding vector) ON COMMIT DROP"
            )
            statement = "COPY given FROM STDIN WITH (FORMAT BINARY)"
            with cursor.copy(statement) as copy:
                copy.set_types(["text", "text", "text", "vector"])
                levels = _levels(len(vectors))
                for sha256, level, vector in zip(shas, levels, vectors, strict=True):
                    copy.write_row((sha256, level, shas[0] if level != "L0" else None, vector))
            for statement in _FROM_GIVEN:
                cursor.execute(statement.encode(), {"project": PROJECT, "model": model})
        announce("Written; the service makes the index")
        connection.execute("ANALYZE")


_FROM_GIVEN = (
    "INSERT INTO memory_node (project, sha256, level, kind, source, text)"
    " SELECT %(project)s, sha256, level, CASE level WHEN 'L0' THEN 'turn' WHEN 'L1' THEN 'note'"
    " ELSE 'synthesis' END, 'made', 'text ' || sha256 FROM given",
    "INSERT INTO memory_edge (project, child, parent, precedence)"
    " SELECT %(project)s, sha256, parent, 1 FROM given WHERE parent IS NOT NULL",
    "INSERT INTO node_vector (project, model, sha256, level, embedding)"
    " SELECT %(project)s, %(model)s, sha256, level, embedding FROM given",
)


def _wait_for_index(database_url: str, announce: Announce) -> float:
    """Seconds until the service had made the index, its timetable's pause included."""
    began = time.monotonic()
    with psycopg.connect(database_url, autocommit=True) as connection:
        while connection.execute("SELECT FROM vector_index").fetchone() is None:
            if time.monotonic() - began > INDEX_WITHIN_S:
                raise BenchError(f"There was no index after {INDEX_WITHIN_S:.0f} s.")
            time.sleep(0.5)
    waited = round(time.monotonic() - began, 1)
    announce(f"The index was there after {waited} s")
    time.sleep(KNOWN_AFTER_S)
    return waited


def _bench(
    stack: StackInfo,
    database: Database,
    model: int,
    encoder: EmbeddedEncoder,
    exact_rows: int,
    options: Options,
) -> Bench:
    indexed = IndexedProjects(database, model, time.monotonic)

    def search(rows: int) -> ProjectSearch:
        return ProjectSearch(database, PROJECT, model, encoder.token_model, indexed, rows)

    writer = Writer(f"{options.seed}:questions")
    return Bench(client_of(stack), encoder, search(exact_rows), search(options.nodes + 1), writer)


def _explain(database_url: str, model: int, bench: Bench) -> bool:
    """Whether PostgreSQL itself says that it takes the project's index."""
    vector = _encode(bench, bench.writer.question())
    arguments = {"project": PROJECT, "model": model, "token_model": None, "query": vector}
    arguments |= {"levels": list(ASKED), "depth": DEPTH, "tokens_for": 0, "has_text": False}
    query = RECALL_HNSW.replace("DIMENSION", str(len(vector)))
    with psycopg.connect(database_url) as connection:
        register_vector(connection)
        settings = {"ef_search": "400", "max_scan_tuples": "20000"}
        connection.execute(QUERIES["hnsw_settings"].encode(), settings)
        rows = connection.execute(b"EXPLAIN " + query.encode(), arguments, prepare=False)
        return any(index_name(PROJECT, model) in line for (line,) in rows.fetchall())


def _rounds(
    bench: Bench, options: Options, watch: Watch, samples: list[dict[str, Any]]
) -> Iterator[dict[str, float]]:
    for number in range(1, options.rounds + 1):
        if number > 1 and watch.elapsed_s() > LAST_ROUND_BEGINS_S:
            return
        found = [
            _compare(bench, bench.writer.question()) | {"round": number}
            for _ in range(options.questions)
        ]
        samples += found
        yield _figures(found)


def _figures(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    recalls = [sample["recall"] for sample in found]
    figures = {"recall_at_50": mean(recalls), "recall_at_50_p10": percentile(recalls, 10)}
    for name in ("hnsw", "exact", "service"):
        figures |= percentiles(name, [sample[f"{name}_ms"] for sample in found])
    return figures


def _compare(bench: Bench, question: str) -> dict[str, Any]:
    """One question by the index, by comparing with all, and through the service."""
    vector = _encode(bench, question)
    hnsw_ms, by_index = _recall(bench.served, vector)
    exact_ms, by_all = _recall(bench.exact, vector)
    began = time.perf_counter()
    body = bench.client.query(question, projects=[PROJECT], timeout_seconds=TIMEOUT_S)
    service_ms = (time.perf_counter() - began) * 1000
    return {
        "recall": len(by_index & by_all) / len(by_all),
        "hnsw_ms": hnsw_ms,
        "exact_ms": exact_ms,
        "service_ms": service_ms,
        "plan": str(body["federation"]["projects"][0]["plan"]),
    }


def _encode(bench: Bench, question: str) -> Vector:
    return bench.encoder.encode_query(question, Deadline.after(TIMEOUT_S)).vector


def _recall(search: ProjectSearch, vector: Vector) -> tuple[float, set[str]]:
    began = time.perf_counter()
    recalled = search.recall(vector, ASKED, DEPTH, (), Reads.NOTHING, Deadline.after(TIMEOUT_S))
    spent = (time.perf_counter() - began) * 1000
    return spent, {candidate.sha256 for candidate in recalled.candidates}
