"""`mem forget`: take back a node, a source or a project, with what was made from it."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from app.cli.failures import EXIT_USAGE, CommandFailed, plain
from app.cli.render import counted
from app.cli.shell import can_ask, connected, echo_json, format_option, known_projects, note

if TYPE_CHECKING:
    from app.client import Client

SHA256_LENGTH = 64
SHORT_SHA256 = re.compile(f"[0-9a-f]{{8,{SHA256_LENGTH}}}")


def _read_node(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    sha256 = value.strip().lower().rpartition("/")[2]
    if not SHORT_SHA256.fullmatch(sha256):
        raise click.BadParameter(
            f"{value!r} is no id of a node: its sha256, or the first 8 or more hex digits of it,"
            " as mem query shows them with every hit.",
            context,
            parameter,
        )
    return sha256


@click.command(
    epilog="""\b
Examples:
  mem forget -p poimen --source runbooks/kong.md
  mem forget -p poimen --node 0081df94fd0c
  mem forget -p scratch --yes

\b
The notes that rested on it alone go with it; those that rest on something else too are kept and
marked as stale. Nothing brings it back but storing it again, which a job that is at it does: see
mem jobs list --ingest. Sources: mem sources -p PROJECT.
Exit codes: 0 forgotten; 1 there is no such source or node; 2 unknown project, several nodes begin
with SHA, or nobody to ask."""
)
@click.option("-p", "--project", required=True, help="Where; without the others, all of it.")
@click.option("--source", help="A session or document, by its name.")
@click.option(
    "--node",
    callback=_read_node,
    metavar="SHA",
    help="One node, by its sha256 or the first 8 or more hex digits of it.",
)
@click.option("--yes", is_flag=True, help="Do not ask before a whole project.")
@format_option
def forget(project: str, source: str | None, node: str | None, yes: bool, output: str) -> None:
    """Forget a node, a source or a whole project, with what rests on it alone."""
    if source is not None and node is not None:
        raise click.UsageError("--source and --node exclude each other.")
    with connected() as client, known_projects(client, [project]), _found(project):
        if node is not None:
            gone = client.forget_node(project, _whole(client, project, node))
        elif source is not None:
            gone = client.forget_source(project, source)
        else:
            if not yes:
                _ask(client, project)
            gone = client.forget_project(project)
    if output == "json":
        echo_json({"nodes": gone})
        return
    what = "" if source is not None or node is not None else ", the whole of it"
    click.echo(f"Forgot {counted(gone, 'node')} of {plain(project)}{what}.")


def _whole(client: "Client", project: str, sha256: str) -> str:
    """The sha256 of the one node that is meant.

    Raises:
        CommandFailed: none begins so, or more than one does.
    """
    if len(sha256) == SHA256_LENGTH:
        return sha256
    told = client.list_nodes(project, sha256)
    match told["nodes"]:
        case []:
            raise _no_such("node", project, "node_not_found", None)
        case [node]:
            return str(node["sha256"])
    for node in told["nodes"]:
        what = f"{plain(node['level'])} {plain(node['kind'])}  {plain(node['source'])}"
        note(f"  {node['sha256']}  {what}")
    if told["has_more"]:
        note("  and more")
    advice = "Give more digits of the one that is meant."
    problem = {
        "type": "/problems/node_ambiguous",
        "title": f"Several nodes begin with {sha256}.",
        "detail": advice,
        "error": "node_ambiguous",
        **told,
    }
    raise CommandFailed(
        f"several nodes of {plain(project)} begin with {sha256}; nothing was forgotten.",
        advice,
        code="node_ambiguous",
        exits_with=EXIT_USAGE,
        problem=problem,
    )


@contextmanager
def _found(project: str) -> Iterator[None]:
    """Say where the names are that could be meant."""
    from app.client import ClientError

    try:
        yield
    except ClientError as error:
        code = error.problem.get("error")
        if code not in ("source_not_found", "node_not_found"):
            raise
        what = "source" if code == "source_not_found" else "node"
        raise _no_such(what, project, code, error.problem) from error


def _no_such(
    what: str, project: str, code: str, problem: Mapping[str, Any] | None
) -> CommandFailed:
    return CommandFailed(
        f"there is no such {what} in {plain(project)}.",
        f"All sources:  mem sources -p {plain(project)}",
        code=code,
        problem=problem,
    )


def _ask(client: "Client", project: str) -> None:
    """
    Raises:
        CommandFailed: nobody is there to be asked, or the answer was another.
    """
    if not can_ask():
        raise CommandFailed(
            "nothing was forgotten: there is no terminal to ask at.",
            "Add --yes to forget the whole project.",
            code="usage",
            exits_with=EXIT_USAGE,
        )
    own = [each for each in client.list_projects() if each["project"] == project]
    nodes = sum(sum(each["nodes"].values()) for each in own)
    note(f"Project {plain(project)} with {counted(nodes, 'node')} will be gone for good.")
    if click.prompt("Its name, to go on", default="", show_default=False, err=True) != project:
        raise CommandFailed(
            "nothing was forgotten.",
            "Enter the name of the project as it is, or add --yes.",
            code="not_confirmed",
        )
