"""Folders of the embedded stack, and the account its database server runs as."""

import hashlib
import os
import pwd
import secrets
import stat
import subprocess
import tempfile
from pathlib import Path

from app.local.errors import StackError
from app.local.processes import Account

# sun_path holds 104 bytes with its closing NUL on macOS, 108 on Linux.
LONGEST_SOCKET_PATH = 103


def server_account(data_dir: Path, cluster: Path) -> Account | None:
    """The account PostgreSQL runs as; None means this process's own.

    PostgreSQL refuses to run as root. An existing cluster stays with the account that owns it.

    Raises:
        StackError: no such account, the cluster is someone else's, or the account cannot enter
            the data folder. Nothing has been changed then.
    """
    owner = cluster.stat().st_uid if cluster.exists() else None
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise StackError(
                f"{cluster} belongs to another account (uid {owner}); run as that one."
            )
        return None
    account = _unprivileged_account() if owner is None else _account_of(owner)
    existing = next(folder for folder in (data_dir, *data_dir.parents) if folder.exists())
    if not may_enter(existing, account):
        raise StackError(
            f"PostgreSQL runs as the account {account.name}, which cannot enter {existing}: set "
            f"POIMEN_DATA_DIR to a folder it can enter, such as /var/lib/poimen-memory."
        )
    return account


def _unprivileged_account() -> Account:
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise StackError(
        "PostgreSQL does not run as root and there is no account postgres or nobody: create one, "
        "run as an ordinary user, or set POIMEN_DATABASE_URL."
    )


def _account_of(uid: int) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise StackError(
            f"The database's files belong to uid {uid}, which is no account here: create it."
        ) from None
    return Account(entry.pw_name, uid, entry.pw_gid)


def may_enter(folder: Path, account: Account) -> bool:
    return can_run(["test", "-x", str(folder)], account)


def can_run(command: list[str], account: Account) -> bool:
    """Whether a command ends well when that account runs it."""
    try:
        finished = subprocess.run(
            command,
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return finished.returncode == 0


def make_data_dir(data_dir: Path) -> None:
    """Create the state folder and missing ones above it; existing ones stay as they are."""
    # Root's database account must pass through, without seeing what is there.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    for folder in reversed([data_dir, *data_dir.parents]):
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)


def make_own_folder(folder: Path, account: Account | None = None) -> None:
    """Create a folder that only its owner may enter, or make sure that an existing one is that.

    Raises:
        StackError: the place is taken by something of someone else's.
    """
    uid = account.uid if account else os.geteuid()
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (uid, os.geteuid()) or is_open:
            raise StackError(f"{folder} is not a folder of ours; move it away.") from None
    if account:
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)


def socket_folder(preferred: Path, socket_name: str) -> Path:
    """Where a server's socket goes: a short folder of its own when `preferred` is too long."""
    digest = hashlib.sha256(os.fsencode(preferred)).hexdigest()[:10]
    short_name = f"poimen-{os.geteuid()}-{digest}"
    temporary = (tempfile.gettempdir(), "/tmp")  # noqa: S108 - the folder's owner is checked
    for folder in (preferred, *(Path(place) / short_name for place in temporary)):
        if len(os.fsencode(folder / socket_name)) <= LONGEST_SOCKET_PATH:
            return folder
    raise StackError(f"No folder for {socket_name} has a path short enough for a socket.")


def load_password(file: Path) -> str:
    """The password kept in a file that only this account reads; a new one if there is none."""
    if not file.exists():
        write_private(file, secrets.token_hex(24))
    return file.read_text()


def write_private(file: Path, text: str) -> None:
    """Replace a file in one step; only this account may read it."""
    temporary = file.with_name(f"{file.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
        new.write(text)
        new.flush()
        os.fsync(new.fileno())
    temporary.replace(file)
