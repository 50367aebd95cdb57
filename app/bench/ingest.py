"""`mem bench ingest`: what storing costs, with vectors given and with vectors made on the way."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.bench import turns
from app.bench.data import Node, Size, give_vectors, ingest, project_nodes
from app.bench.figures import over_rounds
from app.bench.machine import Watch
from app.bench.processes import Meter
from app.bench.scratch import Announce, client_of, scratch_stack
from app.bench.texts import Writer
from app.client import Client
from config.settings import Settings
from workers.engines.build import build_embedded_encoder
from workers.engines.minilm import DIMENSION, MODEL, MiniLM

BATCH = 64  # texts the product hands to the model at once
LAST_ROUND_BEGINS_S = 360.0


@dataclass(frozen=True)
class Options:
    """How much is stored in each round: `nodes` with vectors, and a part of them without."""

    seed: int = 1
    projects: int = 2
    nodes: int = 1000
    rounds: int = 3
    turns: int = 5000
    kills: int = 5

    @classmethod
    def quick(cls, seed: int) -> "Options":
        """Just enough for every figure to have a value; none of them means anything."""
        return cls(seed, 1, 40, 1, 300, 1)


@dataclass(frozen=True)
class Bench:
    """The parts of a run: the service, its meter, and the models of this process."""

    options: Options
    client: Client
    meter: Meter
    model: MiniLM

    def nodes(self, name: str) -> list[Node]:
        return project_nodes(Writer(f"{self.options.seed}:{name}"), Size.of(self.options.nodes))


def run(
    settings: Settings, options: Options, announce: Announce
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure, on a stack that is gone afterwards; the figures, and one sample for each round.

    Raises:
        StackError: the service cannot run here.
        BenchError: it runs, but does not store what it is given.
    """
    watch, rounds, peak = Watch(), list[dict[str, float]](), 0.0
    # A kill costs whatever job it hits an attempt.
    settings = settings.model_copy(update={"ingest_attempts": options.kills + 1})
    with scratch_stack(settings, announce) as stack:
        pids = (*stack.pids.web, *stack.pids.workers, stack.pids.postgres, stack.pids.valkey)
        bench = Bench(options, client_of(stack), Meter(pids), MiniLM())
        ingest(bench.client, "warm-up", project_nodes(Writer("warm-up"), Size.of(20)))
        encoder = build_embedded_encoder()
        for number in range(1, options.rounds + 1):
            if number > 1 and watch.elapsed_s() > LAST_ROUND_BEGINS_S:
                break
            announce(f"Round {number} of {options.rounds}")
            figures = _given(bench, number) | _embedded(bench, number)
            texts = [str(node["text"]) for node in bench.nodes(f"tokens-{number}")]
            tokens_ms = _cpu_ms(lambda batch: encoder.encode_passages(batch), texts)
            figures["tokens_cpu_ms_per_node"] = tokens_ms
            rounds.append(figures)
            peak = max(peak, bench.meter.memory_mb())
        sessions = turns.measure(
            turns.Plan(options.turns, options.kills, options.seed),
            bench.client,
            stack.database_url,
            bench.model,
            announce,
        )
        peak = max(peak, bench.meter.memory_mb())
        described = watch.describe()
    report = {"bench": "ingest", **described, "seed": options.seed, "rounds": len(rounds)}
    sizes = {"projects": options.projects, "nodes": Size.of(options.nodes).nodes}
    samples = [{"round": number, **figures} for number, figures in enumerate(rounds, start=1)]
    figures = over_rounds([*rounds]) | {name: round(value, 2) for name, value in sessions.items()}
    return report | sizes | figures | {"peak_rss_mb": round(peak, 1)}, samples


def _given(bench: Bench, number: int) -> dict[str, float]:
    submissions = {}
    for place in range(bench.options.projects):
        name = f"given-{number}-{place}"
        submissions[name] = bench.nodes(name)
        give_vectors(submissions[name], MODEL.name, DIMENSION, name)
    rate, cpu_ms = _store(bench, submissions)
    return {"vectors_nodes_per_s": rate, "vectors_cpu_ms_per_node": cpu_ms}


def _embedded(bench: Bench, number: int) -> dict[str, float]:
    """The model alone before and after the service, so that a machine's drift cancels out."""
    name = f"embedded-{number}"
    nodes = bench.nodes(name)
    texts = [str(node["text"]) for node in nodes]
    half = len(texts) // 2
    alone_s = _seconds(bench.model, texts[:half])
    rate, cpu_ms = _store(bench, {name: nodes})
    alone_s += _seconds(bench.model, texts[half:])
    alone = len(texts) / alone_s
    return {
        "ingest_nodes_per_s": rate,
        "ingest_cpu_ms_per_node": cpu_ms,
        "model_texts_per_s": alone,
        "embed_ratio": rate / alone,
    }


def _store(bench: Bench, submissions: dict[str, list[Node]]) -> tuple[float, float]:
    """Nodes a second, and milliseconds of processor time a node, the client's included."""
    count = sum(map(len, submissions.values()))
    before, own = bench.meter.read(), time.process_time()
    seconds = sum(ingest(bench.client, name, nodes) for name, nodes in submissions.items())
    own_s = time.process_time() - own
    used = bench.meter.read().since(before)
    return count / seconds, (used.service_s + own_s) * 1000 / count


def _seconds(model: MiniLM, texts: Sequence[str]) -> float:
    began = time.perf_counter()
    for start in range(0, len(texts), BATCH):
        model.read_each(texts[start : start + BATCH], lambda reading: reading.vector)
    return time.perf_counter() - began


def _cpu_ms(work: Any, texts: Sequence[str]) -> float:
    began = time.process_time()
    for start in range(0, len(texts), BATCH):
        work(texts[start : start + BATCH])
    return (time.process_time() - began) * 1000 / len(texts)
