"""From a hit down to its evidence."""

import pytest

from tests.unit.pipeline.pipeline_fakes import KINDS, node, parent_of
from workers.model import Level, Parent, Step
from workers.pipeline.walk import by_child, parents_of, reaches_evidence


def step(child: str, parent: str, level: Level = Level.L0, siblings: int = 1) -> Step:
    return Step(child, parent_of(node(parent, level)), siblings)


def parent(level: Level, *parents: Parent) -> Parent:
    return Parent(level, KINDS[level], "sha", "source", "text", None, None, parents)


def test_a_synthesis_is_followed_over_its_notes_to_the_evidence() -> None:
    steps = by_child([step("synthesis", "note", Level.L1), step("note", "turn")])

    (note,), omitted = parents_of("synthesis", steps)

    assert (note.sha256, note.level, omitted) == ("note", Level.L1, 0)
    (turn,) = note.parents
    assert (turn.sha256, turn.level, turn.parents) == ("turn", Level.L0, ())
    assert turn.source == "source of turn"


def test_parents_keep_the_order_of_precedence_and_not_of_their_names() -> None:
    steps = by_child([step("note", name, siblings=3) for name in ("z", "a", "m")])

    parents, _ = parents_of("note", steps)

    assert [one.sha256 for one in parents] == ["z", "a", "m"]


def test_parents_that_were_not_followed_are_counted_at_every_hop() -> None:
    steps = by_child(
        [step("synthesis", "note", Level.L1, siblings=4), step("note", "turn", siblings=21)]
    )

    (note,), omitted = parents_of("synthesis", steps)

    assert omitted == 3
    assert note.parents_omitted == 20
    assert note.parents[0].parents_omitted == 0


def test_evidence_that_two_notes_share_is_shown_below_both() -> None:
    steps = by_child(
        [
            step("synthesis", "one", Level.L1, siblings=2),
            step("synthesis", "other", Level.L1, siblings=2),
            step("one", "turn"),
            step("other", "turn"),
        ]
    )

    notes, _ = parents_of("synthesis", steps)

    assert [[one.sha256 for one in note.parents] for note in notes] == [["turn"], ["turn"]]


def test_a_node_without_edges_has_no_parents_and_omits_none() -> None:
    assert parents_of("alone", by_child([])) == ((), 0)


@pytest.mark.parametrize("hops", [0, 1, 2, 5])
def test_a_circle_of_edges_ends_after_the_hops(hops: int) -> None:
    steps = by_child([step("a", "b", Level.L1), step("b", "a", Level.L1)])

    depth, parents = 0, parents_of("a", steps, [1] * hops)[0]
    while parents:
        depth, parents = depth + 1, parents[0].parents

    assert depth == hops


def test_evidence_is_its_own_provenance() -> None:
    assert reaches_evidence(Level.L0, ())


def test_a_note_reaches_evidence_only_over_its_parents() -> None:
    assert reaches_evidence(Level.L1, [parent(Level.L0)])
    assert not reaches_evidence(Level.L1, ())


def test_one_path_of_several_that_ends_in_evidence_is_enough() -> None:
    broken, whole = parent(Level.L1), parent(Level.L1, parent(Level.L0))

    assert reaches_evidence(Level.L2, [broken, whole])
    assert not reaches_evidence(Level.L2, [broken, broken])
