"""The `mem` group: lazy commands, and one place where every failure is told."""

import errno
import importlib
import itertools
import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click

from app.cli.failures import (
    EXIT_INTERRUPTED,
    EXIT_PIPE_CLOSED,
    EXIT_USAGE,
    CommandFailed,
    plain,
)

LazyCommands = Mapping[str, tuple[str, str]]
"""Name -> (module:attribute, one line of help)."""


class Mem(click.Group):
    """A group that imports a command when it is run, and lists it without importing it."""

    def __init__(self, *args: Any, commands_at: LazyCommands, **options: Any) -> None:
        super().__init__(*args, **options)
        self._commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._commands_at:
            return None
        module, _, attribute = self._commands_at[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._commands_at.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            # click suggests from its own table, which lazy commands are not in.
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self._commands_at, ctx=ctx
            ) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # a closed pipe must show here, not while Python shuts down
        except KeyboardInterrupt:
            click.echo(err=True)
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            _silence(sys.stdout)
            raise click.exceptions.Exit(EXIT_PIPE_CLOSED) from None
        return result

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and tell failures in three lines and with the exit code the manual promises."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        given = list(sys.argv[1:] if args is None else args)
        _prepare_streams()
        try:
            code = super().main(
                given, prog_name or "mem", complete_var, standalone_mode=False, **extra
            )
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            _fail(error if isinstance(error, CommandFailed) else _usage(error), given)
        except click.Abort:
            sys.exit(EXIT_INTERRUPTED)
        except Exception as error:  # noqa: BLE001 - a trace would show what was typed, or a secret
            _tell_trace(error, given)
            _fail(_unforeseen(error), given)
        sys.exit(code if isinstance(code, int) else 0)


def _usage(error: click.ClickException) -> CommandFailed:
    """A mistake in the command line itself, told like every other failure."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "mem"
    return CommandFailed(
        error.format_message(),
        f"How it is used: {path} --help",
        code="usage",
        exits_with=error.exit_code if isinstance(error, click.UsageError) else 1,
    )


def _fail(error: CommandFailed, arguments: Sequence[str]) -> NoReturn:
    request_id = error.problem.get("request_id")
    told = f", request {request_id}" if request_id else ""
    try:
        click.echo(f"mem: {plain(error.message)}", err=True)
        click.echo(f"  {plain(error.advice)}", err=True)
        click.echo(f"  {error.code}{plain(told)}", err=True)
        if _wants_json(arguments):
            click.echo(json.dumps({"error": error.problem}))
    except OSError:  # nobody reads it, or the disk is full: the exit code must do
        _silence(sys.stdout)
        _silence(sys.stderr)
    sys.exit(error.exits_with)


def _unforeseen(error: Exception) -> CommandFailed:
    """What no command expected, without the exception's own words: they may quote a secret."""
    if isinstance(error, UnicodeEncodeError):
        return CommandFailed(
            "an argument is not UTF-8.",
            "Give it in UTF-8.",
            code="usage",
            exits_with=EXIT_USAGE,
        )
    if isinstance(error, OSError) and error.strerror:
        return _system_refusal(error)
    return CommandFailed(
        f"this should not have happened ({type(error).__name__}).",
        "`mem -v ...` shows where; `mem doctor` checks what it needs.",
        code="internal_error",
    )


def _system_refusal(error: OSError) -> CommandFailed:
    if error.filename is not None:
        return CommandFailed(
            f"{os.fsdecode(error.filename)} cannot be used ({error.strerror}).",
            "Look at who owns it. POIMEN_DATA_DIR names another folder for the service's state.",
            code="file_unusable",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        _silence(sys.stdout)  # what is still buffered would fail again while Python shuts down
        return CommandFailed(
            f"the output cannot be written ({error.strerror}).",
            "Make room where it goes to, then do it again.",
            code="output_failed",
        )
    return CommandFailed(
        f"the system refused ({error.strerror}).",
        "`mem -v ...` shows where; `mem doctor` checks what it needs.",
        code="system_refused",
    )


def _tell_trace(error: BaseException, arguments: Sequence[str]) -> None:
    """Where it happened, if that was asked for; places and types only."""
    is_asked = arguments[:1] in (["-v"], ["--verbose"])
    if not is_asked and os.environ.get("POIMEN_LOG_LEVEL", "").upper() != "DEBUG":
        return
    places = "".join(traceback.format_tb(error.__traceback__))
    click.echo(f"{places}{type(error).__name__}", err=True)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether JSON was asked for; read from the words, as parsing them may be what failed."""
    pairs = itertools.pairwise(arguments)
    return "--format=json" in arguments or ("--format", "json") in pairs


def _prepare_streams() -> None:
    """Output that is closed goes nowhere, signs it cannot show are spelled out, libraries are mute.

    Without the first, the next file or socket would take the closed stream's number.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for as long as we run
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    logging.getLogger().addHandler(logging.NullHandler())
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _silence(stream: Any) -> None:
    """Send a closed stream's remaining bytes nowhere, so that shutting down says nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
