"""One answer out of one outcome per project, whoever makes it and in whatever order they came."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.pipeline_fakes import FakeRuns, candidate, found, frozen, hit, ids
from workers.model import Answer, Facets, Frozen, Hit, Kind, Level, Outcome, Parent, Silence, Status
from workers.pipeline.merge import finalize, fold, merge_order, merge_outcomes
from workers.pipeline.rerank import best_first

scores = st.none() | st.integers(0, 10).map(lambda tenths: tenths / 10)
project_names = st.sampled_from(["alpha", "beta", "gamma", "delta"])


@st.composite
def outcomes(draw: st.DrawFn) -> list[Outcome]:
    """Outcomes of distinct projects with few distinct scores, so that ties are common."""
    made = []
    for project in draw(st.lists(project_names, unique=True, min_size=1)):
        status = draw(st.sampled_from(Status))
        names = draw(st.lists(st.text("abc", min_size=1, max_size=2), unique=True, max_size=5))
        hits = [hit(name, project, draw(scores), draw(scores) or 0.0) for name in names]
        made.append(found(project, *(hits if status.has_answered else ()), status=status))
    return made


def merged(*projects: Outcome, limit: int = 5) -> Answer:
    return merge_outcomes("q", frozen(*projects, limit=limit))


def test_the_order_is_one_over_all_projects() -> None:
    rich = found("rich", hit("a", "rich", 0.9), hit("b", "rich", 0.8))
    poor = found("poor", hit("c", "poor", 0.3), hit("d", "poor", 0.85))

    answer = merged(rich, poor)

    assert ids(answer.hits) == ["a", "d", "b", "c"]


def test_a_poor_project_s_best_hit_is_not_lifted_to_the_top() -> None:
    rich = found("rich", *(hit(f"r{n}", "rich", 0.9 - n / 100) for n in range(5)))
    poor = found("poor", hit("best", "poor", 0.1))

    assert ids(merged(poor, rich).hits) == ["r0", "r1", "r2", "r3", "r4"]


def test_the_limit_cuts_after_the_merge() -> None:
    one = found("one", *(hit(f"a{n}", "one", 0.1) for n in range(5)))
    other = found("other", *(hit(f"b{n}", "other", 0.2) for n in range(5)))

    answer = merged(one, other, limit=6)

    assert ids(answer.hits) == ["b0", "b1", "b2", "b3", "b4", "a0"]


def test_ties_are_ordered_by_the_fused_score_then_project_then_sha256() -> None:
    hits = [
        hit("b", "x", 0.5, semantic=0.4),
        hit("a", "x", 0.5, semantic=0.4),
        hit("c", "w", 0.5, semantic=0.4),
        hit("z", "z", 0.5, semantic=0.6),
    ]

    assert ids(sorted(hits, key=merge_order)) == ["z", "c", "a", "b"]


def test_scores_are_compared_as_they_are_and_not_as_they_are_shown() -> None:
    lower, higher = hit("a", "p", 0.9000000001), hit("b", "p", 0.9000000002)

    assert sorted([lower, higher], key=merge_order) == [higher, lower]


def test_hits_that_were_not_reranked_follow_all_that_were() -> None:
    unscored = found("unscored", hit("near", "unscored", None, semantic=1.0))
    scored = found("scored", hit("zero", "scored", 0.0, semantic=0.0))

    assert ids(merged(unscored, scored).hits) == ["zero", "near"]


def test_the_same_text_in_two_projects_is_two_results() -> None:
    one = found("one", hit("sha1", "one", 0.5, text="the same"))
    other = found("other", hit("sha2", "other", 0.5, text="the same"))

    answer = merged(one, other)

    assert [(each.project, each.text) for each in answer.hits] == [
        ("one", "the same"),
        ("other", "the same"),
    ]


def test_a_silent_project_timed_out_and_the_answer_says_so() -> None:
    query = frozen(found("here", hit("a", "here")), projects=["here", "x"])

    answer = merge_outcomes("q", query)

    assert [(o.project, o.status) for o in answer.outcomes] == [
        ("here", Status.SUCCESSFUL),
        ("x", Status.TIMED_OUT),
    ]
    assert answer.outcomes[1].reason == "no_answer_by_deadline"
    assert [warning.message for warning in answer.warnings] == ["project 'x' timed out"]
    assert answer.coverage == 0.5


def test_an_outcome_of_a_project_that_was_not_asked_does_not_show() -> None:
    stranger = found("stranger", hit("a", "stranger", 1.0))

    answer = merge_outcomes("q", frozen(found("asked"), stranger, projects=["asked"]))

    assert answer.hits == ()
    assert [outcome.project for outcome in answer.outcomes] == ["asked"]


def test_a_failed_project_s_reason_is_a_warning() -> None:
    failed = Outcome("x", Status.FAILED, reason="store_unavailable", message="it is gone")

    (warning,) = merged(failed).warnings

    assert (warning.code, warning.project) == ("store_unavailable", "x")
    assert warning.message == "project 'x' failed: it is gone"


def test_a_hit_without_a_path_to_evidence_is_shown_with_a_warning() -> None:
    lost = replace(hit("0123456789abcdef", "x", 0.5), level=Level.L1, kind=Kind.NOTE)

    answer = merged(found("x", lost))

    assert ids(answer.hits) == [lost.sha256]
    (warning,) = answer.warnings
    assert (warning.code, warning.project) == ("provenance_missing", "x")
    assert "L1 x/0123456789ab" in warning.message


def test_a_hit_with_evidence_raises_no_warning() -> None:
    turn = Parent(Level.L0, Kind.TURN, "turn", "source", "text", 1, None)
    note = replace(hit("note", "x", 0.5), level=Level.L1, parents=(turn,))

    assert merged(found("x", note, hit("raw", "x"))).warnings == ()


def test_a_hit_that_the_limit_cut_raises_no_warning() -> None:
    lost = replace(hit("lost", "x", 0.1), level=Level.L1)

    answer = merged(found("x", hit("first", "x", 0.9), lost), limit=1)

    assert answer.warnings == ()


def test_the_outcomes_of_an_answer_do_not_hold_the_hits_again() -> None:
    answer = merged(found("x", hit("a", "x")))

    assert [outcome.hits for outcome in answer.outcomes] == [()]


def test_no_project_at_all_is_a_whole_answer_without_hits() -> None:
    answer = merge_outcomes("q", Frozen((), 5, "waiter", {}))

    assert (answer.hits, answer.outcomes, answer.coverage) == ((), (), 1.0)


@given(outcomes(), st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_order_in_which_outcomes_arrive_changes_nothing(
    made: list[Outcome], limit: int, chance: random.Random
) -> None:
    projects = sorted(outcome.project for outcome in made)
    arrived = chance.sample(made, len(made))

    answer = merge_outcomes("q", frozen(*made, projects=projects, limit=limit))

    assert merge_outcomes("q", frozen(*arrived, projects=projects, limit=limit)) == answer


@given(outcomes(), st.integers(1, 8))
def test_the_counts_of_all_statuses_sum_to_the_number_of_projects(
    made: list[Outcome], limit: int
) -> None:
    asked = sorted({outcome.project for outcome in made} | {"silent"})

    answer = merge_outcomes("q", frozen(*made, projects=asked, limit=limit))

    assert sum(answer.count(status) for status in Status) == len(asked) == len(answer.outcomes)
    assert len(answer.hits) <= limit
    assert 0 <= answer.coverage < 1


@given(outcomes(), st.integers(1, 8))
def test_every_result_left_out_is_worse_than_every_result_shown(
    made: list[Outcome], limit: int
) -> None:
    answer = merge_outcomes("q", frozen(*made, limit=limit))

    every = [one for outcome in made for one in outcome.hits]
    left_out = [one for one in every if one not in answer.hits]
    assert len(answer.hits) == min(limit, len(every))
    assert all(merge_order(one) > merge_order(shown) for one in left_out for shown in answer.hits)


@given(st.lists(st.tuples(scores, st.integers(0, 10)), max_size=20))
def test_merging_one_project_keeps_the_order_its_reranker_gave(
    drawn: list[tuple[float | None, int]],
) -> None:
    candidates = [
        candidate(f"{place:02}", tenths / 10)._replace(rerank_score=score)
        for place, (score, tenths) in enumerate(drawn)
    ]
    ranked = sorted(candidates, key=best_first)

    hits = [hit(c.sha256, "p", c.rerank_score, c.semantic) for c in ranked]

    assert ids(sorted(hits, key=merge_order)) == ids(ranked)


def test_the_first_published_answer_stands() -> None:
    first: Hit = hit("first", "p", 0.9)
    runs = FakeRuns(q=frozen(found("p", first)))
    seen = finalize(runs, "q", "callback")
    runs.queries["q"] = frozen(found("p"))

    again = finalize(runs, "q", "waiter")

    assert seen is not None
    assert ids(seen.hits) == ["first"]
    assert again == seen
    assert len(runs.published) == 1


def test_a_finalizer_that_was_overtaken_returns_the_answer_that_stands() -> None:
    class Overtaken(FakeRuns):
        """Somebody else publishes while this one merges."""

        def freeze(self, query_id: str, by: str, silence: Silence) -> Frozen | Answer | None:
            return self.queries[query_id]

    runs = Overtaken(q=frozen(found("p")))
    standing = finalize(runs, "q", "callback")

    answer = finalize(runs, "q", "waiter")

    assert len(runs.published) == 2
    assert answer == standing


def test_an_unknown_query_has_no_answer() -> None:
    assert finalize(FakeRuns(), "nobody-asked", "waiter") is None


def test_an_answer_says_who_ended_the_query_and_how_long_merging_took() -> None:
    answer = finalize(FakeRuns(q=frozen(found("p"))), "q", "waiter")

    assert answer is not None
    assert answer.finalized_by == "callback"  # who froze it, not who came later
    assert answer.merge_ms > 0


@pytest.mark.parametrize("status", [Status.SKIPPED, Status.CANCELLED, Status.PARTIAL])
def test_every_unsuccessful_project_is_named_in_a_warning(status: Status) -> None:
    (warning,) = merged(found("x", status=status)).warnings

    assert warning.message == f"project 'x' {status.value}: some_reason"


def made_of(name: str, *parents: Parent, project: str = "p") -> Hit:
    return replace(hit(name, project), parents=parents)


def step(name: str, *parents: Parent) -> Parent:
    return Parent(Level.L1, Kind.NOTE, name, "source", "text", None, None, parents)


def folds(*hits: Hit) -> dict[str, list[str]]:
    """What is kept, in its order, and what is folded under each."""
    return {one.hit.sha256: ids(one.folded) for one in fold(hits)}


def test_a_hit_goes_under_a_better_one_that_was_made_from_it() -> None:
    assert folds(made_of("note", step("turn")), hit("other"), hit("turn")) == {
        "note": ["turn"],
        "other": [],
    }


def test_a_better_hit_is_not_folded_under_what_was_made_from_it() -> None:
    assert folds(hit("turn"), made_of("note", step("turn"))) == {"turn": [], "note": []}


def test_evidence_goes_under_the_synthesis_over_the_notes_between() -> None:
    synthesis = made_of("synthesis", step("note", step("turn")))

    assert folds(synthesis, hit("turn"), made_of("note", step("turn"))) == {
        "synthesis": ["turn", "note"]
    }


def test_what_two_hits_were_made_from_goes_under_the_better_one() -> None:
    one, other = made_of("one", step("turn")), made_of("other", step("turn"))

    assert folds(one, other, hit("turn")) == {"one": ["turn"], "other": []}


def test_what_only_a_folded_hit_leads_to_goes_with_it() -> None:
    synthesis, note = made_of("synthesis", step("note")), made_of("note", step("turn"))

    assert folds(synthesis, note, hit("turn")) == {"synthesis": ["note", "turn"]}


def test_the_same_name_in_another_project_is_not_folded() -> None:
    assert folds(made_of("note", step("turn")), hit("turn", "q")) == {"note": [], "turn": []}


@st.composite
def rankings(draw: st.DrawFn) -> list[Hit]:
    """Hits of three levels in any order, some made from others, and from what is no hit."""
    names = [f"{level}{n}" for level in range(3) for n in range(4)]
    parents = {
        name: draw(st.lists(st.sampled_from(below), unique=True, max_size=3))
        for name in names
        if (below := [one for one in names if one[0] < name[0]])
    }

    def tree(name: str) -> tuple[Parent, ...]:
        return tuple(step(parent, *tree(parent)) for parent in parents.get(name, ()))

    chosen = draw(st.lists(st.sampled_from(names), unique=True))
    return [made_of(name, *tree(name)) for name in chosen]


@given(rankings())
def test_folding_keeps_every_hit_exactly_once(ranking: list[Hit]) -> None:
    kept = fold(ranking)

    place = {one.sha256: at for at, one in enumerate(ranking)}
    assert ids([one.hit for one in kept]) == [
        name for name in ids(ranking) if name in ids([one.hit for one in kept])
    ]
    assert sorted(ids([each for one in kept for each in (one.hit, *one.folded)])) == sorted(place)
    for one in kept:
        assert all(place[one.hit.sha256] < place[each.sha256] for each in one.folded)


@given(rankings())
def test_no_kept_hit_leads_to_another_one_below_it(ranking: list[Hit]) -> None:
    kept = [one.hit for one in fold(ranking)]

    for at, better in enumerate(kept):
        below = {parent.sha256 for parent in walked(better.parents)}
        assert not below & set(ids(kept[at + 1 :]))


def walked(parents: tuple[Parent, ...]) -> list[Parent]:
    return [each for parent in parents for each in (parent, *walked(parent.parents))]


def counted(project: str, truncated: tuple[str, ...] = (), **tags: int) -> Outcome:
    return replace(found(project), facets=Facets({"tags": tags}, truncated))


def test_counts_of_projects_are_added_and_the_largest_stand_first_then_by_name() -> None:
    answer = merged(counted("one", a=1, b=3, d=1), counted("other", a=4, c=1))

    assert answer.facets is not None
    assert list(answer.facets.counts["tags"].items()) == [("a", 5), ("b", 3), ("c", 1), ("d", 1)]
    assert answer.facets.truncated == ()


def test_a_hundred_values_of_a_facet_are_shown_and_that_there_are_more_is_said() -> None:
    many = {f"t{number:03}": 1 for number in range(100)}

    whole = merged(counted("one", **many)).facets
    assert whole is not None
    assert (whole.counts["tags"], whole.truncated) == (many, ())
    cut = merged(counted("one", **many), counted("other", zz=2)).facets
    assert cut is not None
    assert list(cut.counts["tags"])[:2] == ["zz", "t000"]
    assert (len(cut.counts["tags"]), cut.truncated) == (100, ("tags",))


def test_what_one_project_did_not_carry_makes_the_whole_facet_incomplete() -> None:
    answer = merged(counted("one", a=1), counted("other", truncated=("tags",), a=1))

    assert answer.facets is not None
    assert answer.facets.truncated == ("tags",)


def test_projects_that_did_not_answer_are_not_in_the_counts() -> None:
    answer = merge_outcomes("q", frozen(counted("one", a=1), projects=["one", "gone"]))

    assert answer.facets is not None
    assert answer.facets.counts["tags"] == {"a": 1}
    assert [warning.message for warning in answer.warnings] == ["project 'gone' timed out"]
    assert all(outcome.facets is None for outcome in answer.outcomes)


def test_without_counts_there_are_none() -> None:
    assert merged(found("one")).facets is None


def test_coverage_by_documents_is_of_what_there_was_before_filters() -> None:
    few = replace(found("one"), documents=1)
    asked = replace(frozen(few, projects=["one", "gone"]), documents=(300, 100))

    assert merge_outcomes("q", asked).document_coverage == 0.75
