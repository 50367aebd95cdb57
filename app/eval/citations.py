"""Whether what an answer cites is there, and is what it was made from."""

from collections.abc import Sequence

from app.eval.dataset import Dataset
from workers.model import Hit, Parent, ProjectName, Sha256
from workers.pipeline.walk import reaches_evidence


def is_resolved(hit: Hit, dataset: Dataset) -> bool:
    """Whether a hit leads to its evidence, by the parents that the corpus gives it and no others.

    Raw evidence is its own citation.
    """
    return reaches_evidence(hit.level, hit.parents) and _agrees(
        dataset, hit.project, hit.sha256, hit.parents
    )


def _agrees(
    dataset: Dataset, project: ProjectName, sha256: Sha256, parents: Sequence[Parent]
) -> bool:
    name = dataset.ids.get((project, sha256))
    if name is None:
        return False
    # Of a node with very many parents only the first are shown.
    known = dataset.nodes[name].parents[: len(parents)]
    return known == tuple(parent.sha256 for parent in parents) and all(
        _agrees(dataset, project, parent.sha256, parent.parents) for parent in parents
    )
