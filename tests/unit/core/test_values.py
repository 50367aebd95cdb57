"""The values everything else speaks in, and the errors."""

import re

import pytest

from workers import errors
from workers.errors import InvalidParameters, PoimenError, ProjectNotFound
from workers.model import (
    PROJECT_NAME,
    Answer,
    Candidate,
    Level,
    Outcome,
    Principal,
    Query,
    Status,
)


@pytest.mark.parametrize(("distance", "similarity"), [(0.0, 1.0), (0.25, 0.75), (1.0, 0), (2, 0)])
def test_a_candidate_s_similarity_is_cut_at_zero(distance: float, similarity: float) -> None:
    assert Candidate("sha", Level.L0, distance, 1).semantic == similarity


@pytest.mark.parametrize(("limit", "depth"), [(1, 50), (5, 50), (7, 70), (50, 500), (80, 500)])
def test_recall_is_ten_times_as_deep_as_the_answer_within_bounds(limit: int, depth: int) -> None:
    assert Query("why", limit=limit).recall_depth == depth


def test_levels_sort_from_evidence_upwards() -> None:
    assert sorted([Level.L2, Level.L0, Level.L1]) == [Level.L0, Level.L1, Level.L2]


def test_only_successful_and_partial_projects_have_answered() -> None:
    assert {status for status in Status if status.has_answered} == {
        Status.SUCCESSFUL,
        Status.PARTIAL,
    }


def test_coverage_is_the_share_of_projects_that_answered() -> None:
    outcomes = [
        Outcome("a", Status.SUCCESSFUL),
        Outcome("b", Status.PARTIAL),
        Outcome("c", Status.TIMED_OUT),
        Outcome("d", Status.FAILED),
    ]
    answer = Answer("q", ("a", "b", "c", "d"), (), tuple(outcomes), (), "callback")

    assert answer.coverage == 0.5
    assert answer.count(Status.FAILED) == 1


def test_a_key_of_all_projects_reaches_any_and_one_of_none_reaches_nothing() -> None:
    assert Principal("id", "all", True, None).may_reach("anything")
    assert not Principal("id", "none", True, frozenset()).may_reach("anything")
    limited = Principal("id", "one", True, frozenset({"poimen"}))
    assert limited.may_reach("poimen")
    assert not limited.may_reach("poimen2")


@pytest.mark.parametrize("name", ["a", "0", "agent-rust", "a.b_c-d", "x" * 64])
def test_these_are_project_names(name: str) -> None:
    assert re.fullmatch(PROJECT_NAME, name)


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a b", "a/b", "ä", "x" * 65, "a\n", "a\0"])
def test_these_are_not(name: str) -> None:
    assert not re.fullmatch(PROJECT_NAME, name)


def every_error() -> list[type[PoimenError]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, PoimenError) and kind is not PoimenError
    ]


def test_every_error_has_a_code_and_a_title_of_its_own() -> None:
    kinds = every_error()

    assert len({kind.code for kind in kinds}) == len(kinds) > 10
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code) for kind in kinds)
    assert all(kind.title for kind in kinds)


def test_an_error_over_several_parameters_names_each() -> None:
    error = InvalidParameters(
        [{"parameter": "limit", "reason": "is odd"}, {"parameter": "level", "reason": "is new"}]
    )

    assert str(error) == "limit: is odd; level: is new."


def test_an_unknown_project_s_name_is_shown_shortened() -> None:
    error = ProjectNotFound("x" * 5000)

    assert len(str(error)) < 300
    assert error.errors[0]["parameter"] == "project"
