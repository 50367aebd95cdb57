"""The memory that tests and the demo share has the shape they rely on."""

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from workers.model import PROJECT_NAME, Kind, Level

FIXTURE = Path(__file__).parents[1] / "fixtures" / "memory_nodes.jsonl"
KINDS = {
    "L0": {Kind.TURN, Kind.DOCUMENT},
    "L1": {Kind.NOTE, Kind.CHUNK},
    "L2": {Kind.SYNTHESIS},
}
MEMBERS = {
    *("project", "id", "level", "kind", "source", "position", "text", "parents", "occurred_at"),
    *("title", "breadcrumb", "span", "standing_id", "tags", "metadata"),
}

Node = dict[str, Any]


@pytest.fixture(scope="module")
def nodes() -> list[Node]:
    return [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]


def test_it_holds_two_projects_with_every_level_and_kind(nodes: list[Node]) -> None:
    assert {node["project"] for node in nodes} == {"poimen", "agent-rust"}
    assert all(re.fullmatch(PROJECT_NAME, node["project"]) for node in nodes)
    for project in ("poimen", "agent-rust"):
        levels = Counter(node["level"] for node in nodes if node["project"] == project)
        assert set(levels) == set(Level)
    assert {node["kind"] for node in nodes} == set(Kind)
    assert all(node["kind"] in KINDS[node["level"]] for node in nodes)
    assert 55 <= len(nodes) <= 75


def test_ids_are_unique_and_only_known_members_are_used(nodes: list[Node]) -> None:
    assert len({node["id"] for node in nodes}) == len(nodes)
    assert set().union(*nodes) <= MEMBERS


def test_every_node_but_evidence_has_parents_one_level_below_in_its_project(
    nodes: list[Node],
) -> None:
    by_id = {node["id"]: node for node in nodes}
    below = {"L1": "L0", "L2": "L1"}
    for node in nodes:
        parents = [by_id[label] for label in node.get("parents", ())]
        assert bool(parents) == (node["level"] != "L0"), node["id"]
        for parent in parents:
            assert parent["level"] == below[node["level"]]
            assert parent["project"] == node["project"]
    assert all(len(node["parents"]) > 1 for node in nodes if node["level"] == "L2")
    assert sum(len(node.get("parents", ())) > 1 for node in nodes if node["level"] == "L1") >= 5


def test_turns_have_a_position_and_chunks_a_place_in_their_document(nodes: list[Node]) -> None:
    for node in nodes:
        if node["kind"] == Kind.TURN:
            assert node["position"] >= 0
            assert node["metadata"]["role"] in ("user", "assistant")
        if node["kind"] == Kind.CHUNK:
            assert node["title"]
            assert node["breadcrumb"]
            assert 0 < node["span"]["start_line"] < node["span"]["end_line"]
        assert (node["kind"] == Kind.NOTE) == ("standing_id" in node)


def test_instants_are_utc(nodes: list[Node]) -> None:
    for node in nodes:
        assert node["occurred_at"].endswith("Z")
        datetime.fromisoformat(node["occurred_at"])


def test_the_body_buffer_note_rests_on_turn_42_of_its_session(nodes: list[Node]) -> None:
    (note,) = (node for node in nodes if node.get("standing_id") == "infra-root-causes")
    evidence = next(node for node in nodes if node["id"] == note["parents"][0])

    assert (note["project"], note["level"]) == ("poimen", "L1")
    assert (evidence["source"], evidence["position"]) == ("pi:2026-07-21-019f857d", 42)
    assert "413" in note["text"]


def test_one_text_is_in_both_projects_with_parents_of_its_own(nodes: list[Node]) -> None:
    texts = Counter(node["text"] for node in nodes)
    ((shared, _),) = [pair for pair in texts.items() if pair[1] > 1]
    one, other = (node for node in nodes if node["text"] == shared)

    assert {one["project"], other["project"]} == {"poimen", "agent-rust"}
    assert (one["level"], one["kind"], one["source"]) == (
        other["level"],
        other["kind"],
        other["source"],
    )
    assert not set(one["parents"]) & set(other["parents"])
