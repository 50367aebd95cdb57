"""The stages that are compared: each answers a question with a ranking of nodes."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from app.eval.dataset import Asked
from app.eval.memory import Parameters, Pipeline
from workers.model import Hit, Level, Method, NodeKey, Parent, ProjectName, Query

STAGES = (
    "bm25",
    "semantic",
    "hybrid",
    "hybrid_rerank",
    "notes_walk",
    "federated_hybrid_rerank",
)
"""Their order in a report."""
ANSWER = "hybrid_rerank"
"""The stage whose first hits the service answers with."""
LIMIT = 10
NOTES = 50  # hits that the walk starts from: the most that an answer may have


@dataclass(frozen=True, slots=True)
class Found:
    """What a stage found for one question."""

    ranking: Sequence[NodeKey]  # best first, without repeats
    hits: Sequence[Hit] = ()  # of the answer, where it has one: their citations are checked
    took_ms: float = 0.0


class Stage(Protocol):
    """Looks in the question's own project, or in all of them."""

    def __call__(self, asked: Asked) -> Found:
        """
        Raises:
            EvalError: a project did not answer in full.
        """
        ...


def stages_of(
    pipeline: Pipeline, parameters: Parameters, projects: Sequence[ProjectName]
) -> Mapping[str, Stage]:
    """Every stage by its name, on the pipeline with these parameters."""
    depth = parameters.rerank_depth
    way = Query("", limit=LIMIT, semantic_weight=parameters.semantic_weight)
    return {
        "bm25": Ranked(pipeline, replace(way, method=Method.LEXICAL), rerank_depth=0),
        "semantic": Ranked(pipeline, replace(way, method=Method.SEMANTIC), rerank_depth=0),
        "hybrid": Ranked(pipeline, way, rerank_depth=0),
        "hybrid_rerank": Ranked(pipeline, way, depth),
        "notes_walk": NotesWalk(pipeline, way, depth),
        "federated_hybrid_rerank": Federated(pipeline, way, depth, projects),
    }


@dataclass(frozen=True, slots=True)
class Ranked:
    """All candidates of the question's own project, in the order they end in."""

    pipeline: Pipeline
    way: Query  # how it is asked, whatever is asked
    rerank_depth: int  # 0: the order of recall

    def __call__(self, asked: Asked) -> Found:
        began = time.perf_counter()
        query = replace(self.way, text=asked.text, levels=asked.levels, is_explained=True)
        encoding = self.pipeline.encode(asked.text)
        outcome = self.pipeline.search(query, encoding, asked.project, self.rerank_depth)
        took_ms = (time.perf_counter() - began) * 1000
        ordered = sorted(outcome.explained, key=lambda candidate: candidate.final_rank)
        ranking = [(asked.project, candidate.sha256) for candidate in ordered]
        return Found(ranking, outcome.hits, took_ms)


@dataclass(frozen=True, slots=True)
class NotesWalk:
    """The evidence of the best notes: each is replaced by the L0 nodes it was made from."""

    pipeline: Pipeline
    way: Query
    rerank_depth: int

    def __call__(self, asked: Asked) -> Found:
        query = replace(self.way, text=asked.text, levels=(Level.L1,), limit=NOTES)
        encoding = self.pipeline.encode(asked.text)
        hits = self.pipeline.search(query, encoding, asked.project, self.rerank_depth).hits
        return Found([(asked.project, parent.sha256) for parent in evidence_of(hits)], hits)


@dataclass(frozen=True, slots=True)
class Federated:
    """The hits of all projects, merged: the question does not say which one knows."""

    pipeline: Pipeline
    way: Query
    rerank_depth: int
    projects: Sequence[ProjectName]

    def __call__(self, asked: Asked) -> Found:
        query = replace(self.way, text=asked.text, levels=asked.levels)
        encoding = self.pipeline.encode(asked.text)
        merged = self.pipeline.search_all(query, encoding, self.projects, self.rerank_depth)
        return Found([(hit.project, hit.sha256) for hit in merged], merged[:LIMIT])


def evidence_of(hits: Iterable[Hit]) -> list[Parent]:
    """The L0 parents of hits, in the order of the hits and then of their parents, each once."""
    found: dict[str, Parent] = {}
    for hit in hits:
        for parent in hit.parents:
            if parent.level is Level.L0:
                found.setdefault(parent.sha256, parent)
    return list(found.values())
