"""Which files are meant by the paths that were given, and what the service is told they are called.

A document is known by its name, so the name is the same from run to run, from wherever `mem` is
run and however the path was written.
"""

import glob
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from app.cli.failures import EXIT_USAGE, CommandFailed

SESSION_ENDINGS = (".jsonl", ".json")  # each has its own working directory
ENDINGS = (".md", ".markdown", ".txt", *SESSION_ENDINGS)
PACKED = (".gz", ".zst")
LITTER = frozenset(
    ("node_modules", "bower_components", "__pycache__", "site-packages", "venv", "build", "dist")
)
LITTER_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")  # of a cache, of a virtual environment
STDIN = "-"

_SPOKEN = b'"role"'  # what every session in one JSON document has near its beginning
_BEGINNING = 2**20
# What a multipart header cannot carry, bytes that are no UTF-8, and what would be a slash there.
_UNSENDABLE = re.compile(r'[\x00-\x1f\x7f"\\\udc80-\udcff]')


class TooLarge(Exception):
    """A file that is larger than what is read of one."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file to take in: where it is, and how it was named to us."""

    path: Path | None  # None: standard input
    shown: str

    @property
    def ending(self) -> str:
        """Its ending in lower case, without that of its compression."""
        path = PurePath(self.shown.lower())
        return PurePath(path.stem).suffix if path.suffix in PACKED else path.suffix

    @property
    def real(self) -> Path:
        """Where it is, with no link above it; a link itself stays what it is."""
        path = self.path or Path(STDIN)
        return Path(os.path.realpath(path.parent)) / path.name

    def read(self, most: int) -> bytes:
        """Its bytes, of which there may be no end.

        Raises:
            OSError: it cannot be read.
            TooLarge: it has more than `most`.
        """
        if self.path is None:
            data = sys.stdin.buffer.read(most + 1) if sys.stdin else b""
        else:
            with self.path.open("rb") as stream:
                data = stream.read(most + 1)
        if len(data) > most:
            raise TooLarge(f"has more than {most / 1e6:g} MB")
        return data


@dataclass(slots=True)
class Found:
    """The files that are meant, in order, and what was passed over in folders."""

    sources: list[Source] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)


def find_sources(given: Iterable[str]) -> Found:
    """The files of these paths: files, folders with all below them, patterns, `-`.

    A file that is named itself is taken whatever it is called. In folders, only files with a known
    ending are; hidden ones, litter of builds and links to folders are passed over. No file is
    taken twice.

    Raises:
        CommandFailed: a path leads to nothing.
    """
    found = Found()
    for path in given:
        for each in _expanded(path):
            if each != STDIN and os.path.isdir(each):  # noqa: PTH112 - it may be any bytes
                found.sources += _walk(Path(each), found.passed_over)
            else:
                found.sources.append(Source(None if each == STDIN else Path(each), each))
    found.sources = list(_once(found.sources))
    return found


def _expanded(path: str) -> Sequence[str]:
    if path == STDIN or os.path.lexists(path):
        return [path]
    matches = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else []  # noqa: PTH207
    if not matches:
        raise CommandFailed(
            f"there is no {path}.",
            "Name files, folders or patterns that exist; `-` is standard input.",
            code="path_not_found",
            exits_with=EXIT_USAGE,
        )
    return matches


def _walk(folder: Path, passed_over: Counter[str]) -> Iterator[Source]:
    def note_unreadable(_: OSError) -> None:
        passed_over["folders that cannot be read"] += 1

    for above, folders, names in os.walk(folder, onerror=note_unreadable):
        kept = []
        for name in sorted(folders):
            reason = _why_not_into(Path(above, name))
            if reason is None:
                kept.append(name)
            else:
                passed_over[reason] += 1
        folders[:] = kept
        for name in sorted(names):
            path = Path(above, name)
            reason = _why_not(path)
            if reason is None:
                yield Source(path, str(path))
            else:
                passed_over[reason] += 1


def _why_not_into(folder: Path) -> str | None:
    if folder.name.startswith("."):
        return "hidden folders"
    if folder.is_symlink():
        return "links to folders"
    is_litter = folder.name in LITTER or folder.name.endswith(".egg-info")
    if is_litter or any((folder / mark).exists() for mark in LITTER_MARKS):
        return "folders that a build or a tool made"
    return None


def _why_not(path: Path) -> str | None:
    if path.name.startswith("."):
        return "hidden files"
    if not path.is_file():
        return "what is no file"
    ending = Source(path, path.name).ending
    if ending not in ENDINGS:
        return "files of other kinds"
    if ending == ".json" and path.suffix.lower() == ending and not _may_be_session(path):
        return "JSON that is no session"
    return None


def _may_be_session(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return _SPOKEN in stream.read(_BEGINNING)
    except OSError:
        return True  # so that it is told what is wrong with it


def _once(sources: Sequence[Source]) -> Iterator[Source]:
    """Each file once: by its own name rather than that of a link to it."""
    own = {source.real for source in sources if source.path and not source.path.is_symlink()}
    seen: set[Path] = set()
    for source in sources:
        is_link = source.path is not None and source.path.is_symlink()
        real = Path(os.path.realpath(source.path)) if source.path and is_link else source.real
        if real in seen or (is_link and real in own):
            continue
        seen.add(real)
        yield source


def name_of(source: Source, roots: Sequence[str], stdin_name: str) -> str:
    """What the service is told a file is called: its path with plain slashes.

    Below the nearest of the project's root folders, else below the home folder, else below `/`.

    roots: of the project that it goes to.
    """
    if source.path is None:
        return stdin_name
    real = source.real
    above = [Path(os.path.realpath(root)) for root in (*roots, os.path.expanduser("~"))]  # noqa: PTH111
    near = [root for root in above if real.is_relative_to(root)]
    base = max(near, key=lambda root: len(root.parts)) if near else Path(real.anchor)
    return _UNSENDABLE.sub(_percent, real.relative_to(base).as_posix())


def _percent(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"%{code - 0xDC00 if code >= 0xDC80 else code:02X}"
