"""`mem up`: the whole service in the foreground, with nothing to install beside it."""

import time

import click

from app.local.errors import StackError, StopRequested
from app.local.signals import StopRequest
from app.local.stack import WATCH_S, Stack, StackInfo, running_stack
from config.settings import Settings
from workers.errors import PoimenError

__all__ = ["StackInfo", "running_stack", "up_command"]


@click.command("up")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the web server; 0: a free one."
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def up_command(port: int | None, form: str) -> None:
    """Run PostgreSQL, Valkey, the workers and the web server until Ctrl-C.

    With --format json one line on stdout says when and where the service is ready.
    """
    settings = Settings()
    if port is not None:
        settings = settings.model_copy(update={"port": port})
    try:
        _serve(settings, form)
    except (StackError, PoimenError) as error:
        raise click.ClickException(str(error)) from error


def _serve(settings: Settings, form: str) -> None:
    stop_request = StopRequest()
    announce = _say if form == "text" else _say_nothing
    with stop_request.listening(), Stack(settings, announce, stop_request) as stack:
        try:
            info = stack.start()
            if form == "json":
                click.echo(info.as_json())
            else:
                _say(_how_to_ask(info))
            while True:
                stop_request.check()
                time.sleep(WATCH_S)
                stack.watch()
        except StopRequested:
            announce("Stopping; once more to stop at once")


def _how_to_ask(info: StackInfo) -> str:
    return (
        f"\nService: {info.url}\n"
        f"Key:     {info.key_file}\n"
        f'Ask:     mem query --all-projects "What broke the build last week?"\n'
        f"End:     Ctrl-C\n"
    )


def _say(text: str) -> None:
    click.echo(text, err=True)


def _say_nothing(text: str) -> None:
    pass
