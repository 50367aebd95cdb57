"""`mem feedback`: say how good a hit is, and see which hits are doubtful."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.failures import EXIT_USAGE, CommandFailed, plain
from app.cli.forget import SHA256_LENGTH, SHORT_SHA256
from app.cli.render import counted, ref
from app.cli.shell import connected, echo_json, format_option, known_projects, note

if TYPE_CHECKING:
    from app.client import Client


@click.group(
    epilog="""\b
Examples:
  mem feedback add 9065b44033f44edc8f80e16300c847af ops/b75d413d7776 --relevant
  mem feedback add 9065b44033f44edc8f80e16300c847af ops/b75d413d7776 --rating 2 --text "outdated"
  mem feedback report
  mem feedback export judged
"""
)
def feedback() -> None:
    """Say how good a hit is; see what others said."""


@feedback.command(
    epilog="""\b
Examples:
  mem feedback add 9065b44033f44edc8f80e16300c847af ops/b75d413d7776 --irrelevant
  mem feedback add 9065b44033f44edc8f80e16300c847af ops/b75d413d7776 --rating 5
  mem feedback add 9065b44033f44edc8f80e16300c847af ops/b75d413d7776 --relevant --text "just so"

\b
QUERY is the query_id of an answer (mem query --format json; on a terminal it stands below the
answer), or the id of a job. RESULT is a hit's name as mem query shows it, or its sha256. Said
again, it takes the place of what you said before. A day after the question its rank and scores are
not known any more; then add --query with the question."""
)
@click.argument("query", metavar="QUERY")
@click.argument("result", metavar="RESULT")
@click.option("--relevant/--irrelevant", default=None, help="Whether it helped.")
@click.option("--rating", type=click.IntRange(1, 5), help="5 is the best.")
@click.option("--text", help="What is to be said beside that.")
@click.option("--query", "question", help="The question, where it is not known any more.")
@format_option
def add(
    query: str,
    result: str,
    relevant: bool | None,
    rating: int | None,
    text: str | None,
    question: str | None,
    output: str,
) -> None:
    """Say how good a hit is."""
    if relevant is None and rating is None:
        raise click.UsageError("say --relevant, --irrelevant or --rating N.")
    with connected() as client:
        said = client.give_feedback(
            query,
            _whole(client, result),
            relevant=relevant,
            rating=rating,
            feedback_text=text,
            query_text=question,
        )
    if output == "json":
        echo_json(said)
    else:
        click.echo(plain(said["message"]))


@feedback.command(
    epilog="""\b
Examples:
  mem feedback report
  mem feedback report -p ops --about unresolved
  mem feedback report --keys 1 --format json

\b
In a pipe: tab-separated hit, why it is doubtful, keys that called it irrelevant and relevant, mean
rating, source."""
)
@click.option("-p", "--project", help="Only of this one.")
@click.option(
    "--about",
    type=click.Choice(["irrelevant", "unresolved"]),
    help="Only hits that were called irrelevant, or only those that are not there any more.",
)
@click.option(
    "--keys",
    type=click.IntRange(1, 100),
    default=2,
    show_default=True,
    help="How many keys must call a hit irrelevant.",
)
@format_option
def report(project: str | None, about: str | None, keys: int, output: str) -> None:
    """List hits that several keys called irrelevant, and those that are not there any more."""
    with connected() as client, known_projects(client, [project] if project else []):
        found = list(client.list_doubtful(project=project, about=about, keys=keys))
    if output == "json":
        echo_json({"results": found})
        return
    for result in found:
        click.echo(_row(result))
    note(f"{counted(len(found), 'doubtful hit')}.")


@feedback.command(
    epilog="""\b
Examples:
  mem feedback export judged
  mem feedback export judged -p ops
  mem eval judged --sweep semantic_weight=0:1:0.1

\b
FOLDER gets the three files that mem eval reads, with every node of the projects that somebody
called a hit of relevant. A question whose hits were all called irrelevant is left out. Whoever may
write to every project exports what all keys said, others what they said themselves."""
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("-p", "--project", help="Only of this one.")
def export(folder: Path, project: str | None) -> None:
    """Write what was said as a judged dataset, to measure and tune with."""
    from app.eval.judgements import questions_of, write_dataset

    if folder.exists() and any(folder.iterdir()):
        raise CommandFailed(
            f"{plain(str(folder))} is not empty.",
            "Name a folder that is not there yet.",
            code="usage",
            exits_with=EXIT_USAGE,
        )
    with connected() as client, known_projects(client, [project] if project else []):
        questions = questions_of(client.list_judgements(project=project))
        if not questions:
            raise CommandFailed(
                "there is no question with a hit that was called relevant.",
                "Say how good hits are with mem feedback add, or POST /memory/query/feedback.",
                code="no_feedback",
            )
        nodes = write_dataset(folder, questions, client.export)
    note(
        f"Wrote {counted(len(questions), 'question')} and {counted(nodes, 'node')}"
        f" to {plain(str(folder))}."
    )


def _row(result: Mapping[str, Any]) -> str:
    why = [name for name in ("irrelevant", "unresolved") if result[f"is_{name}"]]
    rating = "-" if result["rating"] is None else f"{result['rating']:.1f}"
    columns = (
        ref(result["project"] or "-", result["result_id"]),
        ",".join(why),
        f"-{result['irrelevant_for']} +{result['relevant_for']}",
        rating,
        plain(result["source"] or "-"),
    )
    return "\t".join(columns)


def _whole(client: "Client", result: str) -> str:
    """The sha256 of the hit that is meant.

    Raises:
        CommandFailed: it is no name of one, or not the name of one alone.
    """
    project, _, sha256 = result.strip().lower().rpartition("/")
    if SHORT_SHA256.fullmatch(sha256) and len(sha256) == SHA256_LENGTH:
        return sha256
    if not project or not SHORT_SHA256.fullmatch(sha256):
        raise CommandFailed(
            f"{plain(result)} is no hit.",
            "Name it as mem query does, such as ops/b75d413d7776, or by its whole sha256.",
            code="usage",
            exits_with=EXIT_USAGE,
        )
    with known_projects(client, [project]):
        told = client.list_nodes(project, sha256)
    if len(told["nodes"]) != 1:
        many = "several hits are" if told["nodes"] else "no hit is"
        raise CommandFailed(
            f"{many} named {plain(result)}.",
            "Give its whole sha256, which mem query --format json shows.",
            code="node_ambiguous" if told["nodes"] else "node_not_found",
        )
    return str(told["nodes"][0]["sha256"])
