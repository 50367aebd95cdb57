"""Results in context: every text once, the best first, within the tokens that are allowed."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.pipeline_fakes import hit
from workers.model import Arranged, Context, Hit, Kept, Kind, Level, Neighbour, NodeKey
from workers.pipeline.context import arrange, count_tokens

PLACES = range(12)


def beside(place: int, text: str | None = None) -> Neighbour:
    known = "p", f"n{place}", Level.L1, Kind.CHUNK, "notes.md", place, "A title"
    return Neighbour(*known, text or f"text of {place}", None)


def around(place: int, count: int = 2) -> Context:
    """The neighbours of a place in a source of twelve chunks."""
    before = [beside(each) for each in reversed(range(max(0, place - count), place))]
    after = [beside(each) for each in range(place + 1, min(len(PLACES), place + count + 1))]
    return Context(tuple(before), tuple(after))


def results(*places: int) -> list[Kept]:
    return [Kept(hit(f"n{place}", text=f"text of {place}")) for place in places]


def contexts(*places: int, count: int = 2) -> dict[NodeKey, Context]:
    return {("p", f"n{place}"): around(place, count) for place in places}


def arranged(*places: int, most: int | None = None, count: int = 2) -> Arranged:
    return arrange(results(*places), contexts(*places, count=count), most)


def told(one: Arranged, at: int) -> tuple[list[str], list[str]]:
    """What stands before and after a result: a place, or where it is shown instead."""
    context = one.results[at - 1].context
    assert context is not None
    before, after = (
        [each.sha256 if each.text is not None else f"at {each.is_shown_at}" for each in side]
        for side in (context.previous, context.next)
    )
    return before, after


def texts(one: Arranged) -> Iterator[str]:
    for each in one.results:
        yield each.kept.hit.text
        if each.context is not None:
            for near in (*each.context.previous, *each.context.next):
                if near.text is not None:
                    yield near.text


def test_neighbours_come_nearest_first_on_both_sides() -> None:
    assert told(arranged(5), 1) == (["n4", "n3"], ["n6", "n7"])


def test_a_neighbour_that_a_better_result_shows_is_named_by_where_it_is_shown() -> None:
    one = arranged(5, 8)

    assert told(one, 1) == (["n4", "n3"], ["n6", "n7"])
    assert told(one, 2) == (["at 1", "at 1"], ["n9", "n10"])


def test_a_neighbour_that_is_a_result_itself_is_shown_there_be_it_better_or_not() -> None:
    one = arranged(5, 6)

    assert told(one, 1) == (["n4", "n3"], ["at 2", "n7"])
    assert told(one, 2) == (["at 1", "at 1"], ["at 1", "n8"])


def test_the_same_name_in_another_project_is_another_text() -> None:
    other = replace(beside(6), project="q")
    kept = [*results(6), Kept(hit("n1", "q"))]

    one = arrange(kept, {("q", "n1"): Context(next=(other,))}, None)

    assert told(one, 2) == ([], ["n6"])


def test_what_could_not_be_read_is_no_context_and_not_an_empty_one() -> None:
    assert arrange(results(1), None, None).results[0].context is None
    assert arrange(results(1), {}, None).results[0].context == Context()


def test_a_token_is_four_bytes_and_a_begun_one_counts() -> None:
    assert [count_tokens(text) for text in ("", "abcd", "abcde", "日本")] == [0, 1, 2, 2]


def test_the_results_have_the_tokens_before_their_neighbours() -> None:
    one = arranged(2, 8, most=count_tokens("text of 2") * 3)

    assert [each.kept.hit.text for each in one.results] == ["text of 2", "text of 8"]
    assert told(one, 1) == (["n1"], [])
    assert told(one, 2) == ([], [])
    assert (one.is_truncated, one.results_omitted, one.chunks_omitted) == (True, 0, 7)


def test_a_text_with_too_little_room_is_cut_and_those_behind_it_are_left_out() -> None:
    kept = [Kept(hit("a", text="x" * 40)), Kept(hit("b", text="y" * 40)), Kept(hit("c"))]

    one = arrange(kept, {}, 14)

    shown = [(each.kept.hit.text, each.kept.hit.is_excerpt) for each in one.results]
    assert shown == [("x" * 40, False), ("y" * 16, True)]
    assert (one.tokens, one.is_truncated, one.results_omitted) == (14, True, 1)


def test_a_cut_does_not_halve_a_character() -> None:
    one = arrange([Kept(hit("a", text="日本語日本語"))], {}, 1)

    assert one.results[0].kept.hit.text == "日"


def test_what_just_fits_is_not_called_truncated() -> None:
    one = arrange([Kept(hit("a", text="x" * 40))], {}, 10)

    assert (one.tokens, one.is_truncated, one.results_omitted) == (10, False, 0)


@pytest.mark.parametrize("most", [None, 1, 7, 30])
@given(places=st.lists(st.sampled_from(PLACES), unique=True), count=st.integers(0, 10))
def test_every_text_is_told_once_and_all_of_them_keep_to_the_tokens(
    most: int | None, places: list[int], count: int
) -> None:
    one = arranged(*places, most=most, count=count)

    found = list(texts(one))
    whole = [text for text in found if text in {f"text of {place}" for place in PLACES}]
    assert len(whole) == len(set(whole)) >= len(found) - 1
    assert one.tokens == sum(map(count_tokens, found))
    assert most is None or one.tokens <= most
    assert len(one.results) + one.results_omitted == len(places)
    assert one.is_truncated or (one.results_omitted, one.chunks_omitted) == (0, 0)


@given(places=st.lists(st.sampled_from(PLACES), unique=True), count=st.integers(0, 10))
def test_whoever_follows_where_a_text_is_shown_finds_it_there(
    places: list[int], count: int
) -> None:
    one = arranged(*places, count=count)

    for each in one.results:
        assert each.context is not None
        for near in (*each.context.previous, *each.context.next):
            if near.is_shown_at is not None:
                assert near.sha256 in shown_by(one, near.is_shown_at)


def shown_by(one: Arranged, at: int) -> set[str]:
    there = one.results[at - 1]
    assert there.context is not None
    near = (*there.context.previous, *there.context.next)
    return {there.kept.hit.sha256} | {each.sha256 for each in near if each.text is not None}


def test_a_result_keeps_what_was_folded_under_it() -> None:
    below: Hit = hit("below")
    none: Mapping[NodeKey, Context] = {}

    one = arrange([Kept(hit("a"), (below,))], none, None)

    assert one.results[0].kept.folded == (below,)
