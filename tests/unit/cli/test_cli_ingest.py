"""`mem ingest --as nodes`: what is sent, and what is told of every line."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.canned import Answer, CannedService, Mem, problem, project

INGEST = "POST /memory/ingest"
JOB = "GET /memory/ingest/j1"


def job(status: str = "completed", **members: Any) -> dict[str, Any]:
    counts = {"received": 2, "stored": 2, "updated": 0, "unchanged": 0}
    said = {
        "id": "j1",
        "status": status,
        "project": "poimen",
        "format": "nodes",
        "attempts": 1,
        "error": None,
        "progress": {"done": 2, "total": 2},
        "files": [{"name": "nodes", **counts, "skipped": [], "skipped_count": 0}],
    }
    return said | members


def line(label: str, **members: Any) -> bytes:
    node = {"id": label, "level": "L0", "kind": "turn", "source": "pi:a", "text": label}
    return json.dumps(node | members).encode() + b"\n"


@pytest.fixture
def accepting(service: CannedService) -> CannedService:
    service.answers[INGEST] = 202, {"id": "j1", "status": "queued"}
    service.answers[JOB] = 200, job()
    return service


def written(folder: Path, *lines: bytes) -> str:
    file = folder / "notes.jsonl"
    file.write_bytes(b"".join(lines))
    return str(file)


def test_every_line_is_sent_and_the_counts_are_told(
    accepting: CannedService, mem: Mem, away: Path
) -> None:
    file = written(away, line("a"), b"\n", line("b"))

    ran = mem("ingest", file, "--as", "nodes", "--project", "poimen")

    sent = accepting.said_to(INGEST)[0]
    assert (sent["format"], sent["project"]) == ("nodes", "poimen")
    assert [node["id"] for node in sent["nodes"]] == ["a", "b"]
    assert ran.exit_code == 0
    assert ran.stdout == (
        f"{file}: completed; 2 received, 2 stored, 0 updated, 0 unchanged, 0 skipped\n"
    )
    assert ran.stderr == ""


def test_it_waits_for_the_end_of_the_job(accepting: CannedService, mem: Mem, away: Path) -> None:
    states = iter(["queued", "running", "completed"])
    accepting.answers[JOB] = lambda _: (200, job(next(states)))

    ran = mem("ingest", written(away, line("a")), "--as", "nodes", "-p", "poimen")

    assert "completed" in ran.stdout
    assert len(accepting.said_to(JOB)) == 3


def test_bad_lines_are_refused_by_number_and_the_others_go_in(
    accepting: CannedService, mem: Mem, away: Path
) -> None:
    bad = (b"{oops\n", b"[1, 2]\n", b'{"text": "\xff"}\n', b'{"position": NaN}\n', b"[" * 9999)
    file = written(away, b"\xef\xbb\xbf" + line("a"), b" \n", *bad)

    ran = mem("ingest", file, "--as", "nodes", "-p", "poimen")

    assert [node["id"] for node in accepting.said_to(INGEST)[0]["nodes"]] == ["a"]
    said = ran.stderr.splitlines()
    assert said[0].startswith(f"{file} line 3: not JSON")
    assert said[1] == f"{file} line 4: not a JSON object"
    assert said[2] == f"{file} line 5: not UTF-8 (byte 0xff)"
    assert said[3] == f"{file} line 6: not JSON: NaN is not a JSON number"
    assert said[4] == f"{file} line 7: is nested too deeply"
    assert ran.exit_code == 3
    assert "6 received" in ran.stdout
    assert "5 skipped" in ran.stdout


def test_lines_the_service_skips_are_named_by_their_number_in_the_file(
    accepting: CannedService, mem: Mem, away: Path
) -> None:
    skipped = {"skipped": [{"line": 2, "reason": "no parent"}], "skipped_count": 1}
    files = [{"name": "nodes", "received": 2, "stored": 1, "updated": 0, "unchanged": 0, **skipped}]
    accepting.answers[JOB] = 200, job("partial", files=files)
    file = written(away, line("a"), b"\n", b"nonsense\n", line("b"))

    ran = mem("ingest", file, "--as", "nodes", "-p", "poimen")

    assert ran.stderr.splitlines()[-1] == f"{file} line 4: no parent"
    assert ran.exit_code == 3
    assert "2 skipped" in ran.stdout


def test_a_failed_job_is_told_and_exits_1(accepting: CannedService, mem: Mem, away: Path) -> None:
    error = {"code": "embedding_service_unavailable", "message": "no\x1b model"}
    accepting.answers[JOB] = 200, job("failed", files=[], error=error)
    file = written(away, line("a"))

    ran = mem("ingest", file, "--as", "nodes", "-p", "poimen")

    assert ran.exit_code == 1
    assert ran.stderr == f"{file}: no\\x1b model (embedding_service_unavailable)\n"


def test_without_waiting_the_jobs_id_is_the_output(
    accepting: CannedService, mem: Mem, away: Path
) -> None:
    ran = mem("ingest", written(away, line("a")), "--as", "nodes", "-p", "poimen", "--no-wait")

    assert (ran.exit_code, ran.stdout) == (0, "j1\n")
    assert not accepting.said_to(JOB)


def test_json_is_one_document_for_all_files(accepting: CannedService, mem: Mem, away: Path) -> None:
    one = written(away, line("a"), b"nonsense\n")
    other = away / "other.jsonl"
    other.write_bytes(line("b"))

    ran = mem("ingest", one, str(other), "--as", "nodes", "-p", "poimen", "--format", "json")

    files = json.loads(ran.stdout)["files"]
    assert [(file["path"], file["job"]) for file in files] == [(one, "j1"), (str(other), "j1")]
    assert [skipped["line"] for skipped in files[0]["skipped"]] == [2]
    assert (ran.exit_code, ran.stderr) == (3, "")


def test_nodes_that_name_their_project_need_none_from_here(
    accepting: CannedService, mem: Mem, away: Path
) -> None:
    mem("ingest", written(away, line("a", project="poimen")), "--as", "nodes")

    assert "project" not in accepting.said_to(INGEST)[0]


def test_nodes_without_a_project_go_to_the_one_of_this_folder(
    accepting: CannedService, mem: Mem, away: Path
) -> None:
    accepting.answers["GET /memory/projects"] = 200, {"projects": [project("here", away)]}

    mem("ingest", written(away, line("a")), "--as", "nodes")

    assert accepting.said_to(INGEST)[0]["project"] == "here"


def test_nodes_without_a_project_are_not_stored_anywhere_by_guess(
    accepting: CannedService, mem: Mem, away: Path
) -> None:
    accepting.answers["GET /memory/projects"] = 200, {"projects": []}

    ran = mem("ingest", written(away, line("a")), "--as", "nodes")

    assert ran.exit_code == 2
    assert "--project" in ran.stderr
    assert "--all-projects" not in ran.stderr
    assert not accepting.said_to(INGEST)


@pytest.mark.parametrize(
    ("content", "looks_like"),
    [
        (b'[\n{"id": "a"},\n{"id": "b"}\n]\n', "an array"),
        (b'[{"id": "a"}, {"id": "b"}]\n', "an array"),
        (b'[ {"id": "a"},\n  {"id": "b"}]\n', "an array"),
        (b'\n{\n  "id": "a"\n}\n', "one over several lines"),
    ],
)
def test_a_file_of_another_shape_is_told_once_and_nothing_of_it_is_sent(
    accepting: CannedService, mem: Mem, away: Path, content: bytes, looks_like: str
) -> None:
    ran = mem("ingest", written(away, content), "--as", "nodes", "-p", "poimen")

    assert ran.exit_code == 1
    (said,) = ran.stderr.splitlines()
    assert "one object a line" in said
    assert f"looks like {looks_like}" in said
    assert not accepting.said_to(INGEST)


def test_a_reason_is_told_once_with_the_lines_it_holds_for(
    accepting: CannedService, mem: Mem, away: Path
) -> None:
    file = written(away, *[b"5\n"] * 13, line("a"), b"5\n")

    ran = mem("ingest", file, "--as", "nodes", "-p", "poimen")

    assert ran.stderr.splitlines() == [
        f"{file} lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 4 more: not a JSON object"
    ]
    assert ran.exit_code == 3


def test_no_more_reasons_are_told_than_a_person_reads(
    accepting: CannedService, mem: Mem, away: Path
) -> None:
    skipped = [{"line": place, "reason": f"reason {place}"} for place in range(1, 31)]
    counts = {"received": 40, "stored": 0, "updated": 0, "unchanged": 0, "skipped_count": 40}
    accepting.answers[JOB] = 200, job("partial", files=[{**counts, "skipped": skipped}])
    file = written(away, *[line(str(number)) for number in range(40)])

    ran = mem("ingest", file, "--as", "nodes", "-p", "poimen")

    said = ran.stderr.splitlines()
    assert len(said) == 21
    assert said[19] == f"{file} line 20: reason 20"
    assert said[20] == f"{file}: and 20 more lines were skipped"


def test_standard_input_is_a_file_too(accepting: CannedService, mem: Mem) -> None:
    mem("ingest", "-", "--as", "nodes", "-p", "poimen", input=line("a"))

    assert len(accepting.said_to(INGEST)[0]["nodes"]) == 1


@pytest.mark.parametrize(("content", "exit_code"), [(b"", 0), (b"\n\n", 0), (b"nonsense\n", 1)])
def test_a_file_without_any_node_sends_nothing(
    accepting: CannedService, mem: Mem, away: Path, content: bytes, exit_code: int
) -> None:
    ran = mem("ingest", written(away, content), "--as", "nodes", "-p", "poimen")

    assert ran.exit_code == exit_code
    assert ("holds no nodes" in ran.stderr) is (exit_code == 0)
    assert not accepting.said_to(INGEST)


def test_a_missing_file_is_a_usage_error(accepting: CannedService, mem: Mem) -> None:
    ran = mem("ingest", "absent.jsonl", "--as", "nodes", "-p", "poimen")

    assert ran.exit_code == 2
    assert "absent.jsonl" in ran.stderr
    assert accepting.asked == []


@pytest.mark.parametrize(
    ("answer", "exit_code"),
    [
        ((403, problem(403, "not_permitted")), 4),
        ((413, problem(413, "body_too_large")), 1),
        ((400, problem(400, "invalid_parameters")), 2),
    ],
)
def test_a_refused_submission_exits_with_the_code_of_its_kind(
    accepting: CannedService, mem: Mem, away: Path, answer: Answer, exit_code: int
) -> None:
    accepting.answers[INGEST] = answer

    ran = mem("ingest", written(away, line("a")), "--as", "nodes", "-p", "poimen")

    assert ran.exit_code == exit_code
    assert "request 7f3a91" in ran.stderr
