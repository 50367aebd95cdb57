"""Valkey as a direct child: the broker and the cache, with an append-only file."""

import secrets
import signal
from pathlib import Path
from urllib.parse import quote

from app.local.binaries import VALKEY_CHOICES, find_valkey
from app.local.errors import StackError
from app.local.folders import make_own_folder, socket_folder, write_private
from app.local.processes import ProcessSpec, end_orphan

SOCKET_NAME = "valkey.sock"


class Valkey:
    """One server under `<data_dir>/valkey`. The caller holds the lock of the data folder.

    The password is new at every start, so a worker left over from an earlier run cannot take
    messages from this one's queues.
    """

    def __init__(self, data_dir: Path, log: Path) -> None:
        server = find_valkey()
        if server is None:
            raise StackError(VALKEY_CHOICES)
        self._server = server
        self._log = log
        self._password = secrets.token_hex(24)
        self._folder = data_dir / "valkey"
        self._config = self._folder / "valkey.conf"
        self._pid_file = self._folder / "valkey.pid"
        self.run_folder = socket_folder(self._folder / "run", SOCKET_NAME)
        self.socket = self.run_folder / SOCKET_NAME
        self.url = f"unix://:{self._password}@{quote(str(self.socket))}?db=0"

    def prepare(self) -> ProcessSpec:
        """Everything before the start: folders, configuration, no server of an earlier run."""
        make_own_folder(self._folder)
        make_own_folder(self._folder / "data")
        make_own_folder(self.run_folder)
        # A second server on the same socket would take it over without a word.
        end_orphan(self._pid_file, str(self._config), signal.SIGTERM, signal.SIGKILL)
        self.socket.unlink(missing_ok=True)
        self._write_config()
        return ProcessSpec(
            name="Valkey",
            argv=(str(self._server), str(self._config)),
            log=self._log,
            cwd=self._folder,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
        )

    def is_ready(self) -> bool:
        """Whether the server answers and has read its file of the last run."""
        import redis  # most commands of the command line never need it

        client = redis.Redis.from_url(self.url, socket_timeout=2.0)
        try:
            return bool(client.ping())
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            return False  # also while it is loading
        finally:
            client.close()

    def _write_config(self) -> None:
        options = {
            "port": "0",
            "unixsocket": _quoted(self.socket),
            "unixsocketperm": "700",
            "requirepass": self._password,
            "dir": _quoted(self._folder / "data"),
            "pidfile": _quoted(self._pid_file),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",  # a queue must refuse rather than forget
            "set-proc-title": "no",  # the command line stays what tells an orphan from a stranger
        }
        lines = [f"{name} {value}\n" for name, value in options.items()]
        write_private(self._config, "".join(lines))


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
