"""What one project is searched with."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeVar

from workers.deadline import Deadline
from workers.model import Encoding, Reads
from workers.ports import BothLegs, Countable, LexicalIndex, Reranker, Searchable

EncodeQuery = Callable[[str, Deadline], tuple[Encoding, str]]
"""Encodes a question within a deadline; also says where the encoding came from."""
T = TypeVar("T")


class Beside(Protocol):
    """Begins something that goes on while the caller does something else."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]: ...


@dataclass(frozen=True, slots=True)
class Engines:
    """What one project is searched with."""

    encode: EncodeQuery
    nodes: Searchable
    lexical: LexicalIndex
    both: BothLegs | None  # where one engine has vectors and words
    counts: Countable
    beside: Beside
    reranker: Reranker
    rerank_depth: int  # candidates to rerank; 0: none
    own_weight: Callable[[Deadline], float | None]  # of the meaning in this project; None: as usual

    @property
    def reads(self) -> Reads:
        """What the reranker wants to know of candidates."""
        if not self.rerank_depth:
            return Reads.NOTHING
        return Reads.TEXT if self.reranker.needs_text else Reads.TOKENS

    def reads_of(self, candidates: int) -> Reads:
        """What recall reads of so many: only if all are reranked is it known already which are."""
        return self.reads if candidates <= self.rerank_depth else Reads.NOTHING
