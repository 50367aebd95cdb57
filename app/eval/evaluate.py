"""`mem eval`: run every stage, write the runs to disk, and only then read what was judged."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from app.bench.figures import percentile
from app.bench.scratch import Announce, scratch_stack
from app.eval.citations import is_resolved
from app.eval.dataset import Asked, Dataset, Judged, load_dataset, load_judged
from app.eval.errors import CannotAsk
from app.eval.failures import list_failures
from app.eval.intervals import intervals
from app.eval.memory import Parameters, Pipeline, store
from app.eval.metrics import FIGURES, means, measure
from app.eval.runs import Run, read_run, run_file, write_run
from app.eval.stages import ANSWER, STAGES, Stage, stages_of
from app.eval.sweep import Sweep, curve_of
from config.settings import Settings
from workers.model import Level

SWEEP_FOLDER = "sweep"


@dataclass(frozen=True)
class Options:
    """What is evaluated. types, levels: empty for all, and for the questions' own."""

    folder: Path
    types: Sequence[str] = ()
    levels: Sequence[Level] = ()
    runs: Path | None = None  # where the runs are kept
    sweep: Sweep | None = None
    seed: int = 1


@dataclass
class Noted:
    """What is seen while the stages run."""

    answer_ms: list[float] = field(default_factory=list)
    cited: int = 0
    resolved: int = 0


def run(settings: Settings, options: Options, announce: Announce) -> dict[str, Any]:
    """Evaluate, on a stack that is gone afterwards; the report.

    Raises:
        DatasetError: a file of the dataset is not as it should be.
        CannotAsk: the options do not fit it.
        EvalError: the service does not answer as it should.
        StackError: the service cannot run here.
    """
    began = time.monotonic()
    dataset = load_dataset(options.folder)
    questions = dataset.choose(options.types, options.levels)
    parameters, noted = Parameters.of(settings), Noted()
    # With a server that reranks, ingest would not prepare what the embedded reranker compares.
    embedded = settings.model_copy(update={"rerank_url": None})
    with _run_folder(options.runs) as folder:
        with scratch_stack(embedded, announce) as stack:
            store(stack, dataset, announce)
            with closing(Pipeline(stack.database_url, settings)) as pipeline:
                stages = stages_of(pipeline, parameters, dataset.projects)
                for name, stage in stages.items():
                    announce(f"Asking {len(questions)} questions: {name}")
                    _write(run_file(folder, name), name, stage, questions, dataset, noted)
                if options.sweep is not None:
                    _run_sweep(
                        folder, options.sweep, pipeline, parameters, questions, dataset, announce
                    )
        # From here on nothing is asked any more.
        judged = load_judged(dataset)
        evaluated = _evaluated(questions, judged, dataset)
        runs = {name: read_run(run_file(folder, name)) for name in STAGES if name in stages}
        report = {
            "dataset": dataset.name,
            "version": version("poimen-memory"),
            "queries": len(evaluated),
            "unjudged": len(questions) - len(evaluated),
            "projects": len(dataset.projects),
            "nodes": len(dataset.nodes),
            "levels": sorted({level.value for asked in evaluated for level in asked.levels}),
            "seed": options.seed,
            "by_stage": {
                name: figures_of(found, judged, evaluated, options.seed)
                for name, found in runs.items()
            },
            "citations_resolved": noted.resolved / noted.cited if noted.cited else 1.0,
            "p95_ms": round(percentile(noted.answer_ms, 95), 2),
            "failures": list_failures(evaluated, runs, judged, dataset),
            "notes": notes_on(evaluated, judged, dataset),
        }
        if options.sweep is not None:
            report["sweep"] = _read_sweep(
                folder, options.sweep, options.seed, parameters, evaluated, judged
            )
    return report | {"took_s": round(time.monotonic() - began, 1)}


@contextmanager
def _run_folder(kept: Path | None) -> Iterator[Path]:
    """Where the runs go; a folder of the user's keeps what else is in it."""
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="mem-eval-") as folder:
            yield Path(folder)
        return
    kept.mkdir(parents=True, exist_ok=True)
    for stage in STAGES:
        run_file(kept, stage).unlink(missing_ok=True)  # an interrupted run must not look complete
    yield kept


def _write(
    path: Path,
    name: str,
    stage: Stage,
    questions: Sequence[Asked],
    dataset: Dataset,
    noted: Noted | None = None,
) -> None:
    def rankings() -> Iterator[tuple[str, list[str]]]:
        for asked in questions:
            found = stage(asked)
            if noted is not None:
                noted.cited += len(found.hits)
                noted.resolved += sum(is_resolved(hit, dataset) for hit in found.hits)
                if name == ANSWER:
                    noted.answer_ms.append(found.took_ms)
            yield asked.id, [dataset.ids[key] for key in found.ranking]

    write_run(path, name, rankings())


def _evaluated(questions: Sequence[Asked], judged: Judged, dataset: Dataset) -> list[Asked]:
    """The questions that some node was judged to answer.

    Raises:
        CannotAsk: there is none, or all these nodes are on levels that were not asked for.
    """
    evaluated = [asked for asked in questions if any(judged.get(asked.id, {}).values())]
    if not evaluated:
        raise CannotAsk("For none of these questions a node was judged to answer it.")
    levels = _judged_levels(evaluated, judged, dataset)
    if all(levels[asked.id].isdisjoint(asked.levels) for asked in evaluated):
        wanted = ",".join(sorted(set().union(*levels.values())))
        raise CannotAsk(
            f"Every judged node is on a level that was not asked for: ask with --levels {wanted}."
        )
    return evaluated


def _judged_levels(
    evaluated: Sequence[Asked], judged: Judged, dataset: Dataset
) -> Mapping[str, AbstractSet[Level]]:
    return {
        asked.id: {dataset.nodes[node].level for node, score in judged[asked.id].items() if score}
        for asked in evaluated
    }


def figures_of(found: Run, judged: Judged, evaluated: Sequence[Asked], seed: int) -> dict[str, Any]:
    """A stage's figures over all questions, with their intervals, and over those of each type."""
    values = measure(found, judged, [asked.id for asked in evaluated])
    by_type: dict[str, list[int]] = {}
    for row, asked in enumerate(evaluated):
        by_type.setdefault(asked.type, []).append(row)
    return {
        **means(values),
        "intervals": dict(zip(FIGURES, map(list, intervals(values, seed)), strict=True)),
        "by_type": {
            kind: {"queries": len(rows), **means(values[rows])}
            for kind, rows in sorted(by_type.items())
        },
    }


def notes_on(evaluated: Sequence[Asked], judged: Judged, dataset: Dataset) -> list[str]:
    """What a reader must know to read the figures."""
    notes = []
    levels = _judged_levels(evaluated, judged, dataset)
    if missed := sum(levels[asked.id].isdisjoint(asked.levels) for asked in evaluated):
        notes.append(f"{missed} questions can be answered only on levels they did not ask for")
    if without := sum(Level.L0 not in levels[asked.id] for asked in evaluated):
        notes.append(f"notes_walk ends in L0, and {without} questions have no answer there")
    return notes


def _run_sweep(
    folder: Path,
    sweep: Sweep,
    pipeline: Pipeline,
    parameters: Parameters,
    questions: Sequence[Asked],
    dataset: Dataset,
    announce: Announce,
) -> None:
    (folder / SWEEP_FOLDER).mkdir(exist_ok=True)
    for value in sweep.with_default(getattr(parameters, sweep.parameter)):
        announce(f"Trying {sweep.parameter}={value:g}")
        stages = stages_of(
            pipeline, parameters.with_value(sweep.parameter, value), dataset.projects
        )
        for name in sweep.stages:
            _write(_sweep_file(folder, sweep, name, value), name, stages[name], questions, dataset)


def _read_sweep(
    folder: Path,
    sweep: Sweep,
    seed: int,
    parameters: Parameters,
    evaluated: Sequence[Asked],
    judged: Judged,
) -> dict[str, Any]:
    names = [asked.id for asked in evaluated]
    default = getattr(parameters, sweep.parameter)
    curves = {}
    for stage in sweep.stages:
        measured = {
            value: measure(read_run(_sweep_file(folder, sweep, stage, value)), judged, names)
            for value in sweep.with_default(default)
        }
        curves[stage] = curve_of(measured, sweep.values, default, seed)
    return {"parameter": sweep.parameter, "default": default, "by_stage": curves}


def _sweep_file(folder: Path, sweep: Sweep, stage: str, value: float) -> Path:
    return run_file(folder / SWEEP_FOLDER, f"{stage}.{sweep.parameter}={value:g}")
