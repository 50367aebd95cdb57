"""What every command does with the service: find it, speak to it, tell its failures."""

import difflib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.failures import EXIT_SIGN_IN, EXIT_USAGE, CommandFailed, escaped

if TYPE_CHECKING:
    from app.client import Client, ClientError
    from config.settings import Settings

format_option = click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one document on stdout.",
)
color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="auto: on a terminal, unless NO_COLOR is set.",
)


def load_settings() -> "Settings":
    """The settings in force.

    Raises:
        CommandFailed: a POIMEN_ variable cannot be read.
    """
    from pydantic import ValidationError

    from config.settings import Settings
    from workers.wording import wrong

    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise CommandFailed(
            f"POIMEN_{name} {wrong(first)}.",
            "Correct or unset it, then ask again.",
            code="invalid_settings",
            exits_with=EXIT_USAGE,
        ) from error


@contextmanager
def connected(settings: "Settings | None" = None) -> Iterator["Client"]:
    """A client of the service that is found; its failures leave as CommandFailed."""
    from app.client import Client, find_service

    settings = settings or load_settings()
    service = find_service(settings)
    if service is None:
        raise _no_service(settings)
    with told_failures():
        yield Client(service.url, service.api_key)


def _no_service(settings: "Settings") -> CommandFailed:
    from app.local.state import is_out_of_reach

    if is_out_of_reach(settings.data_dir):
        return CommandFailed(
            f"the service in {settings.data_dir} is another account's.",
            "Name its address in POIMEN_URL and a key in POIMEN_API_KEY.",
            code="service_unreachable",
        )
    return CommandFailed(
        "no service is running here.",
        "Start one with `mem up`, or name one in POIMEN_URL.",
        code="service_unreachable",
    )


@contextmanager
def told_failures() -> Iterator[None]:
    """Turn the client's errors into failures that say what to do next."""
    from app.client import ClientError, Unreachable, without_password

    try:
        yield
    except Unreachable as error:
        raise CommandFailed(
            f"the service at {without_password(error.url)} {error.reason}.",
            "Start it with `mem up`, or correct POIMEN_URL; `mem doctor` checks the rest.",
            code="service_unreachable",
        ) from error
    except ClientError as error:
        raise as_failure(error) from error


def as_failure(error: "ClientError") -> CommandFailed:
    """A problem of the service, with the exit code of its kind."""
    title = str(error.problem.get("title") or f"HTTP {error.status}").rstrip(".")
    advice = str(error.problem.get("detail") or "Look at the service's log.")
    if error.problem.get("error") == "not_authenticated":  # its detail is about HTTP headers
        advice = (
            "POIMEN_API_KEY is unset, not known or revoked;"
            " `mem keys create --name NAME` makes a key, beside the service's database."
        )
    return CommandFailed(
        f"{_uncapitalised(title)}.",
        advice,
        code=str(error.problem.get("error") or "unexpected_answer"),
        exits_with=_exit_code(error),
        problem=error.problem,
    )


def _uncapitalised(title: str) -> str:
    """A title within a sentence; abbreviations stay as they are."""
    is_word = title[1:2].islower() or title[1:2] == " "
    return title[:1].lower() + title[1:] if is_word else title


def _exit_code(error: "ClientError") -> int:
    if error.status in (401, 403):
        return EXIT_SIGN_IN
    is_usage = error.status in (400, 422) or error.problem.get("error") == "project_not_found"
    return EXIT_USAGE if is_usage else 1


@contextmanager
def store_failures() -> Iterator[None]:
    """Turn the errors of commands that work on the database themselves into failures."""
    from workers.errors import PoimenError

    try:
        yield
    except PoimenError as error:
        raise CommandFailed(
            f"{_uncapitalised(error.title)}.",
            str(error) or "`mem doctor` says more.",
            code=error.code,
        ) from error


@contextmanager
def stack_failures() -> Iterator[None]:
    """Turn the errors of commands that run a service of their own into failures."""
    from app.local.errors import StackError

    try:
        with told_failures(), store_failures():
            yield
    except StackError as error:
        advice, _, log_tail = str(error).partition("\n")
        note(escaped(log_tail))
        raise CommandFailed("the service cannot run here.", advice, code="stack_failed") from error


@contextmanager
def known_projects(client: "Client", projects: Sequence[str]) -> Iterator[None]:
    """Name the nearest projects if one of those asked is not there."""
    from app.client import ClientError

    try:
        yield
    except ClientError as error:
        if error.problem.get("error") != "project_not_found" or not projects:
            raise
        known = [project["project"] for project in client.list_projects()]
        raise unknown_project(projects, known, error.problem) from error


def unknown_project(
    asked: Sequence[str], known: Sequence[str], problem: Mapping[str, Any]
) -> CommandFailed:
    """Which of the asked projects is not there, and the nearest that are."""
    missing = next((name for name in asked if name not in known), asked[0])
    near = difflib.get_close_matches(missing.lower(), known, n=2)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return CommandFailed(
        f"project {missing!r} is not known.",
        f"{meant}All of them: mem projects list",
        code="project_not_found",
        exits_with=EXIT_USAGE,
        problem=problem,
    )


def infer_project(projects: Sequence[Mapping[str, Any]], ways: str) -> str:
    """The project whose root folder is nearest above the current directory.

    `ways`: how else this command can be told its projects.

    Raises:
        CommandFailed: no root is above it, or two projects share the nearest one.
    """
    here = Path.cwd().resolve()
    depths: dict[str, int] = {}
    for project in projects:
        roots = [Path(os.path.realpath(root)) for root in project.get("roots") or ()]
        above = [len(root.parts) for root in roots if here.is_relative_to(root)]
        if above:
            depths[project["project"]] = max(above)
    nearest = sorted(name for name, depth in depths.items() if depth == max(depths.values()))
    if len(nearest) == 1:
        return nearest[0]
    raise _not_inferred(here, nearest, ways)


def _not_inferred(here: Path, candidates: Sequence[str], ways: str) -> CommandFailed:
    if candidates:
        said, advice = f"{' and '.join(candidates)} have the same root above {here}.", f"{ways}."
    else:
        said = f"no project is known for {here}."
        tie = f"mem projects add NAME --root {shlex.quote(str(here))}"
        advice = f"{ways}; or tie one to this folder: {tie}"
    return CommandFailed(
        said,
        advice,
        code="project_not_inferred",
        exits_with=EXIT_USAGE,
    )


def echo_json(document: Any) -> None:
    """One JSON document on stdout, in ASCII so that no locale breaks it."""
    click.echo(json.dumps(document))


def note(text: str = "") -> None:
    """A line for the person at the terminal; stdout carries results only."""
    click.echo(text, err=True)


def can_ask() -> bool:
    """Whether somebody is there to answer a question."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def use_color(color: str) -> bool:
    """Whether stdout gets colour."""
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()
