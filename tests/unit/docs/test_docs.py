"""The documents say what the code does: settings, error codes, dependencies, links, commands."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from app.cli import main
from app.local import commands
from app.openapi import OPERATIONS
from app.problems import STATUS
from app.schemas import IngestFile, IngestStatus
from config.settings import Settings
from workers import errors

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")])

_SETTING = re.compile(r"^\| `(POIMEN_\w+)` \| (\S+) \|", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(#[^)]*)?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|[\s`$/(])mem((?: [a-z]+)+)", re.MULTILINE)
_ROUTE = re.compile(r"^## `(GET|POST|PUT|PATCH|DELETE) (/\S*)`$", re.MULTILINE)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_of(text: str) -> str:
    return "\n".join(_CODE.findall(text))


def shown_default(value: Any) -> str:
    return "unset" if value is None else f"`{value}`"


def errors_of_ours() -> list[type[errors.PoimenError]]:
    return errors.PoimenError.__subclasses__()


def test_every_setting_is_in_the_table_with_its_default_and_nothing_else_is() -> None:
    told = dict(_SETTING.findall(page("docs/settings.md")))
    known = {
        f"POIMEN_{name.upper()}": shown_default(field.default)
        for name, field in Settings.model_fields.items()
        if field.default_factory is None
    }
    known["POIMEN_DATA_DIR"] = "`~/.local/share/poimen-memory`"

    assert told == known


@pytest.mark.parametrize("error", errors_of_ours(), ids=lambda error: error.code)
def test_every_error_is_in_the_table_with_its_status(error: type[errors.PoimenError]) -> None:
    row = f"| `{error.code}` | {STATUS[error].value} |"

    assert row in page("docs/query_lifecycle.md")


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads(page("pyproject.toml"))
    declared = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    names = [re.split(r"[\[<>=!~ ]", requirement)[0] for requirement in declared]
    told = re.findall(r"^\| `([^`]+)` \|", page("docs/dependencies.md"), re.MULTILINE)

    assert sorted(told) == sorted(names)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target, anchor in _LINK.findall(path.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), target
        if anchor:
            headings = _HEADING.findall(found.read_text(encoding="utf-8"))
            assert anchor[1:] in {slug(heading) for heading in headings}, target + anchor


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_that_is_shown_exists(path: Path) -> None:
    context = click.Context(main)
    for words in _COMMAND.findall(code_of(path.read_text(encoding="utf-8"))):
        first, *rest = words.split()
        command = main.get_command(context, first)
        assert command is not None, f"mem {first}"
        if isinstance(command, click.Group) and rest:
            assert rest[0] in command.commands, f"mem {first} {rest[0]}"


def documented_commands(place: str) -> list[list[str]]:
    """The command lines of web server and workers that a place tells, as words."""
    if place == "docs/running.md":
        lines = page(place).replace("\\\n", " ").splitlines()
        found = [shlex.split(line) for line in lines if line.startswith(("gunicorn ", "celery "))]
    else:
        lists = re.findall(r"(?:CMD|command:) (\[.*?\])", page(place), re.DOTALL)
        found = [json.loads(words) for words in lists]
    return [words for words in found if words[0] in ("gunicorn", "celery")]


def flags_of(words: list[str]) -> dict[str, str | None]:
    """Each flag with its value, but for values that are the place's own."""
    own = {"--bind", "--hostname", "--threads", "--concurrency"}
    flags: dict[str, str | None] = {}
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            flags[word] = None if word in own or following.startswith("--") else following
    flags.pop("--loglevel", None)  # the processes read POIMEN_LOG_LEVEL by themselves
    return flags


@pytest.mark.parametrize("places", [["docs/running.md"], ["Dockerfile", "docker-compose.yml"]])
def test_command_lines_have_the_same_flags_as_those_that_mem_up_starts(places: list[str]) -> None:
    settings = Settings()
    told = [flags_of(words) for place in places for words in documented_commands(place)]
    ours = [commands.web_command(settings, 3), *commands.worker_commands(settings).values()]

    assert sorted(told, key=str) == sorted((flags_of(words) for words in ours), key=str)


def test_the_http_page_shows_every_route_and_no_other() -> None:
    told = {(method.lower(), path) for method, path in _ROUTE.findall(page("docs/http.md"))}

    assert told == {(operation.method, operation.path) for operation in OPERATIONS}


def test_the_changelog_names_this_version() -> None:
    version = tomllib.loads(page("pyproject.toml"))["project"]["version"]

    assert f"## [{version}]" in page("CHANGELOG.md")


def test_the_example_of_a_submission_shows_every_field_of_a_job_and_of_a_file() -> None:
    section = page("docs/http.md").partition("## `GET /memory/ingest/{job_id}`")[2]
    example = json.loads(section[section.index("\n{") : section.index("```\n\nThe statuses")])

    assert list(example) == list(IngestStatus.model_fields)
    assert list(example["files"][0]) == list(IngestFile.model_fields)
