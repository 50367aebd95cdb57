"""Which files `mem ingest` takes, and what it calls them."""

import io
import os
from pathlib import Path

import pytest

from app.cli.failures import CommandFailed
from app.cli.paths import Source, TooLarge, find_sources, name_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs"


def write(path: Path, text: str = "# One\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def shown(*paths: str) -> list[str]:
    return [source.shown for source in find_sources(paths).sources]


def test_a_folder_is_taken_with_all_below_it_in_order(folder: Path) -> None:
    for name in ("b.md", "a.markdown", "sub/c.TXT", "sub/d.jsonl.gz", "sub/e.md.zst"):
        write(folder / name)

    assert shown("docs") == [
        "docs/a.markdown",
        "docs/b.md",
        "docs/sub/c.TXT",
        "docs/sub/d.jsonl.gz",
        "docs/sub/e.md.zst",
    ]


def test_what_is_hidden_made_by_a_build_or_of_another_kind_is_passed_over_and_counted(
    folder: Path,
) -> None:
    write(folder / "kept.md")
    for name in (".git/a.md", ".hidden.md", "node_modules/x/r.md", "x.egg-info/t.txt", "p.png"):
        write(folder / name)
    write(folder / "env" / "pyvenv.cfg")
    write(folder / "env" / "lib.md")
    os.mkfifo(folder / "pipe.md")

    found = find_sources(["docs"])

    assert [source.shown for source in found.sources] == ["docs/kept.md"]
    assert found.passed_over == {
        "hidden folders": 1,
        "hidden files": 1,
        "folders that a build or a tool made": 3,
        "files of other kinds": 1,
        "what is no file": 1,
    }


def test_of_json_documents_a_folder_gives_only_what_may_be_a_session(folder: Path) -> None:
    write(folder / "package.json", '{"name": "x"}')
    write(folder / "rollout-1.json", '{"items": [{"role": "user", "content": "hello"}]}')

    assert shown("docs") == ["docs/rollout-1.json"]


def test_a_file_that_is_named_itself_is_taken_whatever_it_is_called(folder: Path) -> None:
    write(folder / ".hidden")
    write(folder / "package.json", "{}")

    assert shown("docs/.hidden", "docs/package.json") == ["docs/.hidden", "docs/package.json"]


def test_links_to_folders_end_and_links_to_files_are_no_second_file(folder: Path) -> None:
    write(folder / "sub" / "a.md")
    (folder / "sub" / "up").symlink_to(folder, target_is_directory=True)
    (folder / "0-link.md").symlink_to("sub/a.md")
    (folder / "broken.md").symlink_to("nowhere.md")

    assert shown("docs") == ["docs/sub/a.md"]


def test_a_link_to_a_folder_is_followed_if_it_is_named_itself(folder: Path) -> None:
    write(folder / "a.md")
    (folder.parent / "link").symlink_to(folder, target_is_directory=True)

    assert shown("link") == ["link/a.md"]


def test_no_file_is_taken_twice_however_it_is_named(folder: Path) -> None:
    write(folder / "a.md")

    assert shown("docs/a.md", "docs", "./docs", str(folder / "a.md"), "docs/*.md") == ["docs/a.md"]


def test_a_pattern_is_expanded_here_too(folder: Path) -> None:
    write(folder / "a.md")
    write(folder / "sub" / "b.md")

    assert shown("docs/**/*.md") == ["docs/a.md", "docs/sub/b.md"]


def test_a_file_whose_name_looks_like_a_pattern_is_this_file(folder: Path) -> None:
    write(folder / "[draft].md")

    assert shown("docs/[draft].md") == ["docs/[draft].md"]


@pytest.mark.parametrize("path", ["absent.md", "docs/*.rst"])
def test_a_path_that_leads_to_nothing_is_an_error(folder: Path, path: str) -> None:
    with pytest.raises(CommandFailed, match="there is no"):
        find_sources([path])


def test_a_name_begins_at_the_projects_nearest_root_wherever_one_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "sub" / "a.md")
    roots = [str(folder.parent), str(folder.parent / "other")]
    for place, path in ((folder.parent, "docs/sub"), (folder, "sub"), (folder / "sub", "a.md")):
        monkeypatch.chdir(place)
        (source,) = find_sources([path]).sources

        assert name_of(source, roots, "stdin") == "docs/sub/a.md"
        assert name_of(source, [*roots, str(folder)], "stdin") == "sub/a.md"


def test_without_a_root_a_name_begins_at_the_home_folder_or_at_the_top(folder: Path) -> None:
    here = Path(os.path.realpath(folder))
    at_home = write(Path.home() / "notes" / "a.md")

    assert name_of(Source(at_home, "a.md"), [], "stdin") == "notes/a.md"
    assert name_of(Source(folder / "a.md", "a.md"), [], "stdin") == str(here / "a.md")[1:]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (b'a "b".md', "a %22b%22.md"),
        (b"a\nb.md", "a%0Ab.md"),
        (b"caf\xe9.md", "caf%E9.md"),
        (b"a\\b.md", "a%5Cb.md"),
        ("ü 50%.md".encode(), "ü 50%.md"),
    ],
)
def test_what_a_name_cannot_carry_is_written_with_percent_signs(
    folder: Path, name: bytes, told: str
) -> None:
    source = Source(folder / os.fsdecode(name), "x")

    assert name_of(source, [str(folder)], "stdin") == told


def test_a_file_without_an_end_is_not_read_without_an_end() -> None:
    with pytest.raises(TooLarge, match="more than 1 MB"):
        Source(Path("/dev/zero"), "/dev/zero").read(1_000_000)


def test_standard_input_is_called_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"text")))
    (source,) = find_sources(["-"]).sources

    assert (source.read(100), name_of(source, [], "notes/today")) == (b"text", "notes/today")
