"""The use case of a question whose results are wanted with what stands beside them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from app.parameters import ContextParameters, QueryParameters
from workers.deadline import Deadline
from workers.errors import DeadlineExceeded, StoreUnavailable
from workers.model import (
    Answer,
    Arranged,
    Context,
    Hit,
    Kept,
    Kind,
    NodeKey,
    Notice,
    Principal,
)

Ask = Callable[[QueryParameters, Principal, float], Answer]
Fold = Callable[[Iterable[Hit]], tuple[Kept, ...]]
Arrange = Callable[[Sequence[Kept], Mapping[NodeKey, Context] | None, int | None], Arranged]


class Contexts(Protocol):
    """The neighbours of nodes, where they are stored."""

    def load_contexts(
        self, hits: Sequence[NodeKey], count: int, deadline: Deadline
    ) -> dict[NodeKey, Context]: ...


class ContextService:
    """Answers that are to be read without their sources at hand, by a model for example."""

    def __init__(self, ask: Ask, contexts: Contexts, fold: Fold, arrange: Arrange) -> None:
        self._ask = ask
        self._contexts = contexts
        self._fold = fold
        self._arrange = arrange

    def ask(
        self, parameters: ContextParameters, principal: Principal, began_at: float
    ) -> tuple[Answer, Arranged]:
        """As `Service.ask`, and its hits in context; without it if the time does not suffice.

        Neighbours are of the projects of the hits, which are all this principal's.
        """
        answer = self._ask(parameters, principal, began_at)
        results = self._fold(answer.hits)
        deadline = Deadline(began_at + parameters.timeout_s)
        try:
            contexts = self._load(results, parameters.chunks, deadline)
        except (DeadlineExceeded, StoreUnavailable) as error:
            said = f"the results are without their context: {error}"
            answer = replace(answer, warnings=(*answer.warnings, Notice(_MISSING, None, said)))
            contexts = None
        return answer, self._arrange(results, contexts, parameters.most_tokens)

    def _load(
        self, results: Iterable[Kept], count: int, deadline: Deadline
    ) -> dict[NodeKey, Context]:
        hits = [(one.hit.project, one.hit.sha256) for one in results if _has_place(one.hit)]
        return self._contexts.load_contexts(hits, count, deadline) if hits and count else {}


_MISSING = "context_missing"


def _has_place(hit: Hit) -> bool:
    """Whether it is a part of something that is read in order: a document, a session."""
    return hit.kind in (Kind.CHUNK, Kind.TURN) and hit.turn is not None
