"""How one project's candidates are found: by meaning, by words, or by both.

Both legs look at the same time: in one statement where one engine has vectors and words, otherwise
beside each other. Every candidate of either gets its exact score in both.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from workers.deadline import Deadline
from workers.errors import DeadlineExceeded, LexicalEngineUnavailable
from workers.model import (
    Candidate,
    Found,
    Match,
    Matched,
    Method,
    Query,
    Reads,
    Sha256,
    Vector,
    Weights,
)
from workers.pipeline.engines import Engines
from workers.pipeline.walk import FANS

MEANING_SHARE = 0.5  # of the time, which is left for meaning where words take too long

Recall = Callable[[Vector | None, Weights], Found]
"""Finds the candidates of a question once it is encoded; None: there is no encoding."""


def begin_recall(query: Query, engines: Engines, deadline: Deadline) -> Recall:
    """Begin what needs no encoding, and give what does the rest."""
    if query.method is Method.SEMANTIC:
        return lambda vector, _weights: _by_meaning(query, vector, engines, deadline)
    both = engines.both
    if both is not None and query.method is Method.HYBRID and both.suits(query, deadline):
        return lambda vector, weights: (
            _by_words(_matches(query, engines, deadline))
            if vector is None
            else both.recall(query, vector, weights, _most(query, engines), engines.reads, deadline)
        )
    end = deadline
    if query.method is Method.HYBRID:
        end = deadline.earlier_by(MEANING_SHARE * deadline.remaining())
    matching = engines.beside(lambda: _matches(query, engines, end))
    return lambda vector, _weights: _apart(query, vector, matching, engines, deadline)


def _apart(
    query: Query,
    vector: Vector | None,
    matching: Future[Matched],
    engines: Engines,
    deadline: Deadline,
) -> Found:
    """With what each leg found by itself; by meaning alone where words fail while there is time.

    Raises:
        DeadlineExceeded, LexicalEngineUnavailable: nothing but words can answer.
    """
    try:
        matched = matching.result()
        if vector is None:
            return _by_words(matched)
        return _by_both(query, vector, matched, engines, deadline)
    except (DeadlineExceeded, LexicalEngineUnavailable) as error:
        if vector is None or query.method is not Method.HYBRID or deadline.passed():
            raise
        is_late = isinstance(error, DeadlineExceeded)
        return replace(
            _by_meaning(query, vector, engines, deadline),
            reason="lexical_timeout" if is_late else error.code,
            message=f"searched by meaning alone: {'no time for words' if is_late else error}",
        )


def _most(query: Query, engines: Engines) -> int | None:
    """How many candidates can still be in the answer; None: all of them are asked for."""
    return None if query.is_explained else max(engines.rerank_depth, query.limit)


def _matches(query: Query, engines: Engines, deadline: Deadline) -> Matched:
    return engines.lexical.recall(
        query.text, query.levels, query.recall_depth, deadline, query.filters
    )


def _by_words(matched: Matched) -> Found:
    return Found(
        [_candidate(match) for match in matched.matches],
        len(matched.matches),
        matched.documents,
        matched=[match.sha256 for match in matched.matches],
    )


def _by_meaning(query: Query, vector: Vector | None, engines: Engines, deadline: Deadline) -> Found:
    if vector is None:
        raise ValueError("a search by meaning needs an encoding")
    looked = (vector, query.levels, query.recall_depth)
    reads, loaded = Reads.NOTHING, None
    if not engines.rerank_depth and not query.is_explained:  # recall's order is the answer's
        recalled, loaded = engines.nodes.recall_and_load(
            *looked, query.limit, FANS, deadline, query.filters
        )
    else:
        reads = engines.reads_of(query.recall_depth)
        recalled = engines.nodes.recall(*looked, (), reads, deadline, query.filters)
    shas = [candidate.sha256 for candidate in recalled.candidates]
    return Found(
        recalled.candidates,
        recalled.found,
        recalled.documents,
        recalled.plan,
        loaded,
        read=frozenset() if reads is Reads.NOTHING else frozenset(shas),
        nearest=shas,
    )


def _by_both(
    query: Query, vector: Vector, matched: Matched, engines: Engines, deadline: Deadline
) -> Found:
    """Also where words alone choose: what they found is measured, for reranking compares it."""
    by_words = {match.sha256: _candidate(match) for match in matched.matches}
    depth = 0 if query.method is Method.LEXICAL else query.recall_depth
    reads = engines.reads_of(depth + len(by_words))
    recalled = engines.nodes.recall(
        vector, query.levels, depth, by_words, reads, deadline, query.filters
    )
    measured = {candidate.sha256: candidate for candidate in recalled.candidates}
    unscored = [sha256 for sha256 in measured if sha256 not in by_words]
    scores: dict[Sha256, float | None] = {sha256: one.bm25 for sha256, one in by_words.items()}
    if unscored:
        others = engines.lexical.scores(query.text, query.levels, unscored, deadline)
        scores |= zip(unscored, others, strict=True)
    candidates = [
        one._replace(bm25=scores[sha256]) for sha256, one in (by_words | measured).items()
    ]
    return Found(
        candidates,
        len(candidates),
        recalled.documents,
        recalled.plan if depth else None,
        read=frozenset() if reads is Reads.NOTHING else frozenset(measured),
        nearest=list(measured)[: recalled.found],
        matched=list(by_words),
    )


def _candidate(match: Match) -> Candidate:
    return Candidate(match.sha256, match.level, None, bm25=match.score)
