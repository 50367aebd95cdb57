"""`mem demo`: the whole service on this machine, asked two questions about a file."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.failures import EXIT_USAGE, CommandFailed
from app.cli.node_files import NodeFile, read_nodes
from app.cli.render import Look, show_answer
from app.cli.shell import (
    color_option,
    load_settings,
    note,
    stack_failures,
    use_color,
)
from app.cli.summary import exit_code, show_line
from app.cli.taking import Nodes, Report, Taking, progress_display

if TYPE_CHECKING:
    from app.client import Client
    from config.settings import Settings

QUESTION = "why did requests over 10KB fail?"
# Shares no content word with the note it must find: only its meaning can.
PARAPHRASE = "what made big uploads get rejected at the gateway?"
EXPECTED = "infra-root-causes"
LEVELS = ("L1", "L2")
LIMIT = 3
TIMEOUT_S = 30  # the first question of a fresh machine may meet cold caches


@click.command(
    epilog="""\b
Examples:
  mem demo tests/fixtures/memory_nodes.jsonl
  mem demo memory.jsonl --color never
  POIMEN_DATA_DIR=/tmp/demo mem demo memory.jsonl

\b
Nothing is asked and nothing outside this machine is used; its state stays in the folder `demo` of
POIMEN_DATA_DIR. FILE holds nodes as JSON lines and must explain why requests over 10 KB failed.
Exit codes: 0 both answers are right; 1 they are not, or something failed."""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@color_option
def demo(file: Path, color: str) -> None:
    """Start the service, fill it from FILE, ask it two questions and check the answers."""
    began = time.monotonic()
    nodes = _read(file)
    with stack_failures():
        _run(_own_settings(load_settings()), nodes, Look.of(use_color(color)))
    click.echo(f"demo: ok, {time.monotonic() - began:.1f} s")


def _read(file: Path) -> NodeFile:
    """
    Raises:
        CommandFailed: the file cannot show what the demo shows; known before anything is started.
    """
    with file.open("rb") as stream:
        found = read_nodes(str(file), stream)
    homeless = [
        line for node, line in zip(found.nodes, found.lines, strict=True) if not node.get("project")
    ]
    if found.refused:
        said = f"line {found.refused[0]['line']}: {found.refused[0]['reason']}"
    elif homeless:
        said = f"line {homeless[0]}: the node names no project; here each one must"
    elif not any(node.get("standing_id") == EXPECTED for node in found.nodes):
        said = f"it holds no note with the standing_id {EXPECTED}, which is asked for"
    else:
        return found
    raise CommandFailed(
        f"{file} cannot be shown. {said[0].upper()}{said[1:]}.",
        "Use tests/fixtures/memory_nodes.jsonl; `mem ingest` stores any other file of yours.",
        code="demo_file_unusable",
        exits_with=EXIT_USAGE,
    )


def _own_settings(settings: "Settings") -> "Settings":
    """A memory of its own, on servers of its own: a demo must not touch anyone's data."""
    own = {
        "data_dir": settings.data_dir / "demo",
        "database_url": None,
        "redis_url": None,
        "port": 0,
    }
    return settings.model_copy(update=own)


def _run(settings: "Settings", nodes: NodeFile, look: Look) -> None:
    from app.client import Client
    from app.local.stack import running_stack

    with running_stack(settings, note) as stack:
        client = Client(stack.url, stack.key_file.read_text().strip())
        _fill(client, nodes)
        for question in (QUESTION, PARAPHRASE):
            _ask(client, question, look)


def _fill(client: "Client", nodes: NodeFile) -> None:
    reports: list[Report] = []
    with progress_display(1) as told:
        Taking(client, reports.append, told).run([Nodes(nodes, None)])
    for report in reports:
        show_line(report)
    if exit_code(reports):
        raise CommandFailed(
            f"{nodes.name} was not stored whole.",
            "Mend the lines named above and run it again.",
            code="ingest_incomplete",
        )


def _ask(client: "Client", question: str, look: Look) -> None:
    click.echo(f"\n$ mem query --all-projects --k {LIMIT} {question!r}\n")
    answer = client.query(question, levels=LEVELS, limit=LIMIT, timeout_seconds=TIMEOUT_S)
    show_answer(answer, look, question)
    wrong = shortcoming(answer)
    if wrong:
        raise CommandFailed(
            f"the answer to {question!r} is wrong: {wrong}.",
            f"The file must hold the note {EXPECTED} with its evidence; `mem doctor` checks the"
            " rest.",
            code="demo_failed",
        )


def shortcoming(answer: Mapping[str, Any]) -> str | None:
    """What is wrong with an answer, or None: the note first, traced to raw evidence."""
    hits = answer["results"]
    if not hits:
        return "no hit"
    if hits[0].get("standing_id") != EXPECTED:
        return f"the first hit is {hits[0].get('standing_id') or hits[0]['source']}"
    if not _reaches_evidence(hits[0]["parents"]):
        return "it names no raw evidence"
    return None


def _reaches_evidence(parents: Iterable[Mapping[str, Any]]) -> bool:
    return any(
        parent["level"] == "L0" or _reaches_evidence(parent["parents"]) for parent in parents
    )
