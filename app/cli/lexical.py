"""`mem lexical`: the words of stored nodes, which lexical search compares."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from app.cli.database import open_database
from app.cli.failures import CommandFailed, plain
from app.cli.progress import Told, interrupted, progress
from app.cli.shell import echo_json, format_option, load_settings, note, store_failures

if TYPE_CHECKING:
    from workers.lexicon import Progress


@click.group(
    epilog="""\b
Examples:
  mem lexical rebuild
  mem lexical rebuild --project ops
  mem lexical rebuild --all --format json

\b
These commands need the database: POIMEN_DATABASE_URL, or a running `mem up`."""
)
def lexical() -> None:
    """Look after the words that lexical search compares."""


@lexical.command(
    epilog="""\b
Examples:
  mem lexical rebuild
  mem lexical rebuild --project ops --all
  POIMEN_SEARCH_LANGUAGE=german mem lexical rebuild

\b
Start the workers with the same POIMEN_SEARCH_LANGUAGE first. Questions are answered meanwhile, but
words that have another stem now are found only in the nodes that are done.
With POIMEN_LEXICAL_ENGINE=opensearch a new index is then filled, and read once it is complete; with
--project the nodes of that project are written to the present one.
Stop it at any time: the same command goes on where it was, but for --all, which begins anew."""
)
@click.option("-p", "--project", help="Only this one.")
@click.option("--all", "is_all", is_flag=True, help="Also what is analysed in this way already.")
@format_option
def rebuild(project: str | None, is_all: bool, output: str) -> None:
    """Analyse stored nodes for the language of POIMEN_SEARCH_LANGUAGE, and index them anew."""
    from app.wiring import known_projects, renew_terms, renew_word_index

    settings, began_at = load_settings(), time.monotonic()
    with store_failures():
        database = open_database()
        if project is not None and project not in known_projects(database):
            raise CommandFailed(
                f"there is no project {plain(project)}.",
                "`mem projects` lists them.",
                code="project_not_found",
            )
        with interrupted(), progress("analysing") as told:
            count = renew_terms(database, settings, project, _telling(told), is_all=is_all)
        with interrupted(), progress("indexing") as told:
            indexed = renew_word_index(
                database,
                settings,
                project,
                _telling(told),
                troubled=lambda reason: note(f"{plain(reason)} Trying again."),
            )
    if output == "json":
        took_s = round(time.monotonic() - began_at, 3)
        done = {"language": settings.search_language, "nodes": count, "indexed": indexed}
        echo_json({**done, "took_s": took_s})
        return
    click.echo(f"{count:,} nodes analysed for {settings.search_language}")
    if indexed is not None:
        click.echo(f"{indexed:,} nodes written to OpenSearch")


def _telling(told: Told) -> Callable[["Progress"], None]:
    return lambda progress: told(progress.done, progress.total)
