"""`mem doctor`: what is configured, what is reachable, and how to mend what is not."""

import difflib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from app.cli.failures import EXIT_CHECK_FAILED, plain
from app.cli.shell import color_option, echo_json, format_option, load_settings, use_color

if TYPE_CHECKING:
    from app.client import Client, Service
    from app.local.state import State
    from config.settings import Settings

OK, FAIL, WARN, SKIP = "ok", "FAIL", "warn", "skip"
COLORS = {OK: "green", FAIL: "red", WARN: "yellow", SKIP: "bright_black"}
OTHERS = ("POIMEN_DB_PASSWORD",)  # read by the compose file, not by us
STARTED_HERE = "start everything here with `mem up`"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. What was not looked at is `skip`, never `ok`."""

    name: str
    state: str
    said: str
    mend: str | None = None


@click.command(
    epilog="""\b
Examples:
  mem doctor
  mem doctor --format json
  POIMEN_URL=https://memory.example.org mem doctor

\b
Exit codes: 0 no check failed; 5 at least one did, each with a line that says how to mend it."""
)
@click.option("--all", "shows_all", is_flag=True, help="Show the settings left at default, too.")
@format_option
@color_option
@click.pass_context
def doctor(context: click.Context, /, shows_all: bool, output: str, color: str) -> None:
    """Show the settings that are set and check everything the service needs."""
    from app.client import find_service
    from app.local.state import read_state

    settings = load_settings()
    service, here = find_service(settings), read_state(settings.data_dir)
    found_in = service.found_in if service else None
    checks = [
        *_check_names(settings),
        *_check_service(service, settings),
        _check_database(settings, here),
        _check_redis(settings, here),
        *_check_opensearch(settings),
        *_check_models(settings),
    ]
    if output == "json":
        where = {"url": service.url if service else None, "found_in": found_in}
        shown = dict(_shown_settings(settings, shows_all=True))
        echo_json({"settings": shown, "service": where, "checks": [asdict(c) for c in checks]})
    else:
        for name, value in _shown_settings(settings, shows_all):
            click.echo(f"{name}={value}")
        click.echo(f"\nservice found in: {found_in or 'nowhere'}\n")
        _show(checks, use_color(color))
    if any(check.state == FAIL for check in checks):
        context.exit(EXIT_CHECK_FAILED)


def _shown_settings(settings: "Settings", shows_all: bool) -> Iterator[tuple[str, str]]:
    """Settings by the names of their variables; of secrets only whether they are set."""
    from pydantic import SecretStr

    from app.client import without_password

    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if value == field.get_default(call_default_factory=True) and not shows_all:
            continue
        if isinstance(value, SecretStr) or "SecretStr" in str(field.annotation):
            shown = "(unset)" if value is None else "(set)"
        else:
            shown = "(unset)" if value is None else plain(without_password(str(value)))
        yield f"POIMEN_{name.upper()}", shown


def _check_names(settings: "Settings") -> Iterator[Check]:
    """Variables that are no setting, which a slip of the finger makes."""
    known = [f"POIMEN_{name.upper()}" for name in type(settings).model_fields]
    for name in sorted(os.environ):
        if name.startswith("POIMEN_") and name not in (*known, *OTHERS):
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            said = f"{name} is no setting and does nothing"
            yield Check("settings", WARN, said, f"did you mean {nearest}?")


def _check_service(service: "Service | None", settings: "Settings") -> Iterator[Check]:
    from app.client import Client, ClientError, Unreachable, is_private, without_password
    from app.local.state import is_out_of_reach

    if service is None and is_out_of_reach(settings.data_dir):
        said = f"the one in {settings.data_dir} is another account's"
        yield Check("service", FAIL, said, "set POIMEN_URL and POIMEN_API_KEY to use it")
        return
    if service is None:
        yield Check("service", FAIL, "none is running here", f"{STARTED_HERE}, or set POIMEN_URL")
        return
    client = Client(service.url, service.api_key)
    address = without_password(service.url)
    try:
        readiness = client.ready()
    except Unreachable as error:
        said = f"{address} {error.reason}"
        yield Check("service", FAIL, said, f"{STARTED_HERE}, or correct POIMEN_URL")
        return
    except ClientError as error:
        yield Check("service", FAIL, f"{address}: {error}", "correct POIMEN_URL")
        return
    yield Check("service", OK, f"answers at {address}")
    yield _check_key(client, service)
    if service.api_key and not is_private(service.url):
        mend = "use https in POIMEN_URL"
        yield Check("transport", WARN, "the key travels unencrypted", mend)
    yield from _dependencies(readiness)


def _check_key(client: "Client", service: "Service") -> Check:
    from app.client import ClientError, Unreachable

    try:
        reachable = len(client.list_projects())
    except (ClientError, Unreachable) as error:
        unset = "" if service.api_key else " (no key is set)"
        return Check("api key", FAIL, f"{error}{unset}", "put a valid key into POIMEN_API_KEY")
    said = f"valid; {reachable} project{'' if reachable == 1 else 's'} may be asked"
    return Check("api key", OK, said)


def _dependencies(readiness: dict[str, Any]) -> Iterator[Check]:
    """What the service says of its own dependencies."""
    for name, found in readiness["dependencies"].items():
        state = {"ok": OK, "degraded": WARN}.get(found["state"], FAIL)
        mends = "the service mends itself once this answers; its log says more"
        yield Check(f"service {name}", state, found["detail"], None if state == OK else mends)


def _check_database(settings: "Settings", here: "State | None") -> Check:
    from app.wiring import check_database

    secret = settings.database_url
    url = secret.get_secret_value() if secret else here.database_url if here else None
    return _check_server("database", url, check_database, "POIMEN_DATABASE_URL")


def _check_redis(settings: "Settings", here: "State | None") -> Check:
    from app.wiring import check_redis

    secret = settings.redis_url
    url = secret.get_secret_value() if secret else here.redis_url if here else None
    return _check_server("redis", url, check_redis, "POIMEN_REDIS_URL")


def _check_server(name: str, url: str | None, look: Callable[[str], str], variable: str) -> Check:
    """A server that is known from here; a service elsewhere keeps its own to itself."""
    from workers.errors import PoimenError

    if not url:
        return Check(name, SKIP, f"{variable} is unset and no `mem up` runs here")
    try:
        return Check(name, OK, look(url))
    except PoimenError as error:
        mend = f"start it, or unset {variable} to use the embedded one"
        return Check(name, FAIL, str(error) or error.title, mend)


def _check_opensearch(settings: "Settings") -> Iterator[Check]:
    """Where it searches by words."""
    from app.wiring import find_opensearch
    from workers.errors import PoimenError

    try:
        version = find_opensearch(settings)
    except PoimenError as error:
        mend = "start it, correct POIMEN_OPENSEARCH_URL, or unset POIMEN_LEXICAL_ENGINE"
        yield Check("opensearch", FAIL, str(error), mend)
        return
    if version is not None:
        yield Check("opensearch", OK, version)


def _check_models(settings: "Settings") -> Iterator[Check]:
    from app.client import without_password
    from app.wiring import check_models
    from workers.errors import PoimenError

    if settings.embedding_url:
        yield Check("embedder", SKIP, f"served by {without_password(settings.embedding_url)}")
    try:
        models = check_models()
    except PoimenError as error:
        yield Check("models", FAIL, str(error), "install poimen-memory's dependencies again")
        return
    for name, sha256, path in models:
        yield Check(f"model {name}", OK, f"sha256 {sha256}  {path}")


def _show(checks: list[Check], color: bool) -> None:
    for check in checks:
        state = click.style(f"{check.state:<4}", fg=COLORS[check.state]) if color else check.state
        click.echo(f"{state:<4}  {check.name}: {plain(check.said)}", color=color)
        if check.mend:
            click.echo(f"      mend: {check.mend}")
    counts = Counter(check.state for check in checks)
    warnings = f"{counts[WARN]} warning{'' if counts[WARN] == 1 else 's'}"
    click.echo(f"{counts[FAIL]} failed, {warnings}, {counts[OK]} ok, {counts[SKIP]} skipped")
