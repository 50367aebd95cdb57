"""`mem ingest` of sessions and documents: what is sent where, and what is told of each file."""

import io
import itertools
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import taking
from tests.unit.cli.canned import (
    INGEST_ID,
    CannedService,
    Mem,
    ingested,
    problem,
    project,
    submission,
)

ROOT = Path(__file__).parents[3]
INGEST = "POST /memory/ingest"
JOB = f"GET /memory/ingest/{INGEST_ID}"
PROJECTS = "GET /memory/projects"

Folder = Callable[..., Path]


@pytest.fixture
def docs(away: Path) -> Folder:
    """A folder with these files in it."""

    def written(**files: str | bytes) -> Path:
        for name, content in files.items():
            path = away / "docs" / name.replace("_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return away / "docs"

    return written


@pytest.fixture
def accepting(service: CannedService, away: Path) -> CannedService:
    """A service that takes everything, job by job, and knows the project `here`."""
    numbers = itertools.count()

    def accept(said: Any) -> tuple[int, dict[str, Any]]:
        job_id = f"{next(numbers):08x}{INGEST_ID[8:]}"
        files = [ingested(name) for name, _ in said.get("files", [("nodes", b"")])]
        route = f"GET /memory/ingest/{job_id}"
        service.answers[route] = 200, submission(*files, id=job_id)
        return 202, {"id": job_id, "status": "queued", "duplicate": False}

    service.answers[INGEST] = accept
    service.answers[PROJECTS] = 200, {"projects": [project("here", away), project("poimen")]}
    return service


def names(service: CannedService) -> list[list[str]]:
    return [[name for name, _ in said["files"]] for said in service.said_to(INGEST)]


def test_documents_go_to_the_project_of_this_folder_under_their_path_below_its_root(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    docs(a_md="# One\n", b_txt="two\n")

    ran = mem("ingest", "docs")

    (said,) = accepting.said_to(INGEST)
    assert said == {
        "format": "auto",
        "project": "here",
        "files": [("docs/a.md", b"# One\n"), ("docs/b.txt", b"two\n")],
    }
    assert ran.exit_code == 0
    assert ran.stdout.splitlines() == [
        "docs/a.md\tcompleted\tmarkdown\t2\t2\t0\t0\t0\t0\t0",
        "docs/b.txt\tcompleted\tmarkdown\t2\t2\t0\t0\t0\t0\t0",
    ]
    assert ran.stderr == "Stored in poimen.\n"


def test_sessions_go_without_a_project_so_that_the_folder_they_worked_in_decides(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    docs(a_md="# One\n", s_jsonl='{"type": "user"}\n')

    mem("ingest", "docs")

    first, second = accepting.said_to(INGEST)
    assert "project" not in first
    assert [name.rpartition("/")[2] for name, _ in first["files"]] == ["s.jsonl"]
    assert second["project"] == "here"


def test_with_a_project_everything_goes_there(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    docs(a_md="# One\n", s_jsonl='{"type": "user"}\n')

    mem("ingest", "docs", "-p", "poimen")

    assert [said["project"] for said in accepting.said_to(INGEST)] == ["poimen", "poimen"]


def test_documents_without_a_project_are_not_stored_and_neither_is_anything_else(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    accepting.answers[PROJECTS] = 200, {"projects": []}
    docs(a_md="# One\n", s_jsonl='{"type": "user"}\n')

    ran = mem("ingest", "docs")

    assert ran.exit_code == 2
    assert "--project" in ran.stderr
    assert "mem projects add" in ran.stderr
    assert not accepting.said_to(INGEST)


def test_a_format_that_is_named_holds_for_every_file(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    docs(a_log='{"type": "user"}\n')

    mem("ingest", "docs/a.log", "--as", "codex")

    assert accepting.said_to(INGEST)[0]["format"] == "codex"
    assert "project" not in accepting.said_to(INGEST)[0]


def test_standard_input_is_one_file_with_the_name_it_is_given(
    accepting: CannedService, mem: Mem
) -> None:
    mem("ingest", "-", "--name", "notes/today", input=b"Rotate the keys.")

    assert accepting.said_to(INGEST)[0]["files"] == [("notes/today", b"Rotate the keys.")]


def test_a_file_of_nodes_among_others_is_told_by_its_content(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    node = {"level": "L0", "kind": "turn", "source": "pi:a", "text": "a"}
    docs(n_jsonl=json.dumps(node), s_jsonl='{"type": "user"}\n', a_md="# One\n")

    ran = mem("ingest", "docs", "--format", "json")

    sent = accepting.said_to(INGEST)
    assert [said["format"] for said in sent] == ["auto", "nodes", "auto"]
    assert sent[1]["nodes"] == [node]
    assert sent[1]["project"] == "here"
    told = {file["path"]: file["format"] for file in json.loads(ran.stdout)["files"]}
    assert told["docs/n.jsonl"] == "nodes"


def test_nodes_without_a_project_keep_no_neighbour_out(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    accepting.answers[PROJECTS] = 200, {"projects": []}
    node = {"level": "L0", "kind": "turn", "source": "pi:a", "text": "a"}
    docs(n_jsonl=json.dumps(node), s_jsonl='{"type": "user"}\n')

    ran = mem("ingest", "docs")

    assert [len(part) for part in names(accepting)] == [1]
    assert ran.exit_code == 3
    assert "docs/n.jsonl: no project is known" in ran.stderr


def test_files_are_sent_in_parts_that_fit_into_a_request(
    accepting: CannedService, mem: Mem, docs: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "MOST_BYTES", 10)
    monkeypatch.setattr(taking, "MOST_FILES", 2)
    docs(a_md="12345", b_md="67890", c_md="1", d_md="larger than a part", e_md="2")

    mem("ingest", "docs")

    assert names(accepting) == [
        ["docs/a.md", "docs/b.md"],
        ["docs/c.md"],
        ["docs/d.md"],
        ["docs/e.md"],
    ]


def test_what_is_more_than_the_service_takes_is_halved_until_it_fits(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    accept = accepting.answers[INGEST]

    def picky(said: Any) -> Any:
        assert callable(accept)
        size = sum(len(data) for _, data in said["files"])
        return accept(said) if size <= 10 else (413, problem(413, "body_too_large"))

    accepting.answers[INGEST] = picky
    docs(a_md="12345", b_md="67890", c_md="x" * 2_000_000, d_md="1")

    ran = mem("ingest", "docs", "--format", "json")

    told = {file["path"]: file for file in json.loads(ran.stdout)["files"]}
    assert [name for name, file in told.items() if file["status"] == "failed"] == ["docs/c.md"]
    assert told["docs/c.md"]["reason"].startswith("has 2 MB, more than the service takes at once")
    assert ran.exit_code == 3


def test_no_more_jobs_are_open_at_a_time_than_the_service_should_keep(
    accepting: CannedService, mem: Mem, docs: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "MOST_FILES", 1)
    docs(**{f"f{number}_md": "x" for number in range(7)})

    mem("ingest", "docs")

    asked = [route for route, _ in accepting.asked if route.startswith((INGEST, "GET /memory/i"))]
    kinds = "".join("+" if route == INGEST else "-" for route in asked)
    assert kinds == "++++-+-+-+----"


def test_a_file_that_fails_is_told_with_its_reason_and_skipped_lines_with_theirs(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    skipped = [{"line": 3, "reason": "is not JSON"}, {"line": 9, "reason": "is not JSON"}]
    redacted = {"password": 2, "github-token": 1}
    reports = [
        ingested("a", status="failed", reason="not text", format=None, received=0, stored=0),
        ingested("b", status="partial", skipped=skipped, skipped_count=2, redacted=redacted),
        ingested("c", notes=["read as cp1252"], has_open_end=True),
    ]
    accepting.answers[INGEST] = 202, {"id": INGEST_ID, "status": "queued"}
    accepting.answers[JOB] = 200, submission(*reports, status="partial")
    docs(a_md="1", b_md="2", c_md="3")

    ran = mem("ingest", "docs")

    assert ran.exit_code == 3
    assert ran.stdout.splitlines() == [
        "docs/a.md\tfailed\t-\t0\t0\t0\t0\t0\t0\t0",
        "docs/b.md\tpartial\tmarkdown\t2\t2\t0\t0\t0\t2\t3",
        "docs/c.md\tcompleted\tmarkdown\t2\t2\t0\t0\t0\t0\t0",
    ]
    assert ran.stderr.splitlines() == [
        "docs/a.md: not text",
        "docs/b.md lines 3, 9: is not JSON",
        "docs/c.md: read as cp1252",
        "Stored in poimen.",
        "1 file was still being written; store again later what comes then.",
        "1 file failed. The others are stored.",
    ]


def test_skipped_lines_alone_exit_3(accepting: CannedService, mem: Mem, docs: Folder) -> None:
    skipped = [{"line": 3, "reason": "is not JSON"}]
    accepting.answers[INGEST] = 202, {"id": INGEST_ID, "status": "queued"}
    report = ingested("a", status="partial", skipped=skipped, skipped_count=1)
    accepting.answers[JOB] = 200, submission(report, status="partial")
    docs(a_md="1")

    assert mem("ingest", "docs").exit_code == 3


def test_a_job_that_fails_is_told_for_each_file_that_it_did_not_come_to(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    error = {"code": "attempts_exhausted", "message": "given up after 5 attempts"}
    files = [ingested("a"), {"name": "b", "status": "queued"}]
    accepting.answers[INGEST] = 202, {"id": INGEST_ID, "status": "queued"}
    accepting.answers[JOB] = 200, submission(*files, status="failed", error=error)
    docs(a_md="1", b_md="2")

    ran = mem("ingest", "docs")

    assert ran.exit_code == 3
    assert "docs/b.md: given up after 5 attempts" in ran.stderr
    assert "docs/a.md:" not in ran.stderr


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (["completed", "completed"], 0),
        (["failed", "completed"], 3),
        (["failed", "partial"], 3),
        (["partial", "completed"], 3),
        (["failed", "failed"], 1),
        (["failed", "cancelled"], 1),
    ],
)
def test_the_exit_code_tells_whether_all_some_or_none_was_stored(
    accepting: CannedService, mem: Mem, docs: Folder, ends: list[str], code: int
) -> None:
    files = [ingested(name, status=end) for name, end in zip("ab", ends, strict=True)]
    accepting.answers[INGEST] = 202, {"id": INGEST_ID, "status": "queued"}
    accepting.answers[JOB] = 200, submission(*files, status="partial")
    docs(a_md="1", b_md="2")

    assert mem("ingest", "docs").exit_code == code


def test_a_file_that_cannot_be_read_keeps_no_other_out(
    accepting: CannedService, mem: Mem, docs: Folder, away: Path
) -> None:
    docs(a_md="1")
    (away / "docs" / "gone.md").symlink_to("nowhere")

    ran = mem("ingest", "docs/gone.md", "docs/a.md")

    assert names(accepting) == [["docs/a.md"]]
    assert "docs/gone.md: cannot be read (No such file or directory)" in ran.stderr
    assert ran.exit_code == 3


def test_of_two_files_that_are_one_document_to_the_project_the_second_is_told(
    accepting: CannedService, mem: Mem, away: Path
) -> None:
    for root in ("a", "b"):
        (away / root).mkdir()
        (away / root / "readme.md").write_text(root)
    both = project("both", away / "a") | {"roots": [str(away / "a"), str(away / "b")]}
    accepting.answers[PROJECTS] = 200, {"projects": [both]}

    ran = mem("ingest", "a", "b", "-p", "both")

    assert names(accepting) == [["readme.md"]]
    assert "b/readme.md: would replace a/readme.md" in ran.stderr
    assert "mem ingest - --name" in ran.stderr
    assert ran.exit_code == 3


def test_without_waiting_every_jobs_id_is_told_and_none_is_looked_at(
    accepting: CannedService, mem: Mem, docs: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "MOST_FILES", 1)
    docs(a_md="1", b_md="2")

    ran = mem("ingest", "docs", "--no-wait")

    assert ran.stdout.splitlines() == [f"{n:08x}{INGEST_ID[8:]}" for n in range(2)]
    assert "mem jobs wait ID" in ran.stderr
    assert ran.exit_code == 0
    assert not [route for route, _ in accepting.asked if route.startswith("GET /memory/ingest/")]


def test_a_service_that_is_away_for_a_moment_is_asked_again(
    accepting: CannedService, mem: Mem, docs: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "TRY_AGAIN_S", 0.01)
    answers: Any = iter([(0, None), (503, problem(503, "store_unavailable"), {"Retry-After": "0"})])
    accepting.answers[INGEST] = 202, {"id": INGEST_ID, "status": "queued"}
    accepting.answers[JOB] = lambda _: next(answers, (200, submission(ingested("a"))))
    docs(a_md="1")

    assert mem("ingest", "docs").exit_code == 0


def test_a_submission_whose_answer_was_lost_is_not_made_twice(
    accepting: CannedService, mem: Mem, docs: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.client.LOST_ANSWER_PAUSE_S", 0.01)
    accept: Any = accepting.answers[INGEST]
    lost = iter([(0, None)])
    accepting.answers[INGEST] = lambda said: next(lost, None) or accept(said)
    docs(a_md="1")

    assert mem("ingest", "docs").exit_code == 0
    posts = [
        headers["Idempotency-Key"]
        for (route, _), headers in zip(accepting.asked, accepting.headers, strict=True)
        if route == INGEST
    ]
    assert len(posts) == 2
    assert len(set(posts)) == 1


def test_ctrl_c_says_which_jobs_go_on(
    accepting: CannedService, mem: Mem, docs: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(taking, "look", interrupt)
    docs(a_md="1")

    ran = mem("ingest", "docs")

    assert ran.exit_code == 130
    assert "The service goes on with 1 job:" in ran.stderr
    assert "was not sent" not in ran.stderr
    assert f"  mem jobs wait 00000000{INGEST_ID[8:]}" in ran.stderr.splitlines()
    assert "mem jobs cancel" in ran.stderr


def test_a_service_that_ends_the_submission_says_which_jobs_go_on(
    accepting: CannedService, mem: Mem, docs: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "MOST_FILES", 1)
    accept: Any = accepting.answers[INGEST]
    refused = iter([None, (403, problem(403, "not_permitted"))])
    accepting.answers[INGEST] = lambda said: next(refused) or accept(said)
    docs(a_md="1", b_md="2")

    ran = mem("ingest", "docs")

    assert ran.exit_code == 4
    assert "The rest was not sent." in ran.stderr
    assert f"mem jobs wait 00000000{INGEST_ID[8:]}" in ran.stderr


def test_a_service_that_refuses_the_first_submission_is_not_to_be_asked_later(
    accepting: CannedService, mem: Mem, docs: Folder
) -> None:
    accepting.answers[INGEST] = 403, problem(403, "not_permitted")
    docs(a_md="1", b_md="2")

    ran = mem("ingest", "docs")

    assert ran.exit_code == 4
    assert "was not sent" not in ran.stderr


def test_nothing_to_store_is_said(accepting: CannedService, mem: Mem, docs: Folder) -> None:
    docs(a_png="x")

    ran = mem("ingest", "docs")

    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr == "Nothing to store.\nPassed over: files of other kinds 1.\n"
    assert not accepting.asked


@pytest.mark.parametrize("words", [(), ("docs", "--discover")])
def test_paths_or_discovery_and_not_both(mem: Mem, words: tuple[str, ...]) -> None:
    assert mem("ingest", *words).exit_code == 2


def on_terminal(service: CannedService, away: Path, columns: int, *words: str) -> str:
    """What `mem` shows on a terminal of this width, without its colours and moves."""
    parent, child = pty.openpty()
    environment = {
        **os.environ,
        "POIMEN_URL": service.url,
        "PYTHONPATH": str(ROOT),
        "COLUMNS": str(columns),
        "TERM": "xterm",
    }
    command = [sys.executable, "-c", "from app.cli import main; main()", *words]
    with subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env=environment, cwd=away
    ) as running:
        os.close(child)
        shown = io.BytesIO()
        try:
            while piece := os.read(parent, 65536):
                shown.write(piece)
        except OSError:  # Linux says so at the end
            pass
        running.wait()
    os.close(parent)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue().decode())


@pytest.mark.parametrize("columns", [100, 60])
def test_a_terminal_gets_a_table_of_what_is_new_that_fits(
    accepting: CannedService, mem: Mem, docs: Folder, away: Path, columns: int
) -> None:
    reports = [
        ingested("a"),
        ingested("b", stored=0, unchanged=2),
        ingested("c", status="failed", reason="not text", format=None, received=0, stored=0),
    ]
    accepting.answers[INGEST] = 202, {"id": INGEST_ID, "status": "queued"}
    accepting.answers[JOB] = 200, submission(*reports, status="partial")
    docs(a_md="1", b_md="2", c_md="3")

    shown = on_terminal(accepting, away, columns, "ingest", "docs")

    table = [line for line in shown.splitlines() if re.search(r"FILE|docs/. *|3 files ", line)]
    assert max(len(line) for line in table) <= columns
    assert ["FILE", "FORMAT", "RECEIVED", "STORED", "UNCHANGED"] in [row.split() for row in table]
    assert ["docs/a.md", "markdown", "2", "2", "0"] in [row.split() for row in table]
    assert ["docs/c.md", "failed", "0", "0", "0"] in [row.split() for row in table]
    assert ["3", "files", "4", "2", "2"] in [row.split() for row in table]
    assert not [row for row in table if row.startswith("docs/b.md")]


@pytest.mark.parametrize("name", [".", "..", "/", ""])
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_standard_input_is_called_by_what_names_a_file(
    accepting: CannedService, mem: Mem, name: str, more: list[str]
) -> None:
    ran = mem("ingest", "-", "--name", name, "-p", "poimen", *more, input="x")

    assert ran.exit_code == 2
    assert "names no file" in ran.stderr
    assert not accepting.asked
