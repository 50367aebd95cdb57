"""`mem bench`: measure what the service costs, on a scratch stack of its own."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from app.cli.failures import CommandFailed
from app.cli.shell import (
    echo_json,
    format_option,
    load_settings,
    note,
    stack_failures,
)

samples_option = click.option(
    "--samples",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write every raw sample to this file, as JSON lines.",
)
seed_option = click.option(
    "--seed", type=int, default=1, show_default=True, help="Of all texts, questions and choices."
)
projects_option = click.option("--projects", type=click.IntRange(1, 200), help="How many projects.")
nodes_option = click.option(
    "--nodes", type=click.IntRange(20, 10_000), help="Nodes of each project."
)
rounds_option = click.option(
    "--rounds", type=click.IntRange(1, 20), help="Every figure is the median of so many."
)
quick_option = click.option(
    "--quick", is_flag=True, help="Tiny sizes: shows that it works, and measures nothing."
)


@click.group(
    epilog="""\b
Examples:
  mem bench query
  mem bench query --format json --samples samples.jsonl > query.json
  mem bench ingest --nodes 1000
  mem bench jobs
  mem bench soak --seconds 60

\b
A run makes its own data from a seed, on a stack of its own in a temporary folder, which is gone
afterwards; no memory is touched. It takes a few minutes. Leave the machine alone meanwhile: a run
that was disturbed says `busy`."""
)
def bench() -> None:
    """Measure the service against the same work done by direct calls."""


@bench.command(
    epilog="""\b
Examples:
  mem bench query
  mem bench query --projects 20 --rounds 5
  mem bench query --quick --format json

\b
single, fed10, fed50: a question to one, ten and fifty projects. Direct calls: the same search in
one process, without queue, HTTP and cache, one project after the other. CPU: client, web server,
workers, database and Valkey together, for one question."""
)
@projects_option
@nodes_option
@rounds_option
@seed_option
@samples_option
@quick_option
@format_option
def query(output: str, samples: Path | None, quick: bool, seed: int, **sizes: int | None) -> None:
    """What a question costs."""
    from app.bench.query import Options, run

    options = Options.quick(seed) if quick else Options(seed)
    with _told_failures():
        report, raw = run(load_settings(), _resized(options, sizes), note)
    _show(report, raw, output, samples)


@bench.command(
    epilog="""\b
Examples:
  mem bench ingest
  mem bench ingest --turns 20000 --rounds 5
  mem bench ingest --quick --format json

\b
The model alone: the same texts through the embedding model in this process. Sessions are taken in
twice, the second time with the process that does it killed five times."""
)
@projects_option
@nodes_option
@click.option("--turns", type=click.IntRange(250, 1_000_000), help="Turns of sessions taken in.")
@rounds_option
@seed_option
@samples_option
@quick_option
@format_option
def ingest(output: str, samples: Path | None, quick: bool, seed: int, **sizes: int | None) -> None:
    """What storing costs, with vectors given and with vectors made on the way."""
    from app.bench.ingest import Options, run

    options = Options.quick(seed) if quick else Options(seed)
    with _told_failures():
        report, raw = run(load_settings(), _resized(options, sizes), note)
    _show(report, raw, output, samples)


@bench.command(
    epilog="""\b
Examples:
  mem bench recall
  mem bench recall --nodes 100000
  mem bench recall --quick --format json

\b
The vectors are mixtures of real ones and go into the database directly."""
)
@click.option("--nodes", type=click.IntRange(1000, 1_000_000), help="Nodes of the one project.")
@rounds_option
@seed_option
@samples_option
@quick_option
@format_option
def recall(output: str, samples: Path | None, quick: bool, seed: int, **sizes: int | None) -> None:
    """What a large project's index finds, and what it saves."""
    from app.bench.recall import Options, run

    options = Options.quick(seed) if quick else Options(seed)
    with _told_failures():
        report, raw = run(load_settings(), _resized(options, sizes), note)
    _show(report, raw, output, samples)


@bench.command(
    epilog="""\b
Examples:
  mem bench jobs
  mem bench jobs --jobs 2000 --projects 50
  mem bench jobs --quick --format json

\b
One job over all projects, jobs that are waited for, a burst of jobs beside questions to single
projects, and submissions while no worker lives."""
)
@click.option("--jobs", type=click.IntRange(1, 2000), help="How many the burst has.")
@projects_option
@click.option("--nodes", type=click.IntRange(20, 300), help="Nodes of each project.")
@rounds_option
@seed_option
@samples_option
@quick_option
@format_option
def jobs(output: str, samples: Path | None, quick: bool, seed: int, **sizes: int | None) -> None:
    """What submitted questions cost."""
    from app.bench.jobs import Options, run

    options = Options.quick(seed) if quick else Options(seed)
    with _told_failures():
        report, raw = run(load_settings(), _resized(options, sizes), note)
    _show(report, raw, output, samples)


@bench.command(
    epilog="""\b
Examples:
  mem bench soak --seconds 60
  mem bench soak --format json --samples requests.jsonl --logs logs > soak.json

\b
Every 30 s the worker of a queue is killed (query, jobs, merge, in turn), and Valkey once in the
middle; the stack starts them again. A request is late 0.5 s after its timeout, a job 5 s after its
deadline. It takes about half a minute more than --seconds. Read `! ` lines first."""
)
@click.option(
    "--seconds",
    type=click.IntRange(20, 86_400),
    default=900,
    show_default=True,
    help="How long the clients ask.",
)
@click.option("--clients", type=click.IntRange(1, 200), help="How many ask at the same time.")
@projects_option
@nodes_option
@seed_option
@samples_option
@click.option(
    "--logs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Copy the logs of the scratch stack into this folder.",
)
@format_option
def soak(
    output: str, samples: Path | None, seed: int, seconds: int, logs: Path | None, **sizes: int
) -> None:
    """Whether questions end in time while workers are killed."""
    from app.bench.soak import Options, run

    options = Options(seed, seconds, logs=logs)
    with _told_failures():
        report, raw = run(load_settings(), _resized(options, dict(sizes)), note)
    _show(report, raw, output, samples)


def _resized(options: Any, sizes: dict[str, int | None]) -> Any:
    from dataclasses import replace

    return replace(options, **{name: size for name, size in sizes.items() if size is not None})


@contextmanager
def _told_failures() -> Iterator[None]:
    from app.bench.errors import BenchError

    try:
        with stack_failures():
            yield
    except BenchError as error:
        raise CommandFailed(
            "the benchmark cannot go on.", str(error), code="bench_failed"
        ) from error


def _show(
    report: dict[str, Any], raw: list[dict[str, Any]], output: str, samples: Path | None
) -> None:
    """The table; as JSON, the document on stdout and the table beside it on stderr."""
    from app.bench.report import table

    if samples is not None:
        samples.write_text("".join(json.dumps(sample) + "\n" for sample in raw))
    for line in table(report):
        click.echo(line, err=output == "json")
    if output == "json":
        echo_json(report)
