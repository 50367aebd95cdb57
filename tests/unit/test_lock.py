"""The lock holds what the project asks for, whole and by hash."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[.*?\])?==([^ ;\\]+)", re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = PROJECT["project"]["dependencies"]
DEVELOPMENT = PROJECT["dependency-groups"]["dev"]


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text()
    return {canonicalize_name(package): version for package, version in PINNED.findall(text)}


@pytest.mark.parametrize(
    ("lock", "asked"), [("runtime.txt", RUNTIME), ("dev.txt", RUNTIME + DEVELOPMENT)]
)
def test_every_dependency_is_pinned_to_a_version_that_satisfies_it(
    lock: str, asked: list[str]
) -> None:
    pinned = pins(lock)

    for requirement in map(Requirement, asked):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}"


def test_the_locks_agree_with_each_other() -> None:
    development = pins("dev.txt")

    for lock in ("runtime.txt", "build.txt"):
        assert pins(lock).items() <= development.items()


@pytest.mark.parametrize("lock", ["runtime.txt", "dev.txt", "build.txt"])
def test_a_lock_names_no_index_and_has_a_hash_for_every_pin(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()

    assert "index-url" not in text
    assert "find-links" not in text
    for block in re.split(r"\n(?=[A-Za-z0-9])", text)[1:]:
        assert "--hash=sha256:" in block, block.splitlines()[0]
