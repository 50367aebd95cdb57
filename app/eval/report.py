"""An evaluation's figures as tables."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from app.eval.failures import LOST_AT
from app.eval.metrics import FIGURES, MAIN

Report = Mapping[str, Any]

STAGE_WIDTH, WIDTH = 25, 11
TEXT_WIDTH = 70
SHOWN = 3  # of the right nodes of a failure
MOST_TYPES = 6  # that fit beside each other


def tables(report: Report, failures: int) -> Iterator[str]:
    """The lines of a report, with so many of the failures."""
    yield from heading(report)
    yield from _by_stage(report["by_stage"])
    yield from _by_type(report["by_stage"])
    yield f"{'citations that lead to their evidence':<45}{report['citations_resolved']:>8.4f}"
    yield f"{'an answer by direct calls, p95, ms':<45}{report['p95_ms']:>8.1f}"
    yield from _failures(report, failures)
    if "sweep" in report:
        yield from _sweep(report["sweep"])


def heading(report: Report) -> Iterator[str]:
    yield (
        f"mem eval {report['dataset']}, version {report['version']}: {report['queries']} questions"
        f" for {', '.join(report['levels'])}, {report['projects']} projects with"
        f" {report['nodes']} nodes, seed {report['seed']}, {report['took_s']:.0f} s"
    )
    if report["unjudged"]:
        yield f"{report['unjudged']} more questions were asked and have no judged answer."
    for said in report["notes"]:
        yield f"! {said}"
    yield ""


def _by_stage(stages: Mapping[str, Report]) -> Iterator[str]:
    titles = "".join(f"{figure:>{WIDTH}}" for figure in FIGURES)
    yield f"{'stage':<{STAGE_WIDTH}}{titles}  {MAIN} within"
    for name, own in stages.items():
        values = "".join(f"{own[figure]:>{WIDTH}.3f}" for figure in FIGURES)
        yield f"{name:<{STAGE_WIDTH}}{values}  {_range(own['intervals'][MAIN])}"
    yield ""


def _range(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{low:.3f} to {high:.3f}"


def _by_type(stages: Mapping[str, Report]) -> Iterator[str]:
    """The main figure for each type of question."""
    types = list(next(iter(stages.values()))["by_type"])
    if len(types) < 2:
        return
    for first in range(0, len(types), MOST_TYPES):
        shown = types[first : first + MOST_TYPES]
        titles = "".join(f"{kind[: WIDTH + 1]:>{WIDTH + 2}}" for kind in shown)
        yield f"{MAIN + ' by type':<{STAGE_WIDTH}}{titles}"
        for name, own in stages.items():
            values = "".join(f"{own['by_type'][kind][MAIN]:>{WIDTH + 2}.3f}" for kind in shown)
            yield f"{name:<{STAGE_WIDTH}}{values}"
        yield ""


def _failures(report: Report, most: int) -> Iterator[str]:
    failures = report["failures"]
    yield ""
    yield f"{len(failures)} of {report['queries']} questions have no right node among the ten best"
    counts = Counter(failure["lost_at"] for failure in failures)
    for where, meaning in LOST_AT.items():
        if counts[where]:
            yield f"{counts[where]:>6} lost at {where}: {meaning}"
    for failure in failures[:most]:
        ranks = ", ".join(
            f"{stage} {rank if rank is not None else '-'}"
            for stage, rank in failure["ranks"].items()
        )
        yield ""
        yield f"{failure['query']} ({failure['type']}), lost at {failure['lost_at']}"
        yield f"  {_short(failure['text'])}"
        yield f"  right: {', '.join(failure['relevant'][:SHOWN])}"
        yield f"  ranks of the first: {ranks}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_WIDTH else line[: TEXT_WIDTH - 1] + "…"


def _sweep(sweep: Report) -> Iterator[str]:
    for stage, own in sweep["by_stage"].items():
        yield ""
        titles = "".join(f"{figure:>{WIDTH}}" for figure in FIGURES)
        yield f"{sweep['parameter'] + ', ' + stage:<{STAGE_WIDTH + 10}}{titles}"
        for row in own["curve"]:
            marks = [
                mark
                for mark, value in (("best", own["best"]), ("as it is", sweep["default"]))
                if value == row["value"]
            ]
            values = "".join(f"{row[figure]:>{WIDTH}.3f}" for figure in FIGURES)
            value = f"{row['value']:g} {', '.join(marks)}".rstrip()
            yield f"{value:<{STAGE_WIDTH + 10}}{values}"
        if own["best"] == sweep["default"]:
            yield f"{own['best']:g} is the best, and is as it is."
            continue
        beyond = "beyond its interval" if own["is_beyond_interval"] else "NOT beyond its interval"
        yield (
            f"{own['best']:g} instead of {sweep['default']:g} gains {own['gain']:+.3f} {MAIN},"
            f" {_range(own['interval'])}: {beyond}."
        )
