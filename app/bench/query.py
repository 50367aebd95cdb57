"""`mem bench query`: what a question costs through the service, beside the same work without it."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from app.bench.data import Size, copy_projects, ingest, project_nodes
from app.bench.figures import over_rounds, percentile
from app.bench.machine import Watch
from app.bench.processes import Meter
from app.bench.rounds import CLIENTS, Block, Load, Question, compare, under_load
from app.bench.scratch import Announce, scratch_stack, second_stack
from app.bench.sides import Direct, Product
from app.bench.texts import Writer
from app.local.stack import StackInfo
from config.settings import Settings

FEW, MANY = 10, 50  # projects of a federated question
RERANKED = 100
WARM_UP = 4  # questions before anything is measured
COPIES_TOLD = 10
# Phases end early rather than late: with what the stacks take to start and stop, ten minutes.
RERANKED_UNTIL_S, PLAIN_UNTIL_S = 330.0, 510.0
RERANKED_SUFFIX = "_rerank"
SHORT_NAMES = {
    "fed10_rerank_p95_ms": "fed10_p95_ms_rerank",
    "fed50_rerank_p95_ms": "fed50_p95_ms_rerank",
    "fed10_rerank_p95_8_clients_ms": "fed10_p95_8_clients_ms_rerank",
}


@dataclass(frozen=True)
class Options:
    """How much is measured. sources: projects that go through the product's own ingest."""

    seed: int = 1
    projects: int = 50
    nodes: int = 850
    rounds: int = 3
    sources: int = 3
    single: int = 60
    few: int = 30
    many: int = 10
    load_s: float = 4.0

    @classmethod
    def quick(cls, seed: int) -> "Options":
        """Just enough for every figure to have a value; none of them means anything."""
        return cls(seed, 12, 40, 1, sources=1, single=4, few=2, many=2, load_s=0.3)


@dataclass
class Gathered:
    """Everything measured so far."""

    rounds: list[dict[str, float]] = field(default_factory=list)
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    peak_rss_mb: float = 0.0

    def add(self, figures: dict[str, float], suffix: str) -> None:
        self.rounds.append({name + suffix: value for name, value in figures.items()})

    def keep(self, name: str, number: int, product: list[float], direct: list[float]) -> None:
        for side, values in (("product", product), ("floor", direct)):
            rows = ({"of": name, "round": number, "side": side, "ms": ms} for ms in values)
            self.samples.extend(rows)


@dataclass(frozen=True)
class Bench:
    """The parts of one phase: a service, the direct calls, and where questions come from."""

    options: Options
    product: Product
    direct: Direct
    meter: Meter
    projects: list[str]
    writer: Writer
    suffix: str

    def questions(self, projects: int) -> Iterator[Question]:
        """New questions without end, each to another choice of projects."""
        while True:
            yield self.writer.question(), self.writer.choose(self.projects, projects)

    def some(self, count: int, projects: int) -> list[Question]:
        return list(itertools.islice(self.questions(projects), count))


def run(
    settings: Settings, options: Options, announce: Announce
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure, on a stack that is gone afterwards; the figures, and the raw samples.

    Raises:
        StackError: the service cannot run here.
        BenchError: it runs, but does not answer as it should.
    """
    watch, gathered = Watch(), Gathered()
    if not settings.rerank_depth:
        settings = settings.model_copy(update={"rerank_depth": RERANKED})
    names = [f"bench-{number:02}" for number in range(options.projects)]
    with scratch_stack(settings, announce) as stack:
        gathered.add(fill(stack, options, names, announce), "")
        _measure(stack, stack, settings, options, names, watch, gathered)
        announce("Starting a second service that does not rerank")
        plain = settings.model_copy(update={"rerank_depth": 0})
        with second_stack(stack, plain, _keep_quiet) as second:
            _measure(stack, second, plain, options, names, watch, gathered)
        described = watch.describe()
    figures = over_rounds(gathered.rounds)
    figures |= {short: figures[full] for short, full in SHORT_NAMES.items()}
    figures["peak_rss_mb"] = round(gathered.peak_rss_mb, 1)
    sizes = {"projects": options.projects, "nodes": Size.of(options.nodes).nodes}
    report = {"bench": "query", **described, "seed": options.seed, "rounds": options.rounds}
    return report | sizes | figures | {"stages_ms": gathered.stages}, gathered.samples


def fill(
    stack: StackInfo, options: Options, names: Sequence[str], announce: Announce
) -> dict[str, float]:
    """Make the projects; what storing those cost that went through the service."""
    client, meter = Product(stack).client, meter_of(stack, stack)
    sources, size = names[: options.sources], Size.of(options.nodes)
    before, seconds = meter.read(), 0.0
    for number, name in enumerate(sources, start=1):
        announce(f"Storing project {number} of {len(sources)}: {size.nodes} nodes")
        nodes = project_nodes(Writer(f"{options.seed}:{name}"), size)
        seconds += ingest(client, name, nodes)
    used = meter.read().since(before)
    stored = size.nodes * len(sources)
    copies = names[options.sources :]

    def told(done: int) -> None:
        if done % COPIES_TOLD == 0 or done == len(copies):
            announce(f"Copied {done} of {len(copies)} projects")

    copy_projects(
        stack.database_url, list(zip(itertools.cycle(sources), copies, strict=False)), told
    )
    return {
        "ingest_nodes_per_s": stored / seconds,
        "ingest_cpu_ms_per_node": used.service_s * 1000 / stored,
    }


def meter_of(servers: StackInfo, service: StackInfo, direct: frozenset[int] = frozenset()) -> Meter:
    """Of a service's own processes and of the servers that it works with."""
    pids = (*service.pids.web, *service.pids.workers, servers.pids.postgres, servers.pids.valkey)
    return Meter(pids, direct)


def _measure(
    servers: StackInfo,
    service: StackInfo,
    settings: Settings,
    options: Options,
    names: list[str],
    watch: Watch,
    gathered: Gathered,
) -> None:
    rerank_depth = settings.rerank_depth
    with closing(Direct(servers.database_url, settings)) as direct:
        suffix = RERANKED_SUFFIX if rerank_depth else ""
        writer = Writer(f"{options.seed}:questions{suffix}")
        bench = Bench(
            options, Product(service), direct, meter_of(servers, service), names, writer, suffix
        )
        _warm_up(bench)
        # The sessions are known only now, when there are as many as there will be.
        meter = meter_of(servers, service, direct.sessions())
        bench = Bench(options, bench.product, direct, meter, names, writer, suffix)
        until = RERANKED_UNTIL_S if rerank_depth else PLAIN_UNTIL_S
        for number in range(1, options.rounds + 1):
            if number > 1 and watch.elapsed_s() > until:
                break
            _round(bench, number, gathered)
            if servers is service:
                gathered.peak_rss_mb = max(gathered.peak_rss_mb, meter.memory_mb())


def _warm_up(bench: Bench) -> None:
    for projects in (1, FEW):
        for question in bench.some(WARM_UP, projects):
            bench.product.ask(*question)
            bench.direct.ask(*question)
    under_load([bench.product.another() for _ in range(CLIENTS)], bench.questions(1), 0.2)
    under_load([bench.direct] * CLIENTS, bench.questions(1), 0.2)


def _round(bench: Bench, number: int, gathered: Gathered) -> None:
    options = bench.options
    for name, count, projects in _comparisons(options, bench.suffix):
        questions = bench.some(count, projects)
        block = compare(name, questions, bench.product, bench.direct, bench.meter)
        gathered.add(block.figures(), bench.suffix)
        gathered.stages[name + bench.suffix] = _rounded(block)
        gathered.keep(name + bench.suffix, number, block.product.ms, block.direct.ms)
    gathered.add(_loads(bench, number, gathered), bench.suffix)
    if bench.suffix:
        ms = [
            bench.direct.rerank_ms(question, projects[0], RERANKED)
            for question, projects in bench.some(options.few, 1)
        ]
        gathered.add({"rerank100_ms": percentile(ms, 50)}, "")
        gathered.keep("rerank100", number, [], ms)


def _comparisons(options: Options, suffix: str) -> list[tuple[str, int, int]]:
    """Name, questions and projects of each."""
    wanted = [("single", options.single, 1), ("fed10", options.few, FEW)]
    return [*wanted, ("fed50", options.many, MANY)] if suffix else wanted


def _rounded(block: Block) -> dict[str, float]:
    return {name: round(value, 2) for name, value in block.stages().items()}


def _loads(bench: Bench, number: int, gathered: Gathered) -> dict[str, float]:
    clients = [bench.product.another() for _ in range(CLIENTS)]
    seconds = bench.options.load_s
    single = under_load(clients, bench.questions(1), seconds)
    floor = under_load([bench.direct] * CLIENTS, bench.questions(1), seconds)
    few = under_load(clients, bench.questions(FEW), seconds)
    gathered.keep(f"single_8_clients{bench.suffix}", number, single.ms, floor.ms)
    gathered.keep(f"fed10_8_clients{bench.suffix}", number, few.ms, [])
    return _load_figures(single, floor, few)


def _load_figures(single: Load, floor: Load, few: Load) -> dict[str, float]:
    return {
        "qps_8_clients": single.per_second,
        "floor_qps_8": floor.per_second,
        "fed10_qps_8_clients": few.per_second,
        "single_p95_8_clients_ms": percentile(single.ms, 95),
        "fed10_p95_8_clients_ms": percentile(few.ms, 95),
    }


def _keep_quiet(_text: str) -> None:
    pass
