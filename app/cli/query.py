"""`mem query`: ask, and show the answer with where it came from."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from app.cli.failures import EXIT_PARTIAL, EXIT_USAGE, CommandFailed
from app.cli.render import LONGEST_TIMEOUT_S, Look, show_answer
from app.cli.shell import (
    color_option,
    connected,
    echo_json,
    format_option,
    infer_project,
    known_projects,
    note,
    use_color,
)

if TYPE_CHECKING:
    from app.client import Body, Client

LEVELS = ("L0", "L1", "L2")
TIMEOUT_S, JOB_TIMEOUT_S = 5, 60
LONGEST_JOB_TIMEOUT_S = 600


def read_levels(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """`l1, L2` -> ("L1", "L2")."""
    levels = tuple(part.strip().upper() for part in value.split(",") if part.strip())
    unknown = [level for level in levels if level not in LEVELS]
    if unknown or not levels:
        wrong = ", ".join(unknown) or "nothing"
        raise click.BadParameter(
            f"{wrong}: name L0, L1, L2 or several with commas between.", context, parameter
        )
    return levels


def read_filters(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> dict[str, str | list[str]]:
    """`kind=note`, `tags=a`, `tags=b` -> {"kind": "note", "tags": ["a", "b"]}.

    What there is to filter by, the service knows.
    """
    given: dict[str, list[str]] = {}
    for one in value:
        key, separator, said = one.partition("=")
        if not separator or not key:
            raise click.BadParameter(
                f"{one!r} is not KEY=VALUE, as in kind=note.", context, parameter
            )
        given.setdefault(key, []).append(said)
    return {key: said if len(said) > 1 else said[0] for key, said in given.items()}


@click.command(
    epilog="""\b
Examples:
  mem query "why did requests over 10KB fail?"
  mem query -p poimen --levels L0 --format json "body buffer"
  mem query -p poimen --context 2 "deploy window"
  mem query -A --filter 'source_pattern=runbooks/*' --filter tags=kong "body buffer"
  mem query -A --async --timeout 300 "how are registry tokens rotated?"

\b
The project is the one whose root folder (mem projects add) holds the current directory.
With --async, stdout is the id of a job; `mem jobs wait ID` shows its answer.
Exit codes: 0 answered, also with no hit, or accepted (--async); 2 unknown project or none
inferred; 3 partial answer."""
)
@click.argument("question", required=False)
@click.option("-p", "--project", "projects", multiple=True, help="Ask this one; repeatable.")
@click.option("-A", "--all-projects", is_flag=True, help="Ask every project you may read.")
@click.option(
    "--levels",
    "--level",
    default="L1,L2",
    show_default=True,
    callback=read_levels,
    help="L0 raw evidence, L1 notes, L2 syntheses.",
)
@click.option(
    "-k",
    "--k",
    "--limit",
    "limit",
    type=click.IntRange(1, 50),
    default=5,
    show_default=True,
    help="Hits at most.",
)
@click.option(
    "--method",
    type=click.Choice(["auto", "hybrid", "semantic", "lexical"]),
    default="auto",
    show_default=True,
    help="By meaning (semantic), by words (lexical) or both (hybrid); auto: words for a name or"
    " two, else both.",
)
@click.option(
    "--semantic-weight",
    type=click.FloatRange(0, 1),
    help="What the meaning counts in a hybrid search; the words have the rest.  [default: 0.6]",
)
@click.option(
    "--filter",
    "filters",
    metavar="KEY=VALUE",
    multiple=True,
    callback=read_filters,
    help="Only what passes; repeatable. Keys: level, source_pattern (with * and ?), updated_since,"
    " updated_before, occurred_since, occurred_before, tags, kind, standing_id. Repeated tags must"
    " all be there, of the others any.",
)
@click.option(
    "--facets/--no-facets",
    default=None,
    help="Count what the question is about, value by value.  [default: with --filter]",
)
@click.option(
    "--timeout",
    type=click.IntRange(1, LONGEST_JOB_TIMEOUT_S),
    show_default=f"{TIMEOUT_S}; with --async {JOB_TIMEOUT_S}",
    help=f"Seconds, {LONGEST_TIMEOUT_S} at most without --async; what is found by then is the"
    " answer.",
)
@click.option(
    "--explain", is_flag=True, help="Show what recall found and where reranking moved it."
)
@click.option(
    "--context",
    "context_chunks",
    type=click.IntRange(0, 10),
    metavar="N",
    help="Show each hit between the N chunks or turns before and after it, as a quotation.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 1_000_000),
    help="With --context: cut all texts to about so many tokens.",
)
@click.option(
    "--async", "as_job", is_flag=True, help="Print the id of a job and do not wait for the answer."
)
@format_option
@color_option
@click.pass_context
def query(
    context: click.Context,
    /,
    question: str | None,
    projects: tuple[str, ...],
    all_projects: bool,
    timeout: int | None,
    context_chunks: int | None,
    max_tokens: int | None,
    as_job: bool,
    output: str,
    color: str,
    **asked: Any,
) -> None:
    """Ask the memory QUESTION (`-`: read it from standard input)."""
    if question is None:
        raise click.exceptions.NoArgsIsHelpError(context)
    if projects and all_projects:
        raise click.UsageError("--project and --all-projects exclude each other.", context)
    if timeout and timeout > LONGEST_TIMEOUT_S and not as_job:
        raise click.UsageError(
            f"a --timeout of more than {LONGEST_TIMEOUT_S} s needs --async.", context
        )
    if max_tokens is not None and context_chunks is None:
        raise click.UsageError("--max-tokens needs --context.", context)
    if context_chunks is not None and as_job:
        raise click.UsageError("--context and --async exclude each other.", context)
    text = _question(question)
    with connected() as client:
        asked_projects = _resolve(client, projects, all_projects)
        if as_job:
            _submit(client, text, asked_projects, output, timeout or JOB_TIMEOUT_S, **asked)
            return
        if context_chunks is not None:
            asked |= {"context_chunks": context_chunks, "max_tokens": max_tokens}
        answer = ask(client, text, asked_projects, timeout=timeout or TIMEOUT_S, **asked)
    if output == "json":
        echo_json(answer)
    else:
        look = Look.of(use_color(color))
        show_answer(answer, look, text)
        if look.width is not None and answer["results"]:
            note(f"Was it of use?  mem feedback add {answer['query_id']} HIT --relevant")
    if answer["degraded"]:
        context.exit(EXIT_PARTIAL)


def ask(
    client: "Client",
    text: str,
    projects: tuple[str, ...],
    *,
    levels: tuple[str, ...],
    limit: int,
    method: str = "auto",
    semantic_weight: float | None = None,
    filters: Mapping[str, Any] | None = None,
    facets: bool | None = None,
    timeout: int = TIMEOUT_S,
    explain: bool = False,
    context_chunks: int | None = None,
    max_tokens: int | None = None,
) -> "Body":
    """Ask, and name the nearest projects if one of those asked is not there."""
    with known_projects(client, projects):
        return client.query(
            text,
            projects=projects,
            levels=levels,
            limit=limit,
            method=method,
            semantic_weight=semantic_weight,
            filters=filters,
            facets=facets,
            timeout_seconds=timeout,
            explain=explain,
            context_chunks=context_chunks,
            max_tokens=max_tokens,
        )


def _submit(
    client: "Client", text: str, projects: tuple[str, ...], output: str, timeout: int, **asked: Any
) -> None:
    with known_projects(client, projects):
        job = client.submit_job(text, projects=projects, timeout_seconds=timeout, **asked)
    if output == "json":
        echo_json(job)
        return
    click.echo(job["id"])
    note(f"Follow it:  mem jobs wait {job['id']}")


def _question(argument: str) -> str:
    """
    Raises:
        CommandFailed: there is none, or it is not text.
    """
    is_piped = argument == "-"
    if is_piped:
        given = sys.stdin.buffer.read() if sys.stdin else b""
    else:
        given = argument.encode("utf-8", "surrogateescape")  # bytes that were no text stay as given
    try:
        text = given.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"the question is not UTF-8 (byte 0x{given[error.start]:02x}).",
            "Ask it in UTF-8; iconv translates other encodings.",
            code="usage",
            exits_with=EXIT_USAGE,
        ) from error
    if not text:
        raise CommandFailed(
            "standard input held no question." if is_piped else "the question is empty.",
            'Pipe one in, or give it as an argument: mem query "..."',
            code="usage",
            exits_with=EXIT_USAGE,
        )
    return text


def _resolve(client: "Client", named: tuple[str, ...], all_projects: bool) -> tuple[str, ...]:
    """The projects to ask; empty means all of them, which only --all-projects asks for."""
    if named or all_projects:
        return tuple(dict.fromkeys(named))
    ways = "Name one with --project, or ask them all with --all-projects"
    return (infer_project(client.list_projects(), ways),)
