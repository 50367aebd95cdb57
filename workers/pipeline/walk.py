"""From a hit down to the evidence it was made from."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from workers.model import Level, Node, Parent, Sha256, Step

HOPS = 2  # L2 -> L1 -> L0
PARENTS_PER_NODE = 20  # more are counted, not shown: a synthesis may stand on hundreds of turns

Steps = Mapping[Sha256, Sequence[Step]]


def by_child(steps: Iterable[Step]) -> Steps:
    """Steps grouped by the node they start from, in the order given."""
    grouped: dict[Sha256, list[Step]] = defaultdict(list)
    for step in steps:
        grouped[step.child].append(step)
    return grouped


def parents_of(node: Sha256, steps: Steps, hops: int = HOPS) -> tuple[tuple[Parent, ...], int]:
    """A node's parents as trees, and how many more it has than are shown."""
    if hops == 0:
        return (), 0
    own = steps.get(node, ())
    parents = tuple(_parent(step.parent, steps, hops - 1) for step in own)
    return parents, (own[0].siblings - len(own) if own else 0)


def _parent(node: Node, steps: Steps, hops: int) -> Parent:
    parents, omitted = parents_of(node.sha256, steps, hops)
    return Parent(
        level=node.level,
        kind=node.kind,
        sha256=node.sha256,
        source=node.source,
        text=node.text,
        turn=node.position,
        timestamp=node.occurred_at,
        parents=parents,
        parents_omitted=omitted,
    )


def reaches_evidence(level: Level, parents: Iterable[Parent]) -> bool:
    """Whether some path ends in raw evidence. An L0 node is its own provenance."""
    return level is Level.L0 or any(
        reaches_evidence(parent.level, parent.parents) for parent in parents
    )
