"""`mem ingest --dry-run`: what files hold, without a service."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import main, preview
from tests.unit.cli.canned import Mem
from workers.ingest import reading

SESSIONS = Path(__file__).parents[2] / "fixtures" / "sessions"


@pytest.fixture
def run(away: Path) -> Any:
    def dry_run(*words: str | Path, **options: Any) -> Result:
        arguments = ["ingest", "--dry-run", "--format", "json", *map(str, words)]
        return CliRunner().invoke(main, arguments, **options)

    return dry_run


def told(ran: Result) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = json.loads(ran.stdout)["files"]
    return files


def test_of_a_session_turns_are_counted_by_who_said_them(run: Any) -> None:
    ran = run(SESSIONS / "claude_code.jsonl", "-p", "unknown-project")

    (file,) = told(ran)
    assert file["format"] == "claude_code"
    assert file["counts"] == {"sessions": 1, "turns": {"user": 2, "assistant": 3, "tool": 2}}
    assert file["ignored"] == {"custom-title": 1, "machine text": 1}
    assert file["status"] == "completed"
    assert ran.exit_code == 0


@pytest.mark.parametrize("agent", ["claude_code", "codex", "pi"])
def test_the_example_sessions_are_what_they_are_called(run: Any, agent: str) -> None:
    (file,) = told(run(SESSIONS / f"{agent}.jsonl"))

    assert (file["format"], file["skipped"], file["counts"]["sessions"]) == (agent, [], 1)


def test_of_a_document_its_sections_are_counted(run: Any, away: Path) -> None:
    (away / "a.md").write_text("# One\n\ntext\n\n## Two\n\nmore\n")

    (file,) = told(run("a.md"))

    assert file["counts"] == {"documents": 1, "sections": 2}


def test_nodes_are_checked_one_by_one(run: Any, away: Path) -> None:
    node = {"level": "L0", "kind": "turn", "source": "pi:a", "text": "a"}
    lines = [json.dumps(node), "nonsense", json.dumps(node | {"level": "L9"})]
    (away / "n.jsonl").write_text("\n".join(lines))

    ran = run("n.jsonl")

    (file,) = told(ran)
    assert (file["format"], file["counts"]) == ("nodes", {"nodes": 1})
    assert [skipped["line"] for skipped in file["skipped"]] == [2, 3]
    assert ran.exit_code == 3


def test_skipped_lines_are_named_with_their_reasons(run: Any, away: Path) -> None:
    good = (SESSIONS / "pi.jsonl").read_bytes()
    (away / "s.jsonl").write_bytes(good + b"nonsense\n")

    ran = run("s.jsonl")

    (file,) = told(ran)
    assert file["skipped"] == [{"line": 8, "reason": "is not a JSON object"}]
    assert (file["status"], ran.exit_code) == ("partial", 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), "not text"),
        (gzip.compress(b"a" * 3_000_000), "expands to more than 1 MB"),
        (b"a" * 1_000_001, "has more than 1 MB"),
    ],
)
def test_a_refused_file_has_a_reason_and_its_neighbours_are_told(
    run: Any, away: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str
) -> None:
    monkeypatch.setenv("POIMEN_INGEST_MAX_MB", "1")
    (away / "bad.md").write_bytes(content)
    (away / "good.md").write_text("# One\n\ntext\n")

    ran = run("bad.md", "good.md")

    bad, good = told(ran)
    assert (bad["status"], good["status"]) == ("failed", "completed")
    assert reason in bad["reason"]
    assert ran.exit_code == 3
    assert run("bad.md").exit_code == 1


def test_a_folder_without_anything_is_an_empty_document(run: Any, away: Path) -> None:
    (away / "empty").mkdir()

    ran = run("empty")

    assert json.loads(ran.stdout) == {"dry_run": True, "files": [], "passed_over": {}}


def test_a_missing_file_is_a_usage_error_in_json_too(run: Any) -> None:
    ran = run("absent.md")

    assert json.loads(ran.stdout)["error"]["error"] == "path_not_found"
    assert ran.exit_code == 2


@pytest.mark.parametrize("fault", [RecursionError, MemoryError, ValueError, AssertionError])
def test_a_fault_of_a_reader_is_told_of_its_file_alone(
    run: Any, away: Path, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    def read(data: bytes, *others: object) -> Any:
        if b"bad" in data:
            raise fault("what the file says")
        return reading.read_file(data, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(preview, "read_file", read)
    (away / "bad.md").write_text("bad")
    (away / "good.md").write_text("good")

    ran = run("bad.md", "good.md")

    bad, good = told(ran)
    assert (bad["status"], good["status"], ran.exit_code) == ("failed", "completed", 3)
    assert "what the file says" not in ran.output


def test_a_file_that_takes_too_long_is_given_up(
    run: Any, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> Any:
        while True:
            try:
                sum(range(1000))
            except Exception:  # noqa: BLE001 - as a reader may, of one line
                continue

    monkeypatch.setattr(preview, "read_file", read)
    monkeypatch.setattr(preview, "LONGEST_S", 0.05)
    (away / "slow.md").write_text("slow")

    (file,) = told(run("slow.md"))

    assert "to read" in file["reason"]


def test_as_text_a_row_is_told_for_each_file(away: Path) -> None:
    ran = CliRunner().invoke(main, ["ingest", "--dry-run", str(SESSIONS / "codex.jsonl")])

    assert ran.stdout == f"{SESSIONS / 'codex.jsonl'}\tcompleted\tcodex\t1\t6\t0\t0\t0\t0\t2\n"


NODE = b'{"level": "L0", "kind": "turn", "source": "s", "text": "t"}\n'


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b'{"level": "L0", "kind": \n', "not JSON: Expecting value, column 25"),
        (b'{"position": ' + b"9" * 5000 + b"}\n", "holds a number of more digits than are read"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "is nested too deeply"),
        (b'{"position": NaN}\n', "not JSON: NaN is not a JSON number"),
    ],
)
def test_a_file_of_nodes_whose_first_line_is_damaged_holds_nodes_all_the_same(
    run: Any, away: Path, damaged: bytes, reason: str
) -> None:
    (away / "n.jsonl").write_bytes(damaged + NODE)

    ran = run("n.jsonl")

    (file,) = told(ran)
    assert (file["format"], file["counts"], ran.exit_code) == ("nodes", {"nodes": 1}, 3)
    assert file["skipped"] == [{"line": 1, "reason": reason}]


def test_in_a_pipe_every_file_is_a_line_of_ten_columns(
    away: Path, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POIMEN_DATA_DIR", str(away / "nowhere"))
    (away / "a.md").write_text("# One\n\ntext\n\n## Two\n\ntext\n")
    (away / "n.jsonl").write_bytes(NODE + b"nothing\n")
    (away / "p.md").write_bytes(b"%PDF-1.7")

    ran = mem("ingest", "--dry-run", "-p", "not-there", "a.md", "n.jsonl", "p.md")

    assert ran.stdout.splitlines() == [
        "a.md\tcompleted\tmarkdown\t0\t0\t1\t2\t0\t0\t0",
        "n.jsonl\tpartial\tnodes\t0\t0\t0\t0\t1\t1\t0",
        "p.md\tfailed\t-\t0\t0\t0\t0\t0\t0\t0",
    ]
    assert ran.exit_code == 3
