"""The corpus in a scratch memory, and the pipeline that searches it there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.bench.data import ingest
from app.bench.errors import BenchError
from app.bench.scratch import Announce, client_of
from app.bench.sides import retrieval_of
from app.eval.dataset import Dataset
from app.eval.errors import EvalError
from app.local.stack import StackInfo
from config.settings import Settings
from workers.deadline import Deadline
from workers.engines.build import build_embedded_encoder, build_reranker
from workers.model import (
    SEMANTIC_WEIGHT,
    Encoding,
    Frozen,
    Hit,
    Outcome,
    ProjectName,
    Query,
    Status,
)
from workers.pipeline.answer import answer
from workers.pipeline.merge import merge_outcomes
from workers.store.database import Database

TIMEOUT_S = 30
CONNECTIONS = 4


def store(stack: StackInfo, dataset: Dataset, announce: Announce) -> None:
    """Store the corpus through the service, as any memories are.

    Raises:
        EvalError: the service did not take all of it.
    """
    client = client_of(stack)
    for number, project in enumerate(dataset.projects, start=1):
        bodies = dataset.bodies[project]
        announce(f"Storing project {number} of {len(dataset.projects)}: {len(bodies)} nodes")
        try:
            ingest(client, project, bodies)
        except BenchError as error:
            raise EvalError(f"Project {project!r}: {error}") from error


@dataclass(frozen=True, slots=True)
class Parameters:
    """What of the pipeline can be tried with other values than the service's own."""

    rerank_depth: int
    semantic_weight: float = SEMANTIC_WEIGHT

    @classmethod
    def of(cls, settings: Settings) -> "Parameters":
        return cls(rerank_depth=settings.rerank_depth)

    def with_value(self, name: str, value: Any) -> "Parameters":
        return replace(self, **{name: value})


class Pipeline:
    """The pipeline of the service's workers, called directly. No encoding is remembered."""

    def __init__(self, database_url: str, settings: Settings) -> None:
        self._database = Database(database_url, CONNECTIONS)
        self._encoder = build_embedded_encoder()
        self._retrieval = retrieval_of(self._database, self._encoder, settings)

    def close(self) -> None:
        self._database.close()

    def encode(self, text: str) -> Encoding:
        return self._encoder.encode_query(text, Deadline.after(TIMEOUT_S))

    def search(
        self, query: Query, encoding: Encoding, project: ProjectName, rerank_depth: int
    ) -> Outcome:
        """
        Raises:
            EvalError: the project did not answer in full.
        """
        reranker = build_reranker(rerank_depth)
        engines = self._retrieval.engines_of(
            project,
            lambda _text, _deadline: (encoding, "given"),
            reranker,
            reranker.depth(query.limit),
        )
        outcome = answer(query, project, engines, Deadline.after(TIMEOUT_S))
        if outcome.status is not Status.SUCCESSFUL:
            said = outcome.message or outcome.reason
            raise EvalError(f"Project {project!r} did not answer in full: {said}")
        return outcome

    def search_all(
        self, query: Query, encoding: Encoding, projects: Sequence[ProjectName], rerank_depth: int
    ) -> tuple[Hit, ...]:
        """Every project's hits in the order in which the service would merge them.

        The first `query.limit` of them are what it would answer.

        Raises:
            EvalError: a project did not answer in full.
        """
        outcomes = {
            project: self.search(query, encoding, project, rerank_depth) for project in projects
        }
        every = query.limit * len(projects)
        return merge_outcomes("eval", Frozen(tuple(projects), every, "eval", outcomes)).hits
