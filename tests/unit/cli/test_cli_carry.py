"""`mem export`, `mem import`, `mem forget` and `mem sources`."""

import gzip
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import carry
from tests.unit.cli.canned import (
    INGEST_ID,
    CannedService,
    Mem,
    ingested,
    problem,
    project,
    submission,
)

forget_module = importlib.import_module("app.cli.forget")  # its command has the same name
EXPORT = "GET /memory/projects/poimen/export"
IMPORT = "POST /memory/projects/poimen/import"
JOB = f"GET /memory/ingest/{INGEST_ID}"
SHA = "0f" * 32


def node(label: str, level: str = "L0", *parents: str, text: str = "text") -> dict[str, Any]:
    said = {"type": "node", "occurrence": 0, "level": level, "source": "pi:a", "text": text}
    return {**said, "id": label, **({"parents": list(parents)} if parents else {})}


def lines(*records: dict[str, Any], end: int | None = None) -> bytes:
    count = sum(record["type"] == "node" for record in records) if end is None else end
    told = [{"type": "source", "source": "pi:a", "format": "pi"}, *records]
    told.append({"type": "end", "nodes": count})
    return b"".join(json.dumps(record).encode() + b"\n" for record in told)


@pytest.fixture
def known(service: CannedService) -> CannedService:
    service.answers["GET /memory/projects"] = 200, {"projects": [project("poimen")]}
    return service


# mem export


def test_an_export_goes_to_standard_output_as_it_is(known: CannedService, mem: Mem) -> None:
    whole = lines(node("a"), node("b", "L1", "a"))
    known.answers[EXPORT] = 200, whole

    ran = mem("export", "poimen")

    assert ran.stdout_bytes == whole
    assert ran.stderr == "Exported 2 nodes of poimen.\n"
    assert ran.exit_code == 0


def test_an_export_to_a_file_is_there_once_it_is_complete(
    known: CannedService, mem: Mem, away: Path
) -> None:
    whole = lines(node("a"))
    known.answers[EXPORT] = 200, whole
    file = away / "poimen.jsonl"

    ran = mem("export", "poimen", "-o", str(file))

    assert (ran.exit_code, ran.stdout) == (0, "")
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    "cut", [lines(node("a")).rpartition(b'{"type": "end"')[0], lines(node("a"))[:-9], b""]
)
def test_an_export_that_breaks_off_is_refused_and_leaves_no_file(
    known: CannedService, mem: Mem, away: Path, cut: bytes
) -> None:
    known.answers[EXPORT] = 200, cut
    file = away / "poimen.jsonl"
    file.write_text("the one before")

    ran = mem("export", "poimen", "-o", str(file))

    assert ran.exit_code == 1
    assert "broke off" in ran.stderr
    assert file.read_text() == "the one before"
    assert list(away.iterdir()) == [file]


def test_an_export_to_a_folder_that_is_not_there_names_the_file_that_was_asked_for(
    known: CannedService, mem: Mem, away: Path
) -> None:
    known.answers[EXPORT] = 200, lines(node("a"))
    file = away / "none" / "poimen.jsonl"

    ran = mem("export", "poimen", "-o", str(file))

    assert ran.exit_code == 1
    assert f"mem: {file} cannot be written (No such file or directory)." in ran.stderr
    assert "POIMEN_DATA_DIR" not in ran.stderr


def test_an_export_whose_connection_breaks_is_refused(known: CannedService, mem: Mem) -> None:
    known.answers[EXPORT] = 200, lines(node("a")), {"Content-Length": "99999"}

    ran = mem("export", "poimen")

    assert ran.exit_code == 1


def test_an_export_of_an_unknown_project_names_the_nearest(known: CannedService, mem: Mem) -> None:
    known.answers["GET /memory/projects/poimne/export"] = 404, problem(404, "project_not_found")

    ran = mem("export", "poimne")

    assert ran.exit_code == 2
    assert "Did you mean poimen?" in ran.stderr


# mem import


@pytest.fixture
def taking_in(known: CannedService) -> CannedService:
    def accept(said: bytes) -> tuple[int, dict[str, Any]]:
        count = json.loads(said.splitlines()[-1])["nodes"]
        counts = {"received": count, "stored": count, "format": "export"}
        known.answers[JOB] = 200, submission(ingested("poimen.jsonl", **counts))
        return 202, {"id": INGEST_ID, "status": "queued", "duplicate": False}

    known.answers[IMPORT] = accept
    return known


def imported(service: CannedService) -> list[list[dict[str, Any]]]:
    return [[json.loads(line) for line in said.splitlines()] for said in service.said_to(IMPORT)]


def test_an_import_sends_the_lines_and_tells_what_became_of_them(
    taking_in: CannedService, mem: Mem, away: Path
) -> None:
    whole = lines(node("a"), node("b", "L1", "a"))
    (away / "p.jsonl").write_bytes(whole)

    ran = mem("import", "p.jsonl", "-p", "poimen")

    assert taking_in.said_to(IMPORT) == [whole]
    assert ran.stdout == "p.jsonl\tcompleted\texport\t2\t2\t0\t0\t0\t0\t0\n"
    assert ran.exit_code == 0


def test_an_import_from_standard_input(taking_in: CannedService, mem: Mem) -> None:
    mem("import", "-", "-p", "poimen", input=lines(node("a")))

    assert len(taking_in.said_to(IMPORT)) == 1


def test_a_large_import_goes_in_parts_each_with_all_that_its_nodes_rest_on(
    taking_in: CannedService, mem: Mem, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry, "PART_BYTES", 500)
    evidence = [node(name) for name in "abcdefgh"]
    notes = [node("n1", "L1", "a", "h"), node("n2", "L1", "c"), node("s", "L2", "n1", "n2")]
    (away / "p.jsonl").write_bytes(lines(*evidence, *notes))

    ran = mem("import", "p.jsonl", "-p", "poimen", "--format", "json")

    parts = imported(taking_in)
    assert len(parts) > 2
    sent = set()
    for part in parts:
        labels = [record["id"] for record in part if record["type"] == "node"]
        for record in part:
            before = labels[: labels.index(record["id"])] if "id" in record else []
            assert set(record.get("parents", ())) <= set(before)
        assert part[-1] == {"type": "end", "nodes": len(labels)}
        sent |= set(labels)
    assert sent == {*"abcdefgh", "n1", "n2", "s"}
    (report,) = json.loads(ran.stdout)["files"]
    assert report["received"] == 11


def test_lines_that_a_part_skips_are_told_by_their_number_in_the_file(
    taking_in: CannedService, mem: Mem, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry, "PART_BYTES", 1)
    skipped = [{"line": 1, "reason": "text: is blank"}]
    report = ingested("p", status="partial", received=1, skipped=skipped, skipped_count=1)
    taking_in.answers[IMPORT] = 202, {"id": INGEST_ID}
    taking_in.answers[JOB] = 200, submission(report, status="partial")
    (away / "p.jsonl").write_bytes(lines(node("a"), node("b")))

    ran = mem("import", "p.jsonl", "-p", "poimen")

    assert ran.exit_code == 3
    assert "p.jsonl lines 1, 2, 3: text: is blank" in ran.stderr


def test_a_part_that_is_too_large_for_the_service_is_told_with_what_to_do(
    taking_in: CannedService, mem: Mem, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry, "PART_BYTES", 1)
    accept = taking_in.answers[IMPORT]

    def picky(said: bytes) -> Any:
        assert callable(accept)
        return (413, problem(413, "body_too_large")) if b'"b"' in said else accept(said)

    taking_in.answers[IMPORT] = picky
    (away / "p.jsonl").write_bytes(lines(node("a"), node("b")))

    ran = mem("import", "p.jsonl", "-p", "poimen")

    assert ran.exit_code == 3
    assert "POIMEN_INGEST_MAX_MB" in ran.stderr


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"# One\n", "line 1 is none of an export"),
        (b'{"type": "user"}\n', "line 1 is none of an export"),
        (lines(node("a")).rpartition(b'{"type": "end"')[0], "its last line is missing"),
        (lines(node("a"), end=2), "it has lost lines"),
        (lines(node("a")) * 2, "got some twice"),
        (gzip.compress(lines(node("a"))), "it is compressed; expand it first"),
        (lines(node("a"))[:-9], "in the midst of its last line"),
        (b"", "its last line is missing"),
    ],
)
def test_what_is_no_whole_export_is_not_sent(
    taking_in: CannedService, mem: Mem, away: Path, content: bytes, reason: str
) -> None:
    (away / "p.jsonl").write_bytes(content)

    ran = mem("import", "p.jsonl", "-p", "poimen")

    assert ran.exit_code == 1
    assert reason in ran.stderr
    assert not taking_in.said_to(IMPORT)


# mem forget


@pytest.mark.parametrize(
    ("words", "route", "said"),
    [
        (["--source", "a b.md"], "DELETE /memory/projects/poimen/sources", {"source": "a b.md"}),
        (["--node", SHA], f"DELETE /memory/nodes/poimen/{SHA}", {}),
        (["--node", f"poimen/{SHA}"], f"DELETE /memory/nodes/poimen/{SHA}", {}),
        (["--yes"], "DELETE /memory/projects/poimen", {}),
    ],
)
def test_what_is_named_is_forgotten(
    known: CannedService, mem: Mem, words: list[str], route: str, said: dict[str, str]
) -> None:
    known.answers[route] = 200, {"nodes": 2}

    ran = mem("forget", "-p", "poimen", *words)

    assert known.said_to(route) == [said]
    assert ran.stdout.startswith("Forgot 2 nodes of poimen")
    assert ran.exit_code == 0


def name_of_node(sha256: str) -> dict[str, str]:
    return {"sha256": sha256, "level": "L1", "kind": "note", "source": "notes/a"}


@pytest.mark.parametrize("said", [SHA[:8], f"poimen/{SHA[:12]}", SHA[:63].upper()])
def test_a_node_is_forgotten_by_the_beginning_of_its_sha256(
    known: CannedService, mem: Mem, said: str
) -> None:
    prefix = said.lower().removeprefix("poimen/")
    known.answers["GET /memory/nodes/poimen"] = (
        200,
        {"nodes": [name_of_node(SHA)], "has_more": False},
    )
    known.answers[f"DELETE /memory/nodes/poimen/{SHA}"] = 200, {"nodes": 2}

    ran = mem("forget", "-p", "poimen", "--node", said)

    assert ran.exit_code == 0
    assert known.said_to("GET /memory/nodes/poimen") == [{"prefix": prefix}]
    assert len(known.said_to(f"DELETE /memory/nodes/poimen/{SHA}")) == 1


@pytest.mark.parametrize("has_more", [True, False])
def test_a_beginning_that_several_nodes_have_forgets_none_and_lists_them(
    known: CannedService, mem: Mem, has_more: bool
) -> None:
    both = [name_of_node(SHA), name_of_node(SHA[:60] + "ffff")]
    known.answers["GET /memory/nodes/poimen"] = 200, {"nodes": both, "has_more": has_more}

    ran = mem("forget", "-p", "poimen", "--node", SHA[:8])

    assert ran.exit_code == 2
    assert all(f"{node['sha256']}  L1 note  notes/a" in ran.stderr for node in both)
    assert ("and more" in ran.stderr) == has_more
    assert not any(asked.startswith("DELETE") for asked, *_ in known.asked)

    ran = mem("forget", "-p", "poimen", "--node", SHA[:8], "--format", "json")
    assert json.loads(ran.stdout)["error"]["nodes"] == both


def test_a_beginning_that_no_node_has_is_told_with_where_to_look(
    known: CannedService, mem: Mem
) -> None:
    known.answers["GET /memory/nodes/poimen"] = 200, {"nodes": [], "has_more": False}

    ran = mem("forget", "-p", "poimen", "--node", SHA[:8])

    assert ran.exit_code == 1
    assert "mem sources -p poimen" in ran.stderr


def test_a_whole_project_is_not_forgotten_without_being_asked(
    known: CannedService, mem: Mem
) -> None:
    ran = mem("forget", "-p", "poimen")

    assert ran.exit_code == 2
    assert "--yes" in ran.stderr
    assert not known.asked


@pytest.mark.parametrize(("reply", "code"), [("poimen\n", 0), ("yes\n", 1), ("\n", 1)])
def test_at_a_terminal_the_projects_name_is_asked_for(
    known: CannedService, mem: Mem, monkeypatch: pytest.MonkeyPatch, reply: str, code: int
) -> None:
    monkeypatch.setattr(forget_module, "can_ask", lambda: True)
    known.answers["DELETE /memory/projects/poimen"] = 200, {"nodes": 6}

    ran = mem("forget", "-p", "poimen", input=reply)

    assert "poimen with 6 nodes" in ran.stderr
    assert ran.exit_code == code
    assert len(known.said_to("DELETE /memory/projects/poimen")) == (code == 0)


@pytest.mark.parametrize(
    ("words", "route", "code"),
    [
        (["--source", "x"], "DELETE /memory/projects/poimen/sources", "source_not_found"),
        (["--node", SHA], f"DELETE /memory/nodes/poimen/{SHA}", "node_not_found"),
    ],
)
def test_what_is_not_there_is_told_with_where_to_look(
    known: CannedService, mem: Mem, words: list[str], route: str, code: str
) -> None:
    known.answers[route] = 404, problem(404, code)

    ran = mem("forget", "-p", "poimen", *words)

    assert ran.exit_code == 1
    assert "mem sources -p poimen" in ran.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--node", "0f0f0f0"],
        ["--node", "0f0f0f0g"],
        ["--node", f"{SHA}0"],
        ["--node", SHA, "--source", "x"],
        ["--source"],
    ],
)
def test_a_wrong_forget_is_a_usage_error(known: CannedService, mem: Mem, words: list[str]) -> None:
    assert mem("forget", "-p", "poimen", *words).exit_code == 2
    assert not known.asked


# mem sources


def source(name: str, **members: Any) -> dict[str, Any]:
    told = {"source": name, "format": "markdown", "title": "Kong", "nodes": 7}
    return {**told, "updated_at": "2026-08-03T10:00:00Z", **members}


def test_sources_are_listed_page_by_page(known: CannedService, mem: Mem) -> None:
    def page(said: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if said.get("after") == "a.md":
            return 200, {"sources": [source("b.md", title=None)], "next_after": None}
        return 200, {"sources": [source("a.md")], "next_after": "a.md"}

    known.answers["GET /memory/projects/poimen/sources"] = page

    ran = mem("sources", "-p", "poimen")

    assert ran.stdout.splitlines() == [
        "a.md\tmarkdown\t7\t2026-08-03T10:00:00Z\tKong",
        "b.md\tmarkdown\t7\t2026-08-03T10:00:00Z\t-",
    ]


def test_sources_are_those_of_the_project_of_this_folder(
    service: CannedService, mem: Mem, away: Path
) -> None:
    service.answers["GET /memory/projects"] = 200, {"projects": [project("here", away)]}
    route = "GET /memory/projects/here/sources"
    service.answers[route] = 200, {"sources": [], "next_after": None}

    ran = mem("sources", "--format", "json")

    assert json.loads(ran.stdout) == {"project": "here", "sources": []}
