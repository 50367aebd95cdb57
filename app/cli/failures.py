"""How a command fails: a problem, what to do next, and an exit code."""

import re
from collections.abc import Mapping
from typing import Any

import click

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PARTIAL = 3
EXIT_SIGN_IN = 4
EXIT_CHECK_FAILED = 5
EXIT_STILL_RUNNING = 124
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141

# Terminals obey C0, DEL and C1; the directional marks reorder what is read without being seen.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class CommandFailed(click.ClickException):
    """A failure told in three lines: what happened, what to do next, a stable code."""

    def __init__(
        self,
        message: str,
        advice: str,
        *,
        code: str,
        exits_with: int = EXIT_FAILED,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.advice = advice
        self.code = code
        self.exits_with = exits_with
        self.problem: Mapping[str, Any] = problem or {
            "type": f"/problems/{code}",
            "title": message,
            "detail": advice,
            "error": code,
        }


def escaped(text: str) -> str:
    """Stored text as it may be shown: control characters visible, lines and tabs kept."""
    return _CONTROL.sub(_visible, text)


def plain(text: str) -> str:
    """The same on one line, white space joined."""
    return escaped(" ".join(text.split()))


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
