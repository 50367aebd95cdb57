"""`mem` run against a canned service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from tests.unit.cli.canned import CannedService, Mem


@pytest.fixture
def service() -> Iterator[CannedService]:
    canned = CannedService()
    yield canned
    canned.stop()


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of no project, and no service known from the environment."""
    for name in ("POIMEN_URL", "POIMEN_API_KEY", "POIMEN_DATABASE_URL", "POIMEN_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POIMEN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def mem(service: CannedService, away: Path, monkeypatch: pytest.MonkeyPatch) -> Mem:
    """`mem` with these arguments, against the canned service."""
    monkeypatch.setenv("POIMEN_URL", service.url)

    def run(*arguments: str, **options: Any) -> Result:
        return CliRunner().invoke(main, arguments, **options)

    return run
