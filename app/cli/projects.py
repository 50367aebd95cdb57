"""`mem projects`: which memories there are, and which folders they belong to."""

import os
from pathlib import Path
from typing import Any

import click

from app.cli.failures import EXIT_USAGE, CommandFailed, plain
from app.cli.shell import connected, echo_json, format_option, note


@click.group(
    epilog="""\b
Examples:
  mem projects list
  mem projects add poimen --root ~/src/poimen
  mem projects add agent-rust --root . --title "The Rust agent"
"""
)
def projects() -> None:
    """List projects, or add one."""


@projects.command(
    "list",
    epilog="""\b
Examples:
  mem projects list
  mem projects list --format json
  mem projects list | cut -f 1
""",
)
@format_option
def list_command(output: str) -> None:
    """Every project you may read: nodes per level, title and root folders."""
    with connected() as client:
        found = client.list_projects()
    if output == "json":
        echo_json({"projects": found})
        return
    for project in found:
        click.echo(_row(project))
    if not found:
        note("No project yet. Storing something makes one: mem ingest FILE --as nodes -p NAME")


def _row(project: dict[str, Any]) -> str:
    """Tab-separated, so that a pipe can cut it whatever a title holds."""
    counts = " ".join(f"{level}:{count}" for level, count in project["nodes"].items())
    columns = (project["project"], counts, project.get("title") or "-", *project["roots"])
    return "\t".join(plain(column) for column in columns)


@projects.command(
    "add",
    epilog="""\b
Examples:
  mem projects add poimen --root ~/src/poimen
  mem projects add poimen --root ~/src/poimen-docs --root ~/src/poimen-web
  mem projects add agent-rust --root . --title "The Rust agent"
  mem projects add agent-rust --semantic-weight 0.4
""",
)
@click.argument("project")
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of the project; `mem query` below it asks this project. Repeatable.",
)
@click.option("--title", help="A name for people.")
@click.option(
    "--semantic-weight",
    metavar="0..1",
    type=click.FloatRange(0, 1),
    help="What the meaning counts in its hybrid searches, and the words the rest.",
)
@format_option
def add_command(
    project: str,
    roots: tuple[Path, ...],
    title: str | None,
    semantic_weight: float | None,
    output: str,
) -> None:
    """Create PROJECT, or add what is new about it."""
    folders = [str(root.resolve()) for root in roots]
    with connected() as client:
        if folders:
            _refuse_taken(project, folders, client.list_projects())
        added = client.add_project(
            project, title=title, roots=folders, semantic_weight=semantic_weight
        )
    if output == "json":
        echo_json(added)
    else:
        click.echo(_row({"nodes": {}, "roots": [], **added}))


def _refuse_taken(project: str, folders: list[str], known: list[dict[str, Any]]) -> None:
    """A folder of two projects is no answer to which of them is meant below it.

    Raises:
        CommandFailed: another project has one of these folders.
    """
    for other in known:
        roots = {os.path.realpath(root) for root in other["roots"]}
        taken = [folder for folder in folders if folder in roots]
        if taken and other["project"] != project:
            raise CommandFailed(
                f"{taken[0]} belongs to project {other['project']}.",
                "Name a folder within it or another one; `mem query --project` needs no folder.",
                code="root_taken",
                exits_with=EXIT_USAGE,
            )
