"""`mem up`: the whole service in the foreground, with nothing to install beside it."""

import time
from typing import TYPE_CHECKING

import click

from app.cli.shell import format_option, load_settings, note, stack_failures

if TYPE_CHECKING:
    from app.local.stack import StackInfo
    from config.settings import Settings


@click.command(
    "up",
    epilog="""\b
Examples:
  mem up
  mem up --port 8080
  (umask 077; mem up --format json > ready.json)

\b
The JSON line holds the passwords of both servers: keep it to yourself.
POIMEN_DATABASE_URL and POIMEN_REDIS_URL name servers to use instead of its own. Logs are in the
folder `logs` of POIMEN_DATA_DIR.
Exit codes: 0 ended by Ctrl-C or SIGTERM; 1 it could not start, or a server died.""",
)
@click.option("--port", type=click.IntRange(0, 65535), help="Of the web server; 0: a free one.")
@format_option
def up_command(port: int | None, output: str) -> None:
    """Run PostgreSQL, Valkey, the workers and the web server until Ctrl-C.

    With --format json, one line on stdout says that the service is ready and where.
    """
    settings = load_settings()
    if port is not None:
        settings = settings.model_copy(update={"port": port})
    with stack_failures():
        _serve(settings, output == "json")


def _serve(settings: "Settings", is_json: bool) -> None:
    from app.local.errors import StopRequested
    from app.local.signals import StopRequest
    from app.local.stack import WATCH_S, Stack

    announce = _keep_quiet if is_json else note
    stop_request = StopRequest()
    with stop_request.listening(), Stack(settings, announce, stop_request) as stack:
        try:
            info = stack.start()
            click.echo(info.as_json()) if is_json else note(_how_to_ask(info))
            while True:
                stop_request.check()
                time.sleep(WATCH_S)
                stack.watch()
        except StopRequested:
            announce("Stopping; Ctrl-C once more stops at once")


def _how_to_ask(info: "StackInfo") -> str:
    return (
        f"\nService  {info.url}\n"
        f"Key      {info.key_file}\n"
        'Ask      mem query --all-projects "why did requests over 10KB fail?"\n'
        "Stop     Ctrl-C\n"
    )


def _keep_quiet(_text: str) -> None:
    pass
