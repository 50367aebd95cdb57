"""Whether what is stored can still be traced: what was changed beside the service is found."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.service import Service
from tests.integration.test_export import fill
from workers.ingest.nodes import node_sha256
from workers.model import Kind, Level

Found = dict[str, Any]


@pytest.fixture
def memory(empty_service: Service) -> Service:
    """A project with sessions, documents, a note and a synthesis."""
    fill(empty_service)
    return empty_service


def verified(service: Service, *options: str, exits_with: int = 0) -> Found:
    ran = service.mem("verify", "--format", "json", *options)
    assert ran.returncode == exits_with, ran.stderr
    found: Found = json.loads(ran.stdout)
    return found


def change(service: Service, statement: str) -> None:
    with service.connect() as connection:
        connection.execute(statement.encode())


@pytest.fixture
def unguarded(memory: Service) -> Iterator[Service]:
    """A memory as a bad restore leaves it, in which edges may lead nowhere."""
    names = ("child", "parent")
    with memory.connect() as connection:
        for name in names:
            connection.execute(
                f"ALTER TABLE memory_edge DROP CONSTRAINT memory_edge_project_{name}_fkey"
            )
    yield memory
    with memory.connect() as connection:
        connection.execute("DELETE FROM memory_edge")
        for name in names:
            connection.execute(
                f"ALTER TABLE memory_edge ADD CONSTRAINT memory_edge_project_{name}_fkey"
                f" FOREIGN KEY (project, {name}) REFERENCES memory_node ON DELETE CASCADE"
            )


def count(service: Service, statement: str) -> int:
    with service.connect() as connection:
        (row,) = connection.execute(statement.encode()).fetchall()
    return int(row[0])


def test_what_was_stored_through_the_service_is_sound(memory: Service) -> None:
    found = verified(memory)

    nodes = count(memory, "SELECT count(*) FROM memory_node")
    assert found["nodes"] == found["hashes_checked"] == nodes > 10
    assert found["edges"] == count(memory, "SELECT count(*) FROM memory_edge")
    chunks = "SELECT count(*) FROM memory_node WHERE kind = 'chunk'"
    assert found["citations_checked"] == count(memory, chunks) > 0
    assert (found["broken"], found["hashes_wrong"], found["citations_wrong"]) == (0, 0, 0)
    assert found["findings"] == []


def test_a_text_that_was_changed_beside_the_service_is_the_one_finding(memory: Service) -> None:
    change(
        memory,
        "UPDATE memory_node SET text = text || '.' WHERE (project, sha256) = ("
        "SELECT project, sha256 FROM memory_node WHERE kind = 'turn' ORDER BY sha256 LIMIT 1)",
    )

    found = verified(memory, exits_with=5)

    (finding,) = found["findings"]
    assert (found["hashes_wrong"], found["broken"], found["citations_wrong"]) == (1, 0, 0)
    assert (finding["problem"], finding["level"]) == ("hash_wrong", "L0")


def test_a_document_that_was_changed_no_longer_holds_what_its_chunks_cite(memory: Service) -> None:
    change(
        memory,
        "UPDATE memory_node SET text = 'moved ' || text WHERE source LIKE '%.md' AND level = 'L0'",
    )

    found = verified(memory, exits_with=5)

    wrong = {each["problem"] for each in found["findings"]}
    assert wrong == {"hash_wrong", "citation_wrong"}
    assert found["citations_wrong"] > 0


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM memory_edge WHERE child IN ({note})", "no_evidence"),
        ("DELETE FROM memory_node WHERE kind = 'note'", "no_child"),
        ("DELETE FROM memory_node WHERE kind = 'note'", "edge_broken"),
        ("UPDATE memory_node SET level = 'L0' WHERE kind = 'synthesis'", "edge_broken"),
    ],
)
def test_an_edge_that_leads_to_no_evidence_is_found(
    unguarded: Service, statement: str, problem: str
) -> None:
    change(unguarded, statement.format(note="SELECT sha256 FROM memory_node WHERE kind = 'note'"))

    found = verified(unguarded, exits_with=5)

    assert problem in {each["problem"] for each in found["findings"]}
    assert found["broken"] > 0


def test_a_stale_note_is_counted_and_is_no_fault(memory: Service) -> None:
    before = verified(memory)["stale"]

    change(memory, "UPDATE memory_node SET stale_since = now() WHERE kind = 'synthesis'")

    assert verified(memory)["stale"] == before + 1


def test_one_project_is_looked_at_alone_and_findings_are_cut(memory: Service) -> None:
    memory.ingest([{"level": "L0", "kind": "turn", "source": "s", "text": "one"}], "other")
    change(memory, "UPDATE memory_node SET text = 'changed' WHERE project = 'p'")

    alone = verified(memory, "-p", "other")
    cut = verified(memory, "--findings", "2", exits_with=5)
    unknown = memory.mem("verify", "-p", "nope")

    assert (alone["projects"], alone["nodes"], alone["findings"]) == (1, 1, [])
    assert len(cut["findings"]) == 2 < cut["hashes_wrong"]
    assert (unknown.returncode, "no project nope" in unknown.stderr) == (1, True)


def test_without_json_each_finding_is_a_row_and_the_counts_go_beside_it(memory: Service) -> None:
    change(memory, "UPDATE memory_node SET text = 'changed' WHERE text = 'a note'")

    ran = memory.mem("verify")

    assert ran.returncode == 5
    name, problem, source, message = ran.stdout.rstrip("\n").split("\t")
    assert (name.startswith("p/"), problem, source) == (True, "hash_wrong", "n")
    assert message.startswith("its text")
    assert "1 with a wrong hash" in ran.stderr


def test_a_text_larger_than_what_is_read_at_a_time_leaves_nothing_out(memory: Service) -> None:
    with memory.connect() as connection:
        for text in ("word " * 2_000_000, "after it", "and one more"):
            sha256 = node_sha256("p", Level.L0, Kind.DOCUMENT, "large", text, 0)
            connection.execute(
                "INSERT INTO memory_node (project, sha256, level, kind, source, text)"
                " VALUES ('p', %s, 'L0', 'document', 'large', %s)",
                [sha256, text],
            )

    found = verified(memory)

    assert found["nodes"] == count(memory, "SELECT count(*) FROM memory_node")
    assert found["findings"] == []
