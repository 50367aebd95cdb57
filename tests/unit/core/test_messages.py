"""What is written to Redis by one process is read by another as it was."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from workers.contracts import (
    dump_answer,
    dump_outcome,
    dump_query,
    load_answer,
    load_outcome,
    load_query,
    worker_key,
)
from workers.model import (
    Answer,
    Explained,
    Facets,
    Filters,
    Hit,
    Kind,
    Level,
    Notice,
    Outcome,
    Parent,
    Query,
    Status,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
scores = st.floats(0, 1)
instants = st.datetimes(timezones=st.just(UTC))
metadata = st.dictionaries(words, st.none() | st.booleans() | st.integers(-(2**60), 2**60) | words)


def parents(inner: st.SearchStrategy[tuple[Parent, ...]]) -> st.SearchStrategy[tuple[Parent, ...]]:
    one = st.builds(Parent, parents=inner, timestamp=st.none() | instants, text=words, source=words)
    return st.lists(one, max_size=2).map(tuple)


trees = st.recursive(st.just(()), parents, max_leaves=4)
hits = st.builds(
    Hit,
    text=words,
    semantic=st.none() | scores,
    rerank_score=st.none() | scores,
    lexical=st.none() | scores,
    fused=scores,
    semantic_weight=scores,
    timestamp=st.none() | instants,
    tags=st.lists(words, max_size=3).map(tuple),
    breadcrumb=st.lists(words, max_size=3).map(tuple),
    metadata=metadata,
    parents=trees,
)
maybe = st.none() | scores
explained = st.builds(
    Explained,
    distance=maybe,
    semantic=maybe,
    bm25=maybe,
    lexical=maybe,
    fused=scores,
    rerank_score=maybe,
)
filters = st.builds(
    Filters,
    source_pattern=st.none() | words,
    updated_since=st.none() | instants,
    occurred_before=st.none() | instants,
    tags=st.lists(words, max_size=3).map(tuple),
    kinds=st.lists(st.sampled_from(Kind), max_size=3).map(tuple),
    standing_ids=st.lists(words, max_size=3).map(tuple),
)
facets = st.builds(
    Facets,
    counts=st.dictionaries(words, st.dictionaries(words, st.integers(0, 2**60)), max_size=3),
    truncated=st.lists(words, max_size=3).map(tuple),
)
queries = st.builds(
    Query, text=words, semantic_weight=scores, filters=filters, has_facets=st.booleans()
)
outcomes = st.builds(
    Outcome,
    facets=st.none() | facets,
    hits=st.lists(hits, max_size=2).map(tuple),
    stages_ms=st.dictionaries(words, scores, max_size=4),
    explained=st.lists(explained, max_size=2).map(tuple),
    started_at=st.none() | instants,
    took_ms=scores,
    queue_ms=scores,
)
answers = st.builds(
    Answer,
    projects=st.lists(words, max_size=3).map(tuple),
    hits=st.lists(hits, max_size=2).map(tuple),
    outcomes=st.lists(outcomes, max_size=2).map(tuple),
    warnings=st.lists(st.builds(Notice), max_size=2).map(tuple),
    merge_ms=scores,
    facets=st.none() | facets,
)


@given(queries)
def test_a_question_survives_the_journey(query: Query) -> None:
    assert load_query(json.loads(json.dumps(dump_query(query)))) == query


def test_what_an_older_version_does_not_say_of_a_question_is_as_by_default() -> None:
    said = {"text": "why", "levels": ["L0"], "limit": 3, "is_explained": False, "asked": {}}

    assert load_query(said) == Query("why", (Level.L0,), 3)


@given(outcomes)
def test_an_outcome_survives_the_journey(outcome: Outcome) -> None:
    assert load_outcome(dump_outcome(outcome)) == outcome


@given(answers)
def test_an_answer_survives_the_journey(answer: Answer) -> None:
    assert load_answer(dump_answer(answer)) == answer


def test_provenance_of_two_hops_survives_with_its_instants_and_signs() -> None:
    written = datetime(2026, 7, 21, 9, 52, 3, 123456, tzinfo=timezone(timedelta(hours=2)))
    turn = Parent(Level.L0, Kind.TURN, "t", "pi:2026", "für 木 \u202e\x07", 42, written)
    note = Parent(Level.L1, Kind.NOTE, "n", "s", "note", None, None, (turn,), 3)
    hit = Hit("p", "h", Level.L2, Kind.SYNTHESIS, "👩‍💻", "s", 0.9, None, parents=(note,))

    read = load_outcome(dump_outcome(Outcome("p", Status.PARTIAL, hits=(hit,), reason="r")))

    assert read.hits == (hit,)
    assert read.hits[0].parents[0].parents[0].timestamp == written
    assert isinstance(read.status, Status)


def test_a_score_is_read_back_to_the_last_bit() -> None:
    score = 0.1 + 0.2
    hit = Hit("p", "h", Level.L0, Kind.TURN, "t", "s", score, score)

    (read,) = load_outcome(dump_outcome(Outcome("p", Status.SUCCESSFUL, hits=(hit,)))).hits

    assert (read.semantic, read.rerank_score) == (score, score)


@pytest.mark.parametrize("data", [b"", b"{}", b"null", b'{"project": "p", "status": "odd"}'])
def test_what_is_no_outcome_is_refused(data: bytes) -> None:
    with pytest.raises(ValidationError):
        load_outcome(data)


def test_a_worker_s_key_is_one_of_ours() -> None:
    assert worker_key("query@host") == "poimen:worker:query@host"
