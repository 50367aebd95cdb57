"""`mem verify`: whether everything stored can still be traced to its evidence."""

from dataclasses import asdict

import click

from app.cli.database import open_database
from app.cli.failures import EXIT_CHECK_FAILED, CommandFailed, plain
from app.cli.progress import progress
from app.cli.render import counted, ref
from app.cli.shell import echo_json, format_option, note, store_failures


@click.command(
    epilog="""\b
Examples:
  mem verify
  mem verify -p ops
  mem verify --format json | jq .hashes_wrong

\b
It looks at every node: whether its name is still the hash of what it says, whether each of its
edges leads to a stored node of a lower level, whether a chunk is what its document says at the
place that it cites. Nothing is changed, and questions and ingest go on meanwhile. A stale note,
one whose evidence was changed or forgotten since, is counted and is no fault.
It needs the database: POIMEN_DATABASE_URL, or a running `mem up`.
In a pipe: tab-separated node, problem, source, message.
Exit codes: 0 all is sound; 1 it could not be looked at; 5 something is not."""
)
@click.option("-p", "--project", help="Only this one.")
@click.option(
    "--findings",
    "most",
    type=click.IntRange(0, 100_000),
    default=100,
    show_default=True,
    help="Of what is wrong, show so many; all of it is counted.",
)
@format_option
def verify(project: str | None, most: int, output: str) -> None:
    """Check the hash of every node, every edge and every citation."""
    from app.wiring import known_projects, verify_memory

    with store_failures():
        database = open_database()
        if project is not None and project not in known_projects(database):
            raise CommandFailed(
                f"there is no project {plain(project)}.",
                "`mem projects` lists them.",
                code="project_not_found",
            )
        with progress("verifying") as told:
            found = verify_memory(database, project, most, told)
    if output == "json":
        echo_json(asdict(found))
    else:
        for each in found.findings:
            name = ref(each.project, each.sha256)
            columns = (name, each.problem, each.source or "-", each.message)
            click.echo("\t".join(plain(column) for column in columns))
        note(
            f"{counted(found.nodes, 'node')}: {found.hashes_wrong:,} with a wrong hash,"
            f" {found.stale:,} stale. {counted(found.edges, 'edge')}: {found.broken:,} broken."
            f" {counted(found.citations_checked, 'citation')}: {found.citations_wrong:,} wrong."
        )
    if not found.is_sound:
        click.get_current_context().exit(EXIT_CHECK_FAILED)
