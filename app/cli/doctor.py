"""`mem doctor`: what is configured, what is reachable, and how to mend what is not."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import click

from app.cli.failures import EXIT_CHECK_FAILED, plain
from app.cli.shell import color_option, echo_json, format_option, load_settings, use_color

if TYPE_CHECKING:
    from app.client import Client, Service
    from app.local.state import State
    from config.settings import Settings

OK, FAIL, WARN, SKIP = "ok", "FAIL", "warn", "skip"
COLORS = {OK: "green", FAIL: "red", WARN: "yellow", SKIP: "bright_black"}
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
@format_option
@color_option
@click.pass_context
def doctor(context: click.Context, /, output: str, color: str) -> None:
    """Show the settings in force and check everything the service needs."""
    from app.client import find_service
    from app.local.state import read_state

    settings = load_settings()
    service, here = find_service(settings), read_state(settings.data_dir)
    found_in = service.found_in if service else None
    checks = [
        *_check_service(service),
        _check_database(settings, here),
        _check_redis(settings, here),
        *_check_models(settings),
    ]
    shown = dict(_shown_settings(settings))
    if output == "json":
        where = {"url": service.url if service else None, "found_in": found_in}
        echo_json({"settings": shown, "service": where, "checks": [asdict(c) for c in checks]})
    else:
        for name, value in shown.items():
            click.echo(f"{name}={value}")
        click.echo(f"\nservice found in: {found_in or 'nowhere'}\n")
        _show(checks, use_color(color))
    if any(check.state == FAIL for check in checks):
        context.exit(EXIT_CHECK_FAILED)


def _shown_settings(settings: "Settings") -> Iterator[tuple[str, str]]:
    """Every setting by the name of its variable; of secrets only whether they are set."""
    from pydantic import SecretStr

    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, SecretStr) or "SecretStr" in str(field.annotation):
            shown = "(unset)" if value is None else "(set)"
        else:
            shown = "(unset)" if value is None else plain(_without_password(str(value)))
        yield f"POIMEN_{name.upper()}", shown


def _without_password(value: str) -> str:
    parts = urlsplit(value)
    if "@" not in parts.netloc:
        return value
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"***@{host}"))


def _check_service(service: "Service | None") -> Iterator[Check]:
    from app.client import Client, ClientError, Unreachable, is_private

    if service is None:
        yield Check("service", FAIL, "none is running here", f"{STARTED_HERE}, or set POIMEN_URL")
        return
    client = Client(service.url, service.api_key)
    address = _without_password(service.url)
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
    return Check("api key", OK, f"valid; {reachable} projects may be asked")


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


def _check_models(settings: "Settings") -> Iterator[Check]:
    from app.wiring import check_models
    from workers.errors import PoimenError

    if settings.embedding_url:
        yield Check("embedder", SKIP, f"served by {_without_password(settings.embedding_url)}")
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
    click.echo(
        f"{counts[FAIL]} failed, {counts[WARN]} warnings, {counts[OK]} ok, {counts[SKIP]} skipped"
    )
