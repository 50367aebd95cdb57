"""From a hit down to the evidence it was made from."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from workers.model import Level, Parent, Sha256, Step

# Parents shown of a hit, and of each of these: L2 -> L1 -> L0. More are counted, not shown. A
# synthesis may stand on hundreds of turns, and fifty of them in one answer would be megabytes.
FANS = (12, 4)

Steps = Mapping[Sha256, Sequence[Step]]


def by_child(steps: Iterable[Step]) -> Steps:
    """Steps grouped by the node they start from, in the order given."""
    grouped: dict[Sha256, list[Step]] = defaultdict(list)
    for step in steps:
        grouped[step.child].append(step)
    return grouped


def parents_of(
    node: Sha256, steps: Steps, fans: Sequence[int] = FANS
) -> tuple[tuple[Parent, ...], int]:
    """A node's parents as trees, at most `fans[0]` of them, and how many more it has."""
    if not fans:
        return (), 0
    own = steps.get(node, ())
    shown = own[: fans[0]]
    parents = tuple(_with_parents(step.parent, steps, fans[1:]) for step in shown)
    return parents, (own[0].siblings - len(shown) if own else 0)


def _with_parents(node: Parent, steps: Steps, fans: Sequence[int]) -> Parent:
    parents, omitted = parents_of(node.sha256, steps, fans)
    return replace(node, parents=parents, parents_omitted=omitted) if parents else node


def reaches_evidence(level: Level, parents: Iterable[Parent]) -> bool:
    """Whether some path ends in raw evidence. An L0 node is its own provenance."""
    return level is Level.L0 or any(
        reaches_evidence(parent.level, parent.parents) for parent in parents
    )
