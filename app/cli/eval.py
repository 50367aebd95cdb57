"""`mem eval`: how well the service finds what was judged right."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.cli.failures import EXIT_USAGE, CommandFailed, escaped
from app.cli.shell import (
    echo_json,
    format_option,
    load_settings,
    note,
    stack_failures,
)

if TYPE_CHECKING:
    from workers.model import Level


@click.command(
    epilog="""\b
Examples:
  mem eval tests/fixtures/judged
  mem eval DATASET --types how-to,symptom --failures 10
  mem eval DATASET --format json --run runs > report.json
  mem eval DATASET --sweep rerank_depth=0:200:20

\b
DATASET is a folder with
  corpus.jsonl   nodes as for `mem ingest`, each with id and project
  queries.jsonl  {"id", "project", "text", "type"}, and "levels" if it asks for others
  qrels.tsv      query-id, corpus-id, score: which node answers which question
It is stored in a stack of its own in a temporary folder, which is gone afterwards; no memory is
touched. POIMEN_ settings apply, but the embedded models are used.

\b
Stages:
  bm25                     recall by words alone
  semantic                 recall by meaning alone
  hybrid                   both, fused
  hybrid_rerank            and reranked: what the service answers
  notes_walk               the turns that the best L1 notes were made from
  federated_hybrid_rerank  as the service answers if no project is named

\b
A question asks for the levels of the passages of its project: L0 where there are turns, L1 where
there are sections of documents. Figures lie in 0 to 1; what each means: docs/quality.md."""
)
@click.argument("dataset", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--types", metavar="A,B", default="", help="Only questions of these types.")
@click.option("--levels", metavar="L0,L1", default="", help="Ask for these levels instead.")
@click.option(
    "--run",
    "runs",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write each stage's run into this folder, in TREC's format; those there are replaced.",
)
@click.option(
    "--failures",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    help="Show so many questions without a right answer, and where it was lost. JSON has all.",
)
@click.option(
    "--sweep",
    metavar="NAME=FROM:TO:STEP",
    help="Try a setting of the pipeline with several values.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Of the questions drawn for intervals."
)
@format_option
def eval_command(
    dataset: Path,
    types: str,
    levels: str,
    runs: Path | None,
    failures: int,
    sweep: str | None,
    seed: int,
    output: str,
) -> None:
    """Measure how well the service finds what was judged right in DATASET."""
    from app.eval.evaluate import Options, run
    from app.eval.report import tables
    from app.eval.sweep import parse_sweep

    with _told_failures():
        options = Options(
            dataset,
            types=_names(types),
            levels=_levels(levels),
            runs=runs,
            sweep=parse_sweep(sweep) if sweep else None,
            seed=seed,
        )
        report = run(load_settings(), options, note)
    for line in tables(report, failures):
        click.echo(escaped(line), err=output == "json")
    if output == "json":
        echo_json(report)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _levels(text: str) -> list["Level"]:
    from workers.model import Level

    try:
        return sorted({Level(name.upper()) for name in _names(text)})
    except ValueError as error:
        raise click.BadParameter("levels are L0, L1 and L2.", param_hint="--levels") from error


@contextmanager
def _told_failures() -> Iterator[None]:
    from app.eval.errors import CannotAsk, DatasetError, EvalError

    try:
        with stack_failures():
            yield
    except DatasetError as error:
        raise CommandFailed(
            "the dataset cannot be used.", str(error), code="invalid_dataset", exits_with=EXIT_USAGE
        ) from error
    except CannotAsk as error:
        raise CommandFailed(
            "this cannot be evaluated.", str(error), code="usage", exits_with=EXIT_USAGE
        ) from error
    except EvalError as error:
        raise CommandFailed(
            "the evaluation cannot go on.", str(error), code="eval_failed"
        ) from error
