"""How one project answers one question, and every way in which it may not."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.unit.pipeline.pipeline_fakes import (
    QUERY,
    FakeClock,
    FakeMemory,
    FakeScorer,
    FakeWords,
    at_once,
    ids,
    memory_of,
    node,
    nothing,
)
from workers.deadline import Deadline
from workers.errors import (
    DeadlineExceeded,
    EmbeddingServiceUnavailable,
    LexicalEngineUnavailable,
    NotReranked,
    PoimenError,
)
from workers.model import (
    Candidate,
    Encoding,
    Facets,
    Filters,
    Kind,
    Level,
    Method,
    Outcome,
    Query,
    Question,
    Reads,
    Status,
    Unreturned,
)
from workers.pipeline.answer import answer
from workers.pipeline.engines import Engines

ALL_LEVELS = (Level.L0, Level.L1, Level.L2)


class Asker:
    """Asks a memory within 2 s of a clock that stands still unless a part takes time."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.embed_s = 0.0
        self.embed_error: PoimenError | None = None
        self.encoding = QUERY
        self.scorer = FakeScorer()
        self.timeout_s = 2.0
        self.query = Query("why", levels=ALL_LEVELS, method=Method.SEMANTIC)
        self.own_weight: float | None = None
        self.bm25: dict[str, float] = {}
        self.on_words: Callable[[], None] = nothing

    def encode(self, text: str, deadline: Deadline) -> tuple[Encoding, str]:
        self.clock.advance(self.embed_s)
        if self.embed_error is not None:
            raise self.embed_error
        if deadline.passed():
            raise DeadlineExceeded("out of time")
        return self.encoding, "miss"

    def ask(self, memory: FakeMemory, rerank_depth: int = 100) -> Outcome:
        deadline = self.clock.deadline_in(self.timeout_s)
        words = FakeWords(memory, self.bm25, self.on_words)
        self.asked_of_words = words.asked_filters
        engines = Engines(
            self.encode,
            memory,
            words,
            None,
            memory,
            at_once,
            self.scorer,
            rerank_depth,
            lambda _deadline: self.own_weight,
        )
        return answer(self.query, "p", engines, deadline)


@pytest.fixture
def asker() -> Asker:
    return Asker()


def test_the_best_candidates_come_back_whole_and_in_the_reranker_s_order(asker: Asker) -> None:
    asker.scorer = FakeScorer({"a": 0.1, "b": 0.9})

    outcome = asker.ask(memory_of("a", "b"))

    assert (outcome.status, outcome.reason) == (Status.SUCCESSFUL, None)
    assert ids(outcome.hits) == ["b", "a"]
    assert (outcome.hits[0].text, outcome.hits[0].source) == ("text b", "source of b")
    assert (outcome.hits[0].semantic, outcome.hits[0].rerank_score) == (0.99, 0.9)
    assert (outcome.candidates, outcome.reranked, outcome.documents) == (2, 2, 2)
    assert (outcome.embedding_cache, outcome.reranker) == ("miss", "fake reranker")


@pytest.mark.parametrize("is_explained", [False, True])
def test_without_reranking_the_order_is_recall_s(asker: Asker, is_explained: bool) -> None:
    names = [f"n{number}" for number in range(9)]
    asker.query = replace(asker.query, limit=2, is_explained=is_explained)

    outcome = asker.ask(memory_of(*names), rerank_depth=0)

    assert ids(outcome.hits) == ["n0", "n1"]
    assert [hit.text for hit in outcome.hits] == ["text n0", "text n1"]
    assert (outcome.candidates, outcome.reranked, outcome.reranker) == (9, 0, None)
    assert len(outcome.explained) == (9 if is_explained else 0)


def test_a_project_without_nodes_is_successful_and_empty(asker: Asker) -> None:
    outcome = asker.ask(FakeMemory())

    assert (outcome.status, outcome.hits, outcome.candidates) == (Status.SUCCESSFUL, (), 0)


def test_the_limit_cuts_after_reranking(asker: Asker) -> None:
    names = [f"n{number}" for number in range(9)]
    asker.scorer = FakeScorer({name: rank / 10 for rank, name in enumerate(names)})
    asker.query = replace(asker.query, limit=2)

    outcome = asker.ask(memory_of(*names))

    assert ids(outcome.hits) == ["n8", "n7"]
    assert outcome.candidates == 9


@pytest.mark.parametrize(("limit", "depth"), [(1, 50), (5, 50), (6, 60), (50, 500)])
def test_recall_is_wider_than_the_answer(asker: Asker, limit: int, depth: int) -> None:
    memory = memory_of("a")
    asker.query = replace(asker.query, limit=limit)

    asker.ask(memory, rerank_depth=7)

    assert memory.asked_depths == [depth]


def test_only_the_asked_levels_are_searched_and_counted(asker: Asker) -> None:
    nodes = {"turn": node("turn"), "note": node("note", Level.L1)}
    memory = FakeMemory({"turn": 0.1, "note": 0.2}, nodes, {"note": ["turn"]})
    asker.query = Query("why", method=Method.SEMANTIC)

    outcome = asker.ask(memory)

    assert ids(outcome.hits) == ["note"]
    assert outcome.documents == 1


def test_every_hit_comes_with_the_evidence_below_it(asker: Asker) -> None:
    nodes = {
        "synthesis": node("synthesis", Level.L2),
        "note": node("note", Level.L1),
        "turn": node("turn"),
    }
    memory = FakeMemory({"synthesis": 0.1}, nodes, {"synthesis": ["note"], "note": ["turn"]})

    (hit,) = asker.ask(memory).hits

    assert [one.sha256 for one in hit.parents] == ["note"]
    assert [one.sha256 for one in hit.parents[0].parents] == ["turn"]


def test_more_than_twelve_parents_are_counted_and_not_shown(asker: Asker) -> None:
    turns = {f"turn{number:02}": node(f"turn{number:02}") for number in range(23)}
    nodes = {"note": node("note", Level.L1)} | turns
    memory = FakeMemory({"note": 0.1}, nodes, {"note": list(turns)})

    (hit,) = asker.ask(memory).hits

    assert len(hit.parents) == 12
    assert hit.parents_omitted == 11


def test_a_node_deleted_between_recall_and_loading_is_no_hit(asker: Asker) -> None:
    memory = memory_of("a", "b", "c")
    memory.forgotten = frozenset({"b"})

    outcome = asker.ask(memory)

    assert outcome.status is Status.SUCCESSFUL
    assert sorted(ids(outcome.hits)) == ["a", "c"]


def test_a_message_that_waited_past_its_deadline_expired_in_the_queue(asker: Asker) -> None:
    asker.timeout_s = -0.1

    outcome = asker.ask(memory_of("a"))

    assert (outcome.status, outcome.reason) == (Status.TIMED_OUT, "expired_in_queue")
    assert outcome.stages_ms == {}


def test_a_slow_embedding_is_a_timeout_of_that_stage(asker: Asker) -> None:
    asker.embed_s = 3.0

    outcome = asker.ask(memory_of("a"))

    assert (outcome.status, outcome.reason) == (Status.TIMED_OUT, "embed_timeout")
    assert outcome.message == "project 'p' timed out"
    assert outcome.stages_ms == {"embed": pytest.approx(3000)}


def test_a_slow_recall_is_a_timeout_of_that_stage(asker: Asker) -> None:
    memory = memory_of("a")
    memory.on_recall = asker.clock.taking(3.0)

    outcome = asker.ask(memory)

    assert (outcome.status, outcome.reason) == (Status.TIMED_OUT, "recall_timeout")
    assert outcome.hits == ()


def test_a_slow_walk_is_a_timeout_of_that_stage(asker: Asker) -> None:
    nodes = {"note": node("note", Level.L1), "turn": node("turn")}
    memory = FakeMemory({"note": 0.1}, nodes, {"note": ["turn"]})
    memory.on_walk = asker.clock.taking(3.0)

    outcome = asker.ask(memory)

    assert (outcome.status, outcome.reason) == (Status.TIMED_OUT, "walk_timeout")


def test_an_error_of_ours_is_a_failure_with_its_code(asker: Asker) -> None:
    asker.embed_error = EmbeddingServiceUnavailable("the model server refused")

    outcome = asker.ask(memory_of("a"))

    assert (outcome.status, outcome.reason) == (Status.FAILED, "embedding_service_unavailable")
    assert outcome.message == "the model server refused"


def test_a_fault_in_the_code_is_not_taken_for_an_answer(asker: Asker) -> None:
    asker.scorer = FakeScorer({})

    with pytest.raises(KeyError):
        asker.ask(memory_of("a"))


def test_out_of_time_while_reranking_is_a_partial_answer_with_hits(asker: Asker) -> None:
    names = [f"n{number:02}" for number in range(40)]
    asker.scorer = FakeScorer(on_call=asker.clock.taking(1.9))
    asker.query = replace(asker.query, limit=40)

    outcome = asker.ask(memory_of(*names))

    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "rerank_truncated")
    assert outcome.reranked == 32
    assert ids(outcome.hits[32:]) == names[32:]
    assert all(hit.rerank_score is None for hit in outcome.hits[32:])


def test_a_reranker_that_fails_makes_a_partial_answer_in_the_order_of_recall(asker: Asker) -> None:
    def fail() -> None:
        raise NotReranked("reranker_unavailable", "the server is down; start it.")

    asker.scorer = FakeScorer(on_call=fail)

    outcome = asker.ask(memory_of("a", "b"))

    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "reranker_unavailable")
    assert outcome.message == "the server is down; start it."
    assert ids(outcome.hits) == ["a", "b"]
    assert [hit.rerank_score for hit in outcome.hits] == [None, None]
    assert (outcome.reranked, outcome.reranker) == (0, None)


@pytest.mark.parametrize(
    ("needs_text", "rerank_depth", "reads"),
    [
        (True, 1, [(Reads.TEXT, ["a"])]),  # of those only that are reranked
        (False, 100, [(Reads.TOKENS, ["a", "b"])]),
        (True, 0, []),
    ],
)
def test_a_candidate_is_read_once_and_only_for_a_reranker(
    asker: Asker, needs_text: bool, rerank_depth: int, reads: list[tuple[Reads, list[str]]]
) -> None:
    memory = memory_of("a", "b")
    asker.scorer = FakeScorer(needs_text=needs_text)

    asker.ask(memory, rerank_depth)

    assert memory.reads == reads


def test_reranking_leaves_time_to_load_what_it_ranked(asker: Asker) -> None:
    memory = memory_of("a", "b")
    memory.on_recall = asker.clock.taking(1.99)
    asker.scorer = FakeScorer(on_call=asker.clock.taking(0.005))

    outcome = asker.ask(memory)

    assert outcome.status is Status.SUCCESSFUL
    assert len(outcome.hits) == 2


def test_an_explained_answer_says_where_reranking_moved_each_candidate(asker: Asker) -> None:
    asker.scorer = FakeScorer({"a": 0.1, "b": 0.9, "c": None})
    asker.query = replace(asker.query, is_explained=True, limit=1)

    outcome = asker.ask(memory_of("a", "b", "c"))

    told = [(one.sha256, one.rank, one.final_rank, one.rerank_score) for one in outcome.explained]
    assert told == [("a", 1, 2, 0.1), ("b", 2, 1, 0.9), ("c", 3, 3, None)]
    assert [one.distance for one in outcome.explained] == [0.0, 0.01, 0.02]


def test_an_answer_is_explained_on_request_only(asker: Asker) -> None:
    assert asker.ask(memory_of("a")).explained == ()


def test_the_time_of_every_stage_is_told_in_milliseconds(asker: Asker) -> None:
    nodes = {"note": node("note", Level.L1), "turn": node("turn")}
    memory = FakeMemory({"note": 0.1}, nodes, {"note": ["turn"]})
    asker.embed_s = 0.1
    memory.on_recall = asker.clock.taking(0.2)
    asker.scorer = FakeScorer(on_call=asker.clock.taking(0.3))
    memory.on_walk = asker.clock.taking(0.4)

    outcome = asker.ask(memory)

    expected = {"embed": 100, "recall": 200, "rerank": 300, "walk": 400}
    assert outcome.stages_ms == pytest.approx(expected)


@pytest.fixture
def hybrid(asker: Asker) -> Asker:
    asker.query = replace(asker.query, method=Method.HYBRID)
    return asker


def test_what_only_its_words_find_is_found(hybrid: Asker) -> None:
    names = [f"n{number:02}" for number in range(80)]
    hybrid.bm25 = {"n79": 24.0}
    hybrid.query = replace(hybrid.query, semantic_weight=0.3)

    outcome = hybrid.ask(memory_of(*names), rerank_depth=0)

    assert outcome.candidates == 51  # the fifty nearest, and it
    assert ids(outcome.hits)[0] == "n79"
    (best, *_) = outcome.hits
    assert (best.semantic, best.lexical) == (pytest.approx(0.21), 0.9)
    assert best.fused == pytest.approx(0.3 * 0.21 + 0.7 * 0.9)
    assert outcome.lexical_engine == "fake words"


def test_a_candidate_of_one_leg_has_its_exact_score_in_the_other(hybrid: Asker) -> None:
    names = [f"n{number:02}" for number in range(60)]
    hybrid.bm25 = dict.fromkeys(names, 8.0)  # more than fifty hold the word: some are cut off
    hybrid.query = replace(hybrid.query, is_explained=True)

    outcome = hybrid.ask(memory_of(*names), rerank_depth=0)

    assert {one.lexical for one in outcome.explained} == {0.5}
    assert None not in {one.semantic for one in outcome.explained}


def test_a_text_without_a_word_of_the_question_scores_nothing_by_words(hybrid: Asker) -> None:
    (hit,) = hybrid.ask(memory_of("a")).hits

    assert hit.lexical == 0.0


@pytest.mark.parametrize(("weight", "first"), [(1.0, "near"), (0.0, "word"), (0.6, "word")])
def test_the_weight_decides_between_meaning_and_words(
    hybrid: Asker, weight: float, first: str
) -> None:
    hybrid.query = replace(hybrid.query, semantic_weight=weight)
    hybrid.bm25 = {"word": 20.0}
    memory = memory_of("near", "word")

    outcome = hybrid.ask(memory, rerank_depth=0)

    assert ids(outcome.hits)[0] == first
    assert [hit.semantic_weight for hit in outcome.hits] == [weight, weight]


@pytest.mark.parametrize(
    ("said", "own", "weight"), [(None, None, 0.6), (None, 0.0, 0.0), (1.0, 0.2, 1.0)]
)
def test_a_project_s_own_weight_counts_unless_the_question_says_one(
    hybrid: Asker, said: float | None, own: float | None, weight: float
) -> None:
    hybrid.query = replace(hybrid.query, semantic_weight=said)
    hybrid.own_weight = own

    outcome = hybrid.ask(memory_of("a"))

    assert [hit.semantic_weight for hit in outcome.hits] == [weight]


def test_searching_by_words_finds_only_what_holds_one(asker: Asker) -> None:
    asker.query = replace(asker.query, method=Method.LEXICAL)
    asker.bm25 = {"b": 1.0, "c": 2.0}

    outcome = asker.ask(memory_of("a", "b", "c"), rerank_depth=0)

    assert ids(outcome.hits) == ["c", "b"]
    assert [hit.fused for hit in outcome.hits] == [hit.lexical for hit in outcome.hits]


def test_a_note_that_scores_well_is_reranked_with_its_evidence(hybrid: Asker) -> None:
    asked: list[Candidate] = []

    class Listening(FakeScorer):
        def score(
            self, question: Question, candidates: Sequence[Candidate], deadline: Deadline
        ) -> list[float | None]:
            asked.extend(candidates)
            return super().score(question, candidates, deadline)

    hybrid.scorer = Listening()
    memory = memory_of("near", "far", "turn", "bare")
    memory.distances |= {"near": 0.1, "far": 0.9, "turn": 0.1, "bare": 0.1}
    memory.prepared = {"near": Kind.NOTE, "far": Kind.NOTE, "turn": Kind.TURN}

    hybrid.ask(memory)

    tokens = {one.sha256: one.tokens for one in asked}
    assert tokens == {"near": b"nearevidence", "far": b"far", "turn": b"turn", "bare": None}


def test_without_a_lexical_engine_the_meaning_answers_and_it_is_said(hybrid: Asker) -> None:
    def fail() -> None:
        raise LexicalEngineUnavailable("OpenSearch refused")

    hybrid.on_words = fail

    outcome = hybrid.ask(memory_of("a", "b"))

    assert len(outcome.hits) == 2
    assert {(hit.lexical, hit.semantic_weight) for hit in outcome.hits} == {(None, 1.0)}
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "lexical_engine_unavailable")
    assert outcome.message == "searched by meaning alone: OpenSearch refused"
    assert outcome.lexical_engine is None


def test_words_that_take_half_of_the_time_are_done_without(hybrid: Asker) -> None:
    hybrid.on_words = hybrid.clock.taking(1.2)

    outcome = hybrid.ask(memory_of("a"))

    assert ids(outcome.hits) == ["a"]
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "lexical_timeout")


def test_words_alone_have_all_of_the_time_and_fail_with_their_engine(asker: Asker) -> None:
    asker.query = replace(asker.query, method=Method.LEXICAL)
    asker.bm25 = {"a": 1.0}
    asker.on_words = asker.clock.taking(1.2)
    slow = asker.ask(memory_of("a"))

    def fail() -> None:
        raise LexicalEngineUnavailable("OpenSearch refused")

    asker.on_words = fail
    failed = asker.ask(memory_of("a"))

    assert (slow.status, ids(slow.hits)) == (Status.SUCCESSFUL, ["a"])
    assert (failed.status, failed.reason) == (Status.FAILED, "lexical_engine_unavailable")


def test_without_an_embedding_the_words_answer_and_it_is_said(hybrid: Asker) -> None:
    hybrid.embed_error = EmbeddingServiceUnavailable("the model server refused")
    hybrid.bm25 = {"b": 1.0}

    outcome = hybrid.ask(memory_of("a", "b"))

    assert ids(outcome.hits) == ["b"]
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "embedding_service_unavailable")
    assert outcome.message == "searched by words alone: the model server refused"
    assert [(hit.semantic, hit.semantic_weight) for hit in outcome.hits] == [(None, 0.0)]
    assert outcome.hits[0].rerank_score is None


def test_a_question_the_model_does_not_understand_is_answered_by_its_words(hybrid: Asker) -> None:
    hybrid.encoding = replace(QUERY, is_understood=False)
    hybrid.bm25 = {"b": 1.0}

    outcome = hybrid.ask(memory_of("a", "b"))

    assert ids(outcome.hits) == ["b"]
    assert (outcome.status, outcome.embedding_cache) == (Status.SUCCESSFUL, "miss")
    assert "does not know" in (outcome.message or "")
    assert [(hit.semantic, hit.semantic_weight) for hit in outcome.hits] == [(None, 0.0)]


def test_by_meaning_alone_it_is_compared_all_the_same(asker: Asker) -> None:
    asker.encoding = replace(QUERY, is_understood=False)

    outcome = asker.ask(memory_of("a", "b"))

    assert sorted(ids(outcome.hits)) == ["a", "b"]


def test_an_embedding_that_fails_with_the_last_of_the_time_is_an_error(hybrid: Asker) -> None:
    hybrid.embed_error = EmbeddingServiceUnavailable("no answer")
    hybrid.embed_s = 3.0
    hybrid.bm25 = {"a": 1.0}

    outcome = hybrid.ask(memory_of("a"))

    assert (outcome.status, outcome.reason) == (Status.FAILED, "embedding_service_unavailable")


def test_a_reranker_of_texts_needs_no_embedding(asker: Asker) -> None:
    asker.query = replace(asker.query, method=Method.LEXICAL)
    asker.embed_error = EmbeddingServiceUnavailable("the model server refused")
    asker.scorer = FakeScorer({"a": 0.1, "b": 0.9}, needs_text=True)
    asker.bm25 = {"a": 2.0, "b": 1.0}

    outcome = asker.ask(memory_of("a", "b"))

    assert outcome.status is Status.SUCCESSFUL
    assert ids(outcome.hits) == ["b", "a"]


def test_words_that_come_too_late_are_a_timeout(hybrid: Asker) -> None:
    hybrid.on_words = hybrid.clock.taking(3.0)

    outcome = hybrid.ask(memory_of("a"))

    assert outcome.status is Status.TIMED_OUT


def test_of_both_legs_each_candidate_is_read_once(hybrid: Asker) -> None:
    names = [f"n{number:02}" for number in range(60)]
    hybrid.bm25 = dict.fromkeys(names[40:], 1.0)
    memory = memory_of(*names)

    hybrid.ask(memory, rerank_depth=100)
    hybrid.ask(memory, rerank_depth=20)

    assert [(what, len(of)) for what, of in memory.reads] == [
        (Reads.TOKENS, 60),  # all are to be reranked
        (Reads.TOKENS, 20),  # it takes fusing to know which
    ]


def test_explained_it_says_which_leg_found_a_candidate_and_why_it_is_not_shown(
    hybrid: Asker,
) -> None:
    hybrid.scorer = FakeScorer({"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.2})
    hybrid.query = replace(hybrid.query, is_explained=True, limit=2)
    hybrid.bm25 = {"b": 3.0, "c": 30.0}
    memory = memory_of("a", "b", "c", "d")
    memory.forgotten = frozenset({"c"})

    outcome = hybrid.ask(memory)

    told = {
        one.sha256: (one.semantic_rank, one.lexical_rank, one.unreturned)
        for one in outcome.explained
    }
    assert told == {
        "a": (1, None, Unreturned.OUTRANKED_HERE),
        "b": (2, 2, None),
        "c": (3, 1, Unreturned.DELETED),
        "d": (4, None, Unreturned.OUTRANKED_HERE),
    }


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("rerank_depth", [0, 100])
def test_every_way_of_finding_keeps_to_the_filters(
    asker: Asker, method: Method, rerank_depth: int
) -> None:
    filters = Filters(tags=("a",))
    asker.query = replace(asker.query, method=method, filters=filters)
    memory = memory_of("a", "b")
    asker.bm25 = {"a": 1.0}

    asker.ask(memory, rerank_depth)

    assert set(memory.asked_filters + asker.asked_of_words) == {filters}


def test_what_is_counted_comes_with_the_outcome(asker: Asker) -> None:
    asker.query = replace(asker.query, has_facets=True)

    outcome = asker.ask(memory_of("a", "b"))

    assert (outcome.status, outcome.facets) == (Status.SUCCESSFUL, Facets({"levels": {"L0": 2}}))
    assert "facets" in outcome.stages_ms


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize(("needs_text", "named"), [(False, {"a"}), (True, set())])
def test_a_reranker_that_reads_no_text_is_told_who_holds_the_name_that_is_asked_for(
    asker: Asker, method: Method, needs_text: bool, named: set[str]
) -> None:
    asker.query = replace(asker.query, text="a", method=method)
    asker.scorer = FakeScorer(needs_text=needs_text)
    asker.bm25 = {"a": 1.0, "b": 1.0}

    asker.ask(memory_of("a", "b"))

    assert asker.scorer.named == named


@pytest.mark.parametrize(("has_facets", "documents"), [(False, 7), (True, 2)])
def test_a_search_by_words_is_about_the_nodes_that_hold_one(
    asker: Asker, has_facets: bool, documents: int
) -> None:
    asker.query = replace(asker.query, method=Method.LEXICAL, has_facets=has_facets)
    asker.bm25 = {"a": 1.0}
    memory = memory_of("a", "b")
    memory.holding = 7

    assert asker.ask(memory).documents == documents


def test_nodes_that_are_counted_too_late_are_those_found_at_least(asker: Asker) -> None:
    asker.query = replace(asker.query, method=Method.LEXICAL)
    asker.bm25 = {"a": 1.0}
    memory = memory_of("a", "b")
    memory.on_count = asker.clock.taking(1.9)

    outcome = asker.ask(memory)

    assert (outcome.status, outcome.documents) == (Status.SUCCESSFUL, 1)


def test_nothing_is_counted_unasked(asker: Asker) -> None:
    memory = memory_of("a")
    memory.on_count = asker.clock.taking(99)

    outcome = asker.ask(memory)

    assert (outcome.status, outcome.facets) == (Status.SUCCESSFUL, None)
    assert "facets" not in outcome.stages_ms


def test_counts_that_come_too_late_cost_no_hit_and_are_missed(asker: Asker) -> None:
    asker.query = replace(asker.query, has_facets=True)
    memory = memory_of("a", "b")
    memory.on_count = asker.clock.taking(1.9)

    outcome = asker.ask(memory)

    assert ids(outcome.hits) == ["a", "b"]
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "facets_timeout")
    assert (outcome.facets, outcome.message) == (None, "its facets were not counted in time")


def test_counts_are_missed_also_where_something_else_is_missing(asker: Asker) -> None:
    asker.query = replace(asker.query, has_facets=True)

    def fail() -> None:
        raise NotReranked("reranker_unavailable", "it is away")

    asker.scorer = FakeScorer(on_call=fail)
    memory = memory_of("a")
    memory.on_count = asker.clock.taking(1.9)

    outcome = asker.ask(memory)

    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "reranker_unavailable")
    assert (outcome.message or "").endswith("; its facets were not counted in time")
