"""State folders that the database's account can enter, and stacks as processes of their own."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.local.folders import may_enter
from app.local.processes import Account

ROOT = Path(__file__).parents[3]
PACKAGES = Path(sysconfig.get_path("purelib"))
NOBODY = pwd.getpwnam("nobody")
STOP_S = 20.0


def accounts() -> list[str]:
    """Whom a stack can be run as: root tries an ordinary user too, where that one can read it."""
    nobody = Account("nobody", NOBODY.pw_uid, NOBODY.pw_gid)
    if os.geteuid() == 0 and all(may_enter(folder, nobody) for folder in (ROOT, PACKAGES)):
        return ["own", "nobody"]
    return ["own"]


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder others may pass through; pytest's own is closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="poimen"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def open_dir() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def open_python() -> Iterator[Path]:
    """This Python where any account may run it: root's own is often inside a closed home."""
    home = Path(tempfile.mkdtemp(prefix="poimen-python"))
    home.chmod(0o755)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    skip = shutil.ignore_patterns("site-packages", "test", "config-*", "idlelib")
    standard = Path(sysconfig.get_path("stdlib"))
    (home / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), home / "bin" / name)
    shutil.copytree(standard, home / "lib" / name, ignore=skip, symlinks=True)
    for library in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython*.so*"):
        shutil.copy(library, home / "lib")
    yield home / "bin" / name
    shutil.rmtree(home)


@dataclass
class Served:
    """A stack in a process of its own."""

    process: "subprocess.Popen[str]"

    def info(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.errors()
        return dict(json.loads(line))

    def errors(self) -> str:
        assert self.process.stderr
        return self.process.stderr.read()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=STOP_S)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Start a stack: serve(data_dir, *arguments); `as_nobody` is a Python which nobody can run."""
    running: list[Served] = []

    def start(data_dir: Path, *arguments: str, as_nobody: Path | None = None) -> Served:
        script = Path(__file__).with_name("serve.py")
        path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(PACKAGES)])}
        if as_nobody:
            path["LD_LIBRARY_PATH"] = str(as_nobody.parents[1] / "lib")
        process = subprocess.Popen(
            [as_nobody or sys.executable, "-B", script, data_dir, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={"PATH": os.environ["PATH"], "HOME": "/"} | path,
            user=NOBODY.pw_uid if as_nobody else None,
            group=NOBODY.pw_gid if as_nobody else None,
            extra_groups=[] if as_nobody else None,
        )
        running.append(Served(process))
        return running[-1]

    yield start
    for served in running:
        if served.process.poll() is None:
            served.end()
        served.process.communicate()
