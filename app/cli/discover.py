"""Where the coding agents of this machine keep their sessions."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from app.cli.failures import plain
from app.cli.paths import Source
from app.cli.render import Look, counted
from app.cli.shell import note, use_color

Select = Callable[[Sequence[Path]], Iterable[Path]]
"""Of these folders, the files that hold a session, best first where two hold the same."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The sessions of one agent; `folders` is where was looked."""

    form: str
    folders: tuple[Path, ...]
    sources: tuple[Source, ...]
    size: int  # bytes
    newest: datetime | None


def agents_here() -> list[Agent]:
    """The three agents, also those without a session."""
    environment, home = os.environ, Path.home()
    return [
        _agent("claude_code", _claude_code(environment, home), _json_lines),
        _agent("codex", _codex(environment, home), _rollouts),
        _agent("pi", _pi(environment, home), _json_lines),
    ]


def _claude_code(environment: Mapping[str, str], home: Path) -> list[Path]:
    named = [part.strip() for part in environment.get("CLAUDE_CONFIG_DIR", "").split(",")]
    roots = [Path(part).expanduser() for part in named if part]
    roots = roots or [home / ".claude", home / ".config" / "claude"]
    return [root if root.name == "projects" else root / "projects" for root in roots]


def _codex(environment: Mapping[str, str], home: Path) -> list[Path]:
    root = Path(environment.get("CODEX_HOME") or home / ".codex").expanduser()
    return [root / "sessions", root / "archived_sessions"]


def _pi(environment: Mapping[str, str], home: Path) -> list[Path]:
    root = Path(environment.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent").expanduser()
    return [root / "sessions"]


def _agent(form: str, folders: Sequence[Path], select: Select) -> Agent:
    files: dict[Path, Path] = {}
    for path in select(folders):
        files.setdefault(Path(os.path.realpath(path)), path)
    stats = {path: status for path in files.values() if (status := _status(path))}
    times = [status.st_mtime for status in stats.values()]
    return Agent(
        form=form,
        folders=tuple(folders),
        sources=tuple(Source(path, str(path)) for path in sorted(stats)),
        size=sum(status.st_size for status in stats.values()),
        newest=datetime.fromtimestamp(max(times), UTC) if times else None,
    )


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat() if path.is_file() else None
    except OSError:
        return None  # it was there a moment ago


def _json_lines(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from folder.rglob("*.jsonl")


def _rollouts(folders: Sequence[Path]) -> Iterator[Path]:
    """One file a session: the plain one before the compressed, the active before the archived."""
    seen: set[str] = set()
    for folder in folders:
        found = sorted(folder.rglob("rollout-*"), key=lambda path: path.suffix == ".zst")
        for path in found:
            name = path.name.removesuffix(".zst")
            if not name.endswith((".jsonl", ".json")) or name in seen:
                continue
            seen.add(name)
            yield path


def as_json(agents: Sequence[Agent]) -> list[dict[str, Any]]:
    return [
        {
            "agent": agent.form,
            "sessions": len(agent.sources),
            "bytes": agent.size,
            "newest": f"{agent.newest:%Y-%m-%dT%H:%M:%SZ}" if agent.newest else None,
            "folders": [str(folder) for folder in agent.folders],
        }
        for agent in agents
    ]


def show_agents(agents: Sequence[Agent], project: str | None, *, to_stderr: bool) -> None:
    """What would be taken, agent by agent, and where it would go."""
    is_terminal = to_stderr or Look.of(use_color("never")).width is not None
    rows = [_row(agent, is_terminal=is_terminal) for agent in agents]
    if is_terminal:
        rows.insert(0, ("AGENT", "SESSIONS", "SIZE", "NEWEST", "FOLDERS"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        if is_terminal:
            cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
            click.echo("  ".join(cells).rstrip(), err=to_stderr)
        else:
            click.echo("\t".join(row))
    if not any(agent.sources for agent in agents):
        looked = ", ".join(plain(str(folder)) for agent in agents for folder in agent.folders)
        note(f"No session was found in {looked}.")
    elif project is None:
        note("Each goes to the project whose root folder holds its working directory, else to one")
        note("named after that directory; missing projects are made. --project names one for all.")
    else:
        total = counted(sum(len(agent.sources) for agent in agents), "session")
        note(f"{total} would go to project {plain(project)}.")


def _row(agent: Agent, *, is_terminal: bool) -> tuple[str, ...]:
    folders = [plain(str(folder)) for folder in agent.folders if folder.is_dir()]
    newest = "-"
    if agent.newest and is_terminal:
        newest = f"{agent.newest.astimezone():%d %b %Y %H:%M}"
    elif agent.newest:
        newest = f"{agent.newest:%Y-%m-%dT%H:%M:%SZ}"
    size = _size(agent.size) if is_terminal else str(agent.size)
    return agent.form, str(len(agent.sources)), size, newest, ", ".join(folders) or "-"


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB"
