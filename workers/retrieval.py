"""What searching a memory's projects takes, whatever process does it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from workers.engines.search_text import SearchText
from workers.model import ProjectName
from workers.pipeline.engines import Beside, EncodeQuery, Engines
from workers.ports import LexicalIndex, Reranker
from workers.store.database import Database
from workers.store.facets import ProjectCounts
from workers.store.hybrid import ProjectHybrid
from workers.store.lexical import ProjectLexicon
from workers.store.projects import ProjectWeights
from workers.store.search import ProjectSearch
from workers.store.vector_indexes import IndexedProjects


@dataclass(frozen=True, slots=True)
class Retrieval:
    """A memory with the vectors of one model."""

    database: Database
    model: int
    token_model: str | None
    indexed: IndexedProjects
    weights: ProjectWeights
    exact_rows: int
    search_text: SearchText
    beside: Beside
    words_of: Callable[[ProjectName], LexicalIndex] | None = None  # None: those in PostgreSQL

    def engines_of(
        self, project: ProjectName, encode: EncodeQuery, reranker: Reranker, rerank_depth: int
    ) -> Engines:
        """What a project is searched with."""
        nodes = ProjectSearch(
            self.database, project, self.model, self.token_model, self.indexed, self.exact_rows
        )
        if self.words_of is None:
            lexical: LexicalIndex = ProjectLexicon(self.database, project, self.search_text)
            both = ProjectHybrid(self.database, nodes, self.search_text)
        else:
            lexical, both = self.words_of(project), None
        return Engines(
            encode=encode,
            nodes=nodes,
            lexical=lexical,
            both=both,
            counts=ProjectCounts(self.database, project, self.search_text),
            beside=self.beside,
            reranker=reranker,
            rerank_depth=rerank_depth,
            own_weight=partial(self.weights.weight_of, project),
        )
