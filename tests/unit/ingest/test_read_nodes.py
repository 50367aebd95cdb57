"""Nodes as they are submitted: what each becomes, and why some are refused."""

import hashlib
import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.contracts import NodeBody
from workers.ingest.nodes import Refusal, node_sha256, read_nodes
from workers.model import EmbeddingModel, Level, Node

MODEL = EmbeddingModel("mini", None, 3)
STORED = "ab" * 32


def turn(text: str = "it broke", **members: Any) -> dict[str, Any]:
    return {"level": "L0", "kind": "turn", "source": "pi:1", "text": text} | members


def note(*parents: str, text: str = "why it broke", **members: Any) -> dict[str, Any]:
    return turn(text, level="L1", kind="note", parents=list(parents)) | members


def synthesis(*parents: str, text: str = "what breaks", **members: Any) -> dict[str, Any]:
    return turn(text, level="L2", kind="synthesis", parents=list(parents)) | members


class Stored:
    """Nodes that projects already hold."""

    def __init__(self, **levels: Level) -> None:
        self.levels = levels
        self.asked: list[str] = []

    def __call__(self, project: str, shas: Iterable[str]) -> dict[str, Level]:
        asked = list(shas)
        self.asked += asked
        return {sha: self.levels[sha] for sha in asked if project == "p" and sha in self.levels}


def read(
    *bodies: object,
    project: str | None = "p",
    writable: frozenset[str] | None = None,
    stored: Stored | None = None,
) -> tuple[list[Node], list[Refusal]]:
    return read_nodes(bodies, project, writable, MODEL, stored or Stored())


def taken(*bodies: object, **options: Any) -> list[Node]:
    nodes, refusals = read(*bodies, **options)
    assert refusals == []
    return nodes


def refused(*bodies: object, **options: Any) -> dict[int, str]:
    """Reasons by line."""
    return {refusal.line: refusal.reason for refusal in read(*bodies, **options)[1]}


def test_a_node_s_name_is_the_hash_of_a_compact_json_array_in_utf_8() -> None:
    written = '["p","L0","turn","pi:1","Größe \\"9\\" 木\\n",0]'

    (node,) = taken(turn('Größe "9" 木\n'))

    assert node.sha256 == hashlib.sha256(written.encode("utf-8")).hexdigest()


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=5, max_size=5))
def test_the_name_is_what_any_json_library_would_hash(parts: list[str]) -> None:
    project, level, kind, source, text = parts
    array = json.dumps([*parts, 7], ensure_ascii=False, separators=(",", ":"))

    name = node_sha256(project, level, kind, source, text, occurrence=7)

    assert name == hashlib.sha256(array.encode()).hexdigest()


def test_equal_texts_of_one_source_are_told_apart_by_their_occurrence() -> None:
    nodes = taken(turn("ok"), turn("other"), turn("ok"))

    names = {node.sha256 for node in nodes if node.text == "ok"}
    assert names == {node_sha256("p", "L0", "turn", "pi:1", "ok", n) for n in (0, 1)}


def test_an_inserted_paragraph_renames_nothing_below_it() -> None:
    before = taken(turn("first", position=0), turn("second", position=1))
    after = taken(turn("new", position=0), turn("first", position=1), turn("second", position=2))

    assert {node.sha256 for node in before} < {node.sha256 for node in after}


@pytest.mark.parametrize(
    "members",
    [{"source": "pi:2"}, {"kind": "document"}, {"project": "q"}, {"text": "It broke"}],
)
def test_what_a_node_is_makes_its_name(members: dict[str, str]) -> None:
    (one,) = taken(turn(project="p"), project=None)
    (other,) = taken(turn(project="p") | members, project=None)

    assert one.sha256 != other.sha256


@pytest.mark.parametrize(
    "members",
    [{"position": 4}, {"tags": ["x"]}, {"metadata": {"a": 1}}, {"title": "t"}, {"id": "label"}],
)
def test_what_is_said_about_a_node_does_not_change_its_name(members: dict[str, Any]) -> None:
    assert taken(turn())[0].sha256 == taken(turn(**members))[0].sha256


def test_everything_said_about_a_node_is_kept() -> None:
    said = {
        "position": 42,
        "occurred_at": "2026-07-21T11:52:03+02:00",
        "title": "Kong",
        "breadcrumb": ["runbooks", "kong"],
        "span": {"start_line": 3},
        "standing_id": "infra",
        "tags": ["incident"],
        "metadata": {"role": "assistant", "deep": [{"木": None}]},
    }

    (node,) = taken(turn(**said))

    assert (node.position, node.title, node.standing_id) == (42, "Kong", "infra")
    assert node.occurred_at == datetime(2026, 7, 21, 9, 52, 3, tzinfo=UTC)
    assert (node.breadcrumb, node.tags) == (("runbooks", "kong"), ("incident",))
    assert (node.span, node.metadata) == (said["span"], said["metadata"])
    assert node.parents == ()


def test_parents_are_named_by_labels_of_the_same_submission() -> None:
    evidence, other, synthesized, noted = (
        turn("a", id="a"),
        turn("b", id="b"),
        synthesis("n"),
        note("b", "a", id="n"),
    )

    by_text = {node.text: node for node in taken(synthesized, noted, evidence, other)}

    assert by_text["why it broke"].parents == (by_text["b"].sha256, by_text["a"].sha256)
    assert by_text["what breaks"].parents == (by_text["why it broke"].sha256,)


def test_parents_are_named_by_the_sha256_of_what_is_already_stored() -> None:
    (node,) = taken(note(STORED), stored=Stored(**{STORED: Level.L0}))

    assert node.parents == (STORED,)


def test_parents_are_named_by_the_sha256_of_what_is_submitted_beside_them() -> None:
    sha256 = node_sha256("p", "L0", "turn", "pi:1", "it broke", 0)

    nodes = taken(note(sha256), turn())

    assert nodes[-1].parents == (sha256,)


def test_a_parent_named_twice_is_one_parent() -> None:
    sha256 = node_sha256("p", "L0", "turn", "pi:1", "it broke", 0)

    nodes = taken(turn(id="a"), note("a", "a", sha256))

    assert nodes[-1].parents == (sha256,)


def test_labels_are_not_looked_for_in_the_store() -> None:
    stored = Stored()

    taken(turn(id="a"), note("a"), stored=stored)

    assert stored.asked == []


def test_parents_come_before_their_children() -> None:
    nodes = taken(synthesis("n"), note("t", id="n"), turn(id="t"))

    assert [node.level for node in nodes] == [Level.L0, Level.L1, Level.L2]


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_lines_does_not_matter(chance: random.Random) -> None:
    bodies = [
        turn("a", id="a"),
        turn("b", id="b"),
        note("b", "a", id="n"),
        note("a", text="more", id="m"),
        synthesis("n", "m", id="s"),
        note("nowhere", text="lost"),
    ]

    nodes, refusals = read(*chance.sample(bodies, len(bodies)))

    expected = read(*bodies)[0]
    assert sorted(nodes, key=lambda node: node.sha256) == sorted(expected, key=lambda n: n.sha256)
    assert len(refusals) == 1


def test_a_note_without_parents_is_refused() -> None:
    reasons = refused(note(), synthesis(), turn())

    assert set(reasons) == {1, 2}
    assert all("needs a parent" in reason for reason in reasons.values())


def test_an_unknown_parent_refuses_the_child_and_names_it() -> None:
    assert refused(note("nowhere")) == {1: "parent 'nowhere' does not exist in project 'p'"}


def test_a_refused_node_takes_what_stands_on_it_with_it_and_nothing_else() -> None:
    nodes, refusals = read(
        turn("good", id="good"),
        turn("", id="blank"),
        note("blank", id="on-blank"),
        synthesis("on-blank"),
        note("good", text="fine"),
    )

    assert [node.text for node in nodes] == ["good", "fine"]
    assert [refusal.line for refusal in refusals] == [2, 3, 4]
    assert refusals[1].reason == "parent 'blank' was refused (line 2) in project 'p'"
    assert refusals[2].reason == "parent 'on-blank' was refused (line 3) in project 'p'"


@pytest.mark.parametrize(
    "child",
    [
        note("n", text="beside"),
        note("s", text="above"),
        synthesis("s", text="beside"),
        turn("evidence", parents=["t"]),
    ],
)
def test_parents_are_of_a_lower_level(child: dict[str, Any]) -> None:
    bodies = [turn(id="t"), note("t", id="n"), synthesis("n", id="s"), child]

    assert "parents are of a lower level" in refused(*bodies)[4]


def test_a_stored_parent_is_of_a_lower_level_too() -> None:
    reasons = refused(note(STORED), stored=Stored(**{STORED: Level.L1}))

    assert "parents are of a lower level" in reasons[1]


def test_a_node_cannot_stand_on_itself() -> None:
    assert "lower level" in refused(note("me", id="me"))[1]


def test_a_label_names_one_node() -> None:
    reasons = refused(turn("a", id="x"), turn("b", id="x"))

    assert reasons == {2: "id 'x' was already used in line 1"}


def test_labels_of_two_projects_are_apart() -> None:
    nodes = taken(
        turn(id="x", project="p"),
        turn(id="x", project="q"),
        note("x", project="p"),
        note("x", project="q"),
        project=None,
    )

    assert len({node.sha256 for node in nodes}) == 4
    assert {node.project: node.parents[0] for node in nodes if node.parents} == {
        node.project: node.sha256 for node in nodes if not node.parents
    }


def test_a_parent_of_another_project_does_not_exist() -> None:
    reasons = refused(turn(id="x", project="q"), note("x", project="p"), project=None)

    assert reasons == {2: "parent 'x' does not exist in project 'p'"}


def test_the_submission_s_project_and_the_node_s_may_not_differ() -> None:
    reasons = refused(turn(project="q"), turn(project="p"))

    assert list(reasons) == [1]
    assert "conflicts" in reasons[1]


def test_a_node_without_any_project_is_refused() -> None:
    assert "no project" in refused(turn(), project=None)[1]


def test_a_key_s_projects_bound_what_it_may_write() -> None:
    reasons = refused(turn(project="p"), turn(project="q"), project=None, writable=frozenset({"q"}))

    assert reasons == {1: "this key may not write to project 'p'"}


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"text": ""}, "text:"),
        ({"text": " \n\t\u3000"}, "text: is blank"),
        ({"text": "x" * 200_001}, "text:"),
        ({"text": 7}, "text:"),
        ({"text": None}, "text:"),
        ({"text": "half \ud83d"}, "text:"),
        ({"text": "a\0b"}, "U+0000"),
        ({"source": ""}, "source:"),
        ({"source": "s\0"}, "U+0000"),
        ({"metadata": {"key": ["\0"]}}, "U+0000"),
        ({"metadata": {"\0": 1}}, "U+0000"),
        ({"metadata": {"\\\0": 1}}, "U+0000"),
        ({"metadata": {"half": "\ud83d"}}, "surrogate"),
        ({"metadata": {"\ud83d": 1}}, "surrogate"),
        ({"metadata": {"a": float("nan")}}, "NaN"),
        ({"metadata": {"a": float("-inf")}}, "infinity"),
        ({"metadata": []}, "metadata:"),
        ({"span": {"a": float("inf")}}, "infinity"),
        ({"span": [1, 2]}, "span:"),
        ({"tags": ["\0"]}, "U+0000"),
        ({"tags": "incident"}, "tags:"),
        ({"tags": [1]}, "tags[0]:"),
        ({"tags": [1] * 30}, "and 20 more"),
        ({"breadcrumb": [None]}, "breadcrumb[0]:"),
        ({"parents": "a"}, "parents:"),
        ({"parents": [["a"]]}, "parents[0]:"),
        ({"level": "L3"}, "level:"),
        ({"level": "l0"}, "level:"),
        ({"level": 0}, "level:"),
        ({"kind": "turns"}, "kind:"),
        ({"position": True}, "position:"),
        ({"position": -1}, "position:"),
        ({"position": 2**31}, "position:"),
        ({"position": "3"}, "position:"),
        ({"position": 3.5}, "position:"),
        ({"id": ""}, "id:"),
        ({"id": 3}, "id:"),
        ({"title": ["t"]}, "title:"),
        ({"project": "Not A Name"}, "project:"),
        ({"project": "p\n"}, "project:"),
        ({"occurred_at": "2026-07-21T09:52:03"}, "a time zone"),
        ({"occurred_at": "yesterday"}, "occurred_at:"),
        ({"occurred_at": True}, "occurred_at:"),
        ({"occurred_at": "0001-01-01T00:00:00+14:00"}, "years 1 to 9999"),
        ({"occurred_at": "9999-12-31T23:59:59-14:00"}, "years 1 to 9999"),
        ({"nobody": "knows"}, "nobody:"),
        ({"sha256": STORED}, "sha256:"),
    ],
)
def test_a_node_that_cannot_be_used_is_refused_with_what_is_wrong(
    members: dict[str, Any], said: str
) -> None:
    nodes, (refusal,) = read(turn("before"), turn("the odd one") | members, turn("after"))

    assert refusal.line == 2
    assert said in refusal.reason
    assert [node.text for node in nodes] == ["before", "after"]


@pytest.mark.parametrize("body", [None, 1, True, "text", [], [turn()]])
def test_what_is_no_object_is_refused(body: object) -> None:
    assert refused(body, turn()) == {1: "is not a JSON object"}


def test_what_is_missing_is_named() -> None:
    (reason,) = refused({"level": "L0"}).values()

    assert all(f"{name}: is required" in reason for name in ("kind", "source", "text"))


@pytest.mark.parametrize(
    "text", ["\\u0000", "a \\\\u0000 b", "u0000", "木 👩‍💻 \u202e \x07", "\u200b", "x" * 200_000]
)
def test_odd_texts_are_taken_as_they_are(text: str) -> None:
    assert taken(turn(text))[0].text == text


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"in": value}
    return value


def test_metadata_may_be_nested_reasonably_deep() -> None:
    assert taken(turn(metadata=nested(90)))[0].metadata == nested(90)


@pytest.mark.parametrize("levels", [200, 252, 300, 900, 100_000])
def test_metadata_too_deep_to_be_answered_with_is_refused(levels: int) -> None:
    assert "nested more than 100 levels" in refused(turn(metadata=nested(levels)))[1]


def test_a_supplied_embedding_is_brought_to_length_one() -> None:
    (node,) = taken(turn(embedding=[3, 0, 4.0], embedding_model="mini"))

    assert node.embedding == pytest.approx([0.6, 0.0, 0.8])


@pytest.mark.parametrize(
    ("embedding", "model", "said"),
    [
        ([1.0, 0.0], "mini", "has 2 numbers, mini has 3"),
        ([], "mini", "has 0 numbers"),
        ([0.0, 0.0, 0.0], "mini", "all zeros"),
        ([1e-9, 0.0, 0.0], "mini", "all zeros"),
        ([float("nan"), 0.0, 1.0], "mini", "NaN"),
        ([float("inf"), 0.0, 1.0], "mini", "infinity"),
        ([1.7e308, 1.7e308, 0.0], "mini", "too long"),
        ([10**400, 0, 1], "mini", "embedding[0]"),
        ([True, 0.0, 1.0], "mini", "embedding[0]"),
        (["1", 0.0, 1.0], "mini", "embedding[0]"),
        ([1.0, 0.0, 0.0], "other", "is not this memory's 'mini'"),
        ([1.0, 0.0, 0.0], None, "is not this memory's 'mini'"),
        (None, "mini", "without an embedding"),
    ],
)
def test_an_embedding_that_cannot_be_compared_is_refused(
    embedding: list[Any] | None, model: str | None, said: str
) -> None:
    assert said in refused(turn(embedding=embedding, embedding_model=model))[1]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
odd_bodies = json_values | st.dictionaries(
    st.sampled_from(sorted(NodeBody.model_fields)), json_values, max_size=6
).map(lambda members: turn() | members)


@given(st.lists(odd_bodies, max_size=6))
def test_whatever_is_submitted_each_line_is_either_taken_or_refused(bodies: list[Any]) -> None:
    nodes, refusals = read(*bodies)

    assert len(nodes) + len(refusals) == len(bodies)
    assert len({node.sha256 for node in nodes}) == len(nodes)
    for node in nodes:
        json.dumps(node.metadata, allow_nan=False).encode()
        assert "\0" not in json.dumps([node.text, node.source, node.metadata])
