"""A stack of its own for the time of a run, in a folder that is removed after it."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import SecretStr

from app.client import Client
from app.local.stack import StackInfo, running_stack
from config.settings import Settings

Announce = Callable[[str], None]


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder that root's database account may pass through; nothing of it stays."""
    folder = Path(tempfile.mkdtemp(prefix="mem-bench-"))
    try:
        if os.geteuid() == 0:
            folder.chmod(0o711)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def scratch_stack(settings: Settings, announce: Announce) -> Iterator[StackInfo]:
    """A whole stack with these settings, on servers, data and the embedded model of its own."""
    with scratch_folder() as folder:
        own = {
            "data_dir": folder / "data",
            "database_url": None,
            "redis_url": None,
            "embedding_url": None,
            "host": "127.0.0.1",
            "port": 0,
            "log_level": "WARNING",
        }
        with running_stack(settings.model_copy(update=own), announce) as stack:
            yield stack


@contextmanager
def second_stack(first: StackInfo, settings: Settings, announce: Announce) -> Iterator[StackInfo]:
    """Another web server with workers on the databases of the first, with other settings.

    It has a Redis database of its own, as the two must not take each other's tasks.
    """
    with scratch_folder() as folder:
        own = {
            "data_dir": folder / "data",
            "database_url": SecretStr(first.database_url),
            "redis_url": SecretStr(other_database(first.redis_url)),
            "embedding_url": None,
            "host": "127.0.0.1",
            "port": 0,
            "log_level": "WARNING",
        }
        with running_stack(settings.model_copy(update=own), announce) as stack:
            yield stack


def other_database(url: str) -> str:
    """The same server with the next database; databases are named as `db=N`."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    options["db"] = str(int(options.get("db", "0")) + 1)
    return parts._replace(query=urlencode(options)).geturl()


def client_of(stack: StackInfo) -> Client:
    """A new session with the stack, with its administrator's key."""
    return Client(stack.url, stack.key_file.read_text().strip())
