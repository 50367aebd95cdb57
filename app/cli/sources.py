"""`mem sources`: which sessions and documents a project holds."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from app.cli.failures import plain
from app.cli.render import Look
from app.cli.shell import (
    connected,
    echo_json,
    format_option,
    infer_project,
    known_projects,
    note,
    use_color,
)

TITLE_ROOM = 12  # columns that a title needs beside the others


@click.command(
    epilog="""\b
Examples:
  mem sources -p poimen
  mem sources --format json
  mem sources -p poimen | cut -f 1

\b
The project is the one whose root folder (mem projects add) holds the current directory.
In a pipe: tab-separated source, format, number of nodes, time of the last change, title."""
)
@click.option("-p", "--project", help="Whose sources.")
@format_option
def sources(project: str | None, output: str) -> None:
    """List the sessions and documents of a project."""
    with connected() as client:
        if project is None:
            project = infer_project(client.list_projects(), "Name one with --project")
        with known_projects(client, [project]):
            found = list(client.list_sources(project))
    if output == "json":
        echo_json({"project": project, "sources": found})
        return
    for line in table(found, Look.of(use_color("never"))):
        click.echo(line)
    if not found:
        note(f"No session or document is in {plain(project)}: mem ingest PATH -p {plain(project)}")


def table(found: Sequence[Mapping[str, Any]], look: Look) -> Iterator[str]:
    """One line a source: all of it in a pipe, columns on a terminal."""
    if look.width is None:
        for source in found:
            columns = [source[name] for name in ("source", "format", "nodes", "updated_at")]
            yield "\t".join(plain(str(column)) for column in (*columns, source["title"] or "-"))
        return
    if not found:
        return
    rows = [("SOURCE", "FORMAT", "NODES", "CHANGED")]
    rows += [
        (
            plain(source["source"]),
            plain(source["format"]),
            f"{source['nodes']:,}",
            f"{datetime.fromisoformat(source['updated_at']).astimezone():%d %b %Y %H:%M}",
        )
        for source in found
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = look.width - sum(widths) - 2 * len(widths)
    titles = ["TITLE", *(plain(source["title"] or "-") for source in found)]
    for (name, form, nodes, changed), title in zip(rows, titles, strict=True):
        line = f"{name:<{widths[0]}}  {form:<{widths[1]}}  {nodes:>{widths[2]}}  "
        line += f"{changed:<{widths[3]}}"
        if room >= TITLE_ROOM:
            line += f"  {title if len(title) <= room else title[: room - 3] + '...'}"
        yield line.rstrip()
