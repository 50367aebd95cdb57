"""A project is carried elsewhere and back, and nothing of it changes."""

import gzip
import json
from typing import Any

import pytest

from tests.integration.callers import Caller
from tests.integration.service import Service, fixture_nodes
from tests.integration.uploads import (
    check_whole,
    claude,
    codex,
    counts,
    nodes,
    pi,
    sources,
    take,
    take_one,
)

PAGE = b"---\ntags: [sea]\ndate: 2026-03-01\n---\n# Harbour\n\nPilots board at buoy nine.\n"
TALK = ["yes", "Which gauge? \U0001f600 \u6728", "yes", "Gauge seven."]


def export(service: Service, project: str = "p") -> bytes:
    response = service.get(f"/memory/projects/{project}/export")
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "application/x-ndjson"
    return response.content


def bring(service: Service, data: bytes, project: str = "p", **headers: str) -> dict[str, Any]:
    """The end of an import."""
    accepted = Caller(service, service.key).send(
        "POST", f"/memory/projects/{project}/import", data=data, headers=headers
    )
    assert accepted.status_code == 202, accepted.text
    assert accepted.headers["Location"] == f"/memory/ingest/{accepted.json()['id']}"
    return service.ended(accepted.json()["id"])


def fill(service: Service) -> bytes:
    """A project with something of everything, as it is exported."""
    own = {
        "project": "p",
        "title": "Harbours \u6728",
        "roots": ["/srv/p", "/home/a b/p"],
        "semantic_weight": 0.25,
    }
    assert service.post("/memory/projects", own).status_code == 200
    files = {
        "a.jsonl": claude(TALK),
        "copy/a.jsonl": claude(TALK[:2]),
        "b.jsonl": codex(TALK, "s-2"),
        "harbour.md": PAGE,
        "plain.txt": b"only text",
    }
    assert take(service, files, project="p")["status"] == "completed"
    whole = next(n["sha256"] for n in nodes(service) if n["kind"] == "document")
    l1 = {"level": "L1", "kind": "note", "source": "n", "text": "a note", "id": "l1"}
    l1 |= {"standing_id": "where", "metadata": {"n": {"\u6728": [1.5, None]}}}
    l2 = {"level": "L2", "kind": "synthesis", "source": "n", "text": "of notes", "parents": ["l1"]}
    service.ingest([l1 | {"parents": [whole]}, l2], "p")
    evidence = {"level": "L0", "kind": "document", "source": "e", "span": {}, "title": ""}
    both = [evidence | {"text": text, "id": text} for text in ("wrong", "right")]
    stale = l1 | {"id": "stale", "text": "a stale note", "parents": ["wrong", "right"]}
    service.ingest([*both, stale], "p")
    wrong = next(n["sha256"] for n in nodes(service) if n["text"] == "wrong")
    forgotten = Caller(service, service.key).send("DELETE", f"/memory/nodes/p/{wrong}")
    assert forgotten.json() == {"nodes": 1}
    return export(service)


def rows_of(service: Service, project: str = "p") -> dict[str, list[str]]:
    """All that is stored of a project, in every column that tells something of it."""
    tables = (
        "project",
        "source",
        "memory_node",
        "memory_edge",
        "turn",
        "node_vector",
        "node_count",
    )
    with service.connect() as connection:
        return {
            table: sorted(
                json.dumps(row, sort_keys=True)
                for (row,) in connection.execute(
                    f"SELECT to_jsonb(own) FROM {table} AS own WHERE project = %s".encode(),
                    [project],
                ).fetchall()
            )
            for table in tables
        }


def test_a_project_that_was_exported_forgotten_and_imported_is_the_same_in_every_column(
    empty_service: Service,
) -> None:
    data = fill(empty_service)
    before = rows_of(empty_service)
    assert any('"stale_since": "' in row for row in before["memory_node"])
    file = empty_service.data_dir / "p.jsonl"
    try:
        assert empty_service.mem("export", "p", "-o", str(file)).returncode == 0
        assert file.read_bytes() == data
        assert empty_service.mem("forget", "-p", "p", "--yes").returncode == 0
        assert not any(rows_of(empty_service).values())

        assert empty_service.mem("import", str(file), "-p", "p").returncode == 0
    finally:
        file.unlink(missing_ok=True)

    assert rows_of(empty_service) == before
    assert export(empty_service) == data


def test_a_root_folder_stays_with_the_project_that_has_it(empty_service: Service) -> None:
    data = fill(empty_service)

    bring(empty_service, data, "q")

    known = {
        each["project"]: each for each in empty_service.get("/memory/projects").json()["projects"]
    }
    assert known["q"]["title"] == known["p"]["title"]
    assert (known["q"]["roots"], known["p"]["roots"]) == ([], ["/srv/p", "/home/a b/p"])


def test_an_import_changes_no_title_and_adds_to_the_folders_that_there_are(
    empty_service: Service,
) -> None:
    data = fill(empty_service)
    empty_service.empty()
    own = {"project": "p", "title": "Mine", "roots": ["/srv/mine", "/srv/p"]}
    assert empty_service.post("/memory/projects", own).status_code == 200

    bring(empty_service, data)

    (known,) = empty_service.get("/memory/projects").json()["projects"]
    assert known["title"] == "Mine"
    assert known["roots"] == ["/srv/mine", "/srv/p", "/home/a b/p"]


def test_an_export_of_before_projects_were_told_is_taken(empty_service: Service) -> None:
    data = fill(empty_service)
    lines = [json.loads(line) for line in data.splitlines()]
    later = ("created_at", "updated_at", "stale_since")
    older = [
        json.dumps({name: value for name, value in line.items() if name not in later})
        for line in lines
        if line["type"] != "project"
    ]
    empty_service.empty()

    assert bring(empty_service, "\n".join(older).encode())["status"] == "completed"


def test_a_round_trip_is_exact(empty_service: Service) -> None:
    data = fill(empty_service)
    before = nodes(empty_service)
    known = sources(empty_service)
    empty_service.empty()

    job = bring(empty_service, data)

    assert job["status"] == "completed"
    (report,) = job["files"]
    assert counts(report) == {"received": len(before), "stored": len(before)}
    assert export(empty_service) == data
    assert nodes(empty_service) == before
    assert {name: s["names"] for name, s in sources(empty_service).items()} == {
        name: s["names"] for name, s in known.items()
    }
    check_whole(empty_service)
    asked = {"project": "p", "level": "L0,L1,L2", "limit": 50}
    assert empty_service.ask("harbour", **asked)["results"]


def test_an_import_over_what_is_there_changes_nothing(empty_service: Service) -> None:
    data = fill(empty_service)

    (report,) = bring(empty_service, data)["files"]

    assert counts(report) == {"received": report["received"], "unchanged": report["received"]}
    assert export(empty_service) == data


def test_under_another_name_it_is_the_same_memory(empty_service: Service) -> None:
    data = fill(empty_service)

    job = bring(empty_service, data, "q")

    assert job["status"] == "completed"
    here, there = ([(n["text"], n["vector"]) for n in nodes(empty_service, p)] for p in "pq")
    assert sorted(here) == sorted(there)
    assert not {n["sha256"] for n in nodes(empty_service)} & {
        n["sha256"] for n in nodes(empty_service, "q")
    }
    (hit,) = empty_service.ask("of notes", project="q", level="L2")["results"]
    assert [p["text"] for p in hit["parents"]] == ["a note"]
    assert export(empty_service) == data
    second = export(empty_service, "q")
    bring(empty_service, second, "p")
    assert export(empty_service) == data
    check_whole(empty_service)


def test_an_appended_session_costs_only_its_new_turns_after_an_import(
    empty_service: Service,
) -> None:
    take_one(empty_service, pi(TALK[:3]))
    data = export(empty_service)
    for project in ("p", "q"):
        bring(empty_service, data, project)
        report = take_one(empty_service, pi(TALK), project=project)
        assert counts(report) == {"received": 4, "stored": 1, "unchanged": 3}


def test_an_export_that_was_cut_off_is_told_and_what_there_is_of_it_is_stored(
    empty_service: Service,
) -> None:
    data = fill(empty_service)
    empty_service.empty()
    lines = data.splitlines(keepends=True)

    job = bring(empty_service, b"".join(lines[:-1])[:-20])

    assert job["status"] == "partial"
    (report,) = job["files"]
    assert "cut off" in report["skipped"][-1]["reason"]
    assert len(nodes(empty_service)) == report["received"] == len(lines) - 2 - 4 - 1
    bring(empty_service, data)
    assert export(empty_service) == data


def test_an_export_that_lacks_nodes_is_told(empty_service: Service) -> None:
    data = fill(empty_service)
    empty_service.empty()
    lines = [line for line in data.splitlines(keepends=True) if b'"type": "node"' not in line]

    job = bring(empty_service, b"".join(lines))

    (report,) = job["files"]
    assert "and 0 came" in report["skipped"][-1]["reason"]
    assert job["status"] != "completed"


def test_vectors_of_another_model_are_made_anew(empty_service: Service) -> None:
    data = fill(empty_service)
    before = nodes(empty_service)
    lines = [json.loads(line) for line in data.splitlines()]
    for line in lines:
        if line["type"] == "node":
            line |= {"embedding": [0.6, 0.8], "embedding_model": "another"}
    empty_service.empty()

    job = bring(empty_service, "\n".join(map(json.dumps, lines)).encode())

    assert job["status"] == "completed"
    assert nodes(empty_service) == before


def test_two_exports_in_one_file_and_a_packed_one_are_taken(empty_service: Service) -> None:
    data = fill(empty_service)
    empty_service.empty()

    assert bring(empty_service, gzip.compress(data + data))["status"] == "completed"
    assert export(empty_service) == data


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"text": " "}, "blank"),
        ({"text": "a\0b"}, "U+0000"),
        ({"metadata": {"\0": 1}}, "U+0000"),
        ({"occurred_at": "0001-01-01T00:00:00Z"}, "years"),
        ({"level": "L1", "parents": []}, "rests"),
        ({"level": "L9"}, "level"),
        ({"odd": 1}, "odd"),
        ({"position": -1}, "position"),
    ],
)
def test_a_line_that_cannot_be_stored_costs_its_neighbours_nothing(
    empty_service: Service, damage: dict[str, Any], said: str
) -> None:
    take_one(empty_service, pi(TALK))
    lines = [json.loads(line) for line in export(empty_service).splitlines()]
    empty_service.empty()
    lines[2] |= damage

    job = bring(empty_service, "\n".join(map(json.dumps, lines)).encode())

    assert (job["status"], job["attempts"]) == ("partial", 1)
    (report,) = job["files"]
    (skipped,) = report["skipped"]
    assert skipped["line"] == 3
    assert said in skipped["reason"]
    assert report["stored"] == 3


def test_turns_of_a_source_that_is_not_told_are_stored_all_the_same(
    empty_service: Service,
) -> None:
    take_one(empty_service, pi(TALK))
    lines = export(empty_service).splitlines(keepends=True)
    empty_service.empty()

    job = bring(empty_service, b"".join(line for line in lines if b'"type": "source"' not in line))

    assert (job["status"], job["files"][0]["stored"]) == ("completed", 4)


@pytest.mark.parametrize("data", [b"", b" \n", b"\0\xff", b"{}\n", b"[]", b'{"type": "end"}'])
def test_what_is_no_export_is_refused_or_fails(empty_service: Service, data: bytes) -> None:
    caller = Caller(empty_service, empty_service.key)
    response = caller.send("POST", "/memory/projects/p/import", data=data)
    if not data.strip():
        assert response.status_code == 400
        return
    job = empty_service.ended(response.json()["id"])
    assert (job["status"], job["attempts"]) == ("partial", 1)
    assert empty_service.get("/memory/projects").json()["projects"] == []


def test_a_project_of_several_pages_is_exported_whole(empty_service: Service) -> None:
    many = [
        {"level": "L0", "kind": "turn", "source": "s", "text": f"turn {n % 700}", "position": n}
        for n in range(1200)
    ]
    model = empty_service.ingest(fixture_nodes()[:1]) and _model(empty_service)
    vector = [1.0] + [0.0] * 383
    given = [node | {"embedding": vector, "embedding_model": model} for node in many]
    empty_service.ingest(given, "p")

    data = export(empty_service)

    assert json.loads(data.splitlines()[-1]) == {"type": "end", "nodes": 1200}
    empty_service.empty()
    bring(empty_service, data)
    assert export(empty_service) == data


def _model(service: Service) -> str:
    with service.connect() as connection:
        row = connection.execute("SELECT name FROM embedding_model WHERE is_active").fetchone()
    assert row is not None
    return str(row[0])


def test_only_who_may_see_a_project_exports_it_and_only_who_may_write_brings(
    empty_service: Service,
) -> None:
    data = fill(empty_service)
    other = Caller.new(empty_service, ["q"])

    assert other.send("GET", "/memory/projects/p/export").status_code == 404
    assert other.send("POST", "/memory/projects/p/import", data=data).status_code == 403
    assert other.send("POST", "/memory/projects/No/import", data=data).status_code in (400, 403)
    assert empty_service.get("/memory/projects/none/export").status_code == 404
