"""One ranking of a project's candidates from two: by meaning and by words.

Scores are fused, not ranks: each leg's score is mapped to [0, 1] by a function that is the same
for every query, project and candidate. A mapping that looks at the other candidates, as min-max or
ranks do, would say as much about them as about the one it scores.
"""

from collections.abc import Iterable

from workers.model import Candidate, Method, Weights


def weights_of(method: Method, semantic_weight: float, has_vector: bool) -> Weights:
    """What the legs of a search count. The weight of one that there is not goes to the other.

    has_vector: whether there is an encoding to measure with.
    """
    if method is Method.SEMANTIC:
        return Weights(1.0, 0.0)
    if method is Method.LEXICAL or not has_vector:
        return Weights(0.0, 1.0)
    return Weights(semantic_weight, 1.0 - semantic_weight)


def fuse(candidates: Iterable[Candidate], weights: Weights) -> list[Candidate]:
    """The candidates with their fused scores, best first.

    Every candidate is to have its exact score in both legs: one that a leg did not return is not
    one that scores 0 in it, and taking it for one costs four points of nDCG@10.

    Source: convex combination (Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid
    Retrieval", TOIS 2023).
    """
    fused = [
        one._replace(
            fused=weights.semantic * (one.semantic or 0.0) + weights.lexical * (one.lexical or 0.0),
        )
        for one in candidates
    ]
    return sorted(fused, key=best_first)


def best_first(candidate: Candidate) -> tuple[bool, float, float, float, str]:
    """The sort key within one project: reranked before not, then scores, then sha256."""
    score = candidate.rerank_score
    distance = 2.0 if candidate.distance is None else candidate.distance
    return (score is None, -(score or 0.0), -candidate.fused, distance, candidate.sha256)
