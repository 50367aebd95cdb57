"""Folders: socket paths, ownership, what is never changed."""

import os
import stat
from pathlib import Path

import pytest

from app.local import folders
from app.local.errors import StackError
from app.local.folders import make_data_dir, make_own_folder, socket_folder, write_private


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_socket_stays_in_its_folder_while_the_path_is_short_enough() -> None:
    fitting = Path("/" + "d" * (folders.LONGEST_SOCKET_PATH - len("/") - len("/socket")))

    assert socket_folder(fitting, "socket") == fitting
    assert socket_folder(Path(f"{fitting}d"), "socket") != fitting


def test_a_long_path_gets_a_short_folder_of_its_own() -> None:
    long = Path("/", "d" * 120)

    first, second = socket_folder(long / "a", "socket"), socket_folder(long / "b", "socket")

    assert len(str(first / "socket")) <= folders.LONGEST_SOCKET_PATH
    assert first != second
    assert first == socket_folder(long / "a", "socket")


def test_a_temporary_folder_that_is_itself_too_long_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: "/" + "t" * 120)

    assert socket_folder(Path("/", "d" * 120), "socket").parent == Path("/tmp")


def test_an_own_folder_is_closed_and_can_be_used_again(tmp_path: Path) -> None:
    make_own_folder(tmp_path / "run")
    make_own_folder(tmp_path / "run")

    assert mode_of(tmp_path / "run") == 0o700


@pytest.mark.parametrize("kind", ["link", "file", "open"])
def test_a_place_that_is_taken_is_refused_and_not_changed(tmp_path: Path, kind: str) -> None:
    place, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    if kind == "link":
        place.symlink_to(elsewhere)
    elif kind == "file":
        place.touch()
    else:
        place.mkdir()
        place.chmod(0o777)

    with pytest.raises(StackError, match="not a folder of ours"):
        make_own_folder(place)

    assert mode_of(elsewhere) == 0o755
    assert kind != "open" or mode_of(place) == 0o777


def test_new_folders_can_be_entered_and_existing_ones_keep_their_mode(tmp_path: Path) -> None:
    before = mode_of(tmp_path)

    make_data_dir(tmp_path / "a" / "b")

    expected = 0o711 if os.geteuid() == 0 else 0o700
    assert [mode_of(tmp_path / "a"), mode_of(tmp_path / "a" / "b")] == [expected, expected]
    assert mode_of(tmp_path) == before


def test_a_private_file_is_never_readable_by_others_not_even_for_a_moment(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("old")
    (tmp_path / "secret").chmod(0o644)

    write_private(tmp_path / "secret", "new")

    assert (tmp_path / "secret").read_text() == "new"
    assert mode_of(tmp_path / "secret") == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
