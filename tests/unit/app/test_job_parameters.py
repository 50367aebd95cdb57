"""What a submission, a poll and a list of jobs may hold, and what is said where it does not."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from werkzeug.datastructures import MultiDict

from app.parameters import (
    JobListParameters,
    JobParameters,
    NoParameters,
    PollParameters,
    RemoveParameters,
    read_parameters,
    validate,
)
from workers.contracts import dump_query, load_query
from workers.errors import InvalidParameters
from workers.model import Level


def read(**given_: Any) -> JobParameters:
    return validate(JobParameters, {"query": "why"} | given_)


def wrong(model: type[BaseModel], given_: dict[str, Any]) -> dict[str, str]:
    use = partial(read_parameters, model, MultiDict(given_))
    if model is JobParameters:
        use = partial(validate, model, {"query": "why"} | given_)
    with pytest.raises(InvalidParameters) as caught:
        use()
    return {error["parameter"]: error["reason"] for error in caught.value.errors}


def test_a_question_alone_has_a_minute_and_is_kept_for_a_day() -> None:
    parameters = read()

    assert (parameters.timeout_s, parameters.keep_alive_s, parameters.wait_s) == (60, 86_400, 0)
    assert (parameters.allow_partial, parameters.explain) == (True, False)
    assert parameters.to_query().levels == (Level.L1, Level.L2)
    assert parameters.notes() == []


@pytest.mark.parametrize(
    ("name", "given_", "used"),
    [
        ("limit", 0, 1),
        ("limit", 51, 50),
        ("timeout_seconds", 0, 1),
        ("timeout_seconds", 601, 600),
        ("timeout_seconds", 10**30, 600),
        ("keep_alive_seconds", 59, 60),
        ("keep_alive_seconds", 604_801, 604_800),
        ("keep_alive_seconds", -1, 60),
        ("wait_seconds", 26, 25),
        ("wait_seconds", -1, 0),
    ],
)
def test_a_number_out_of_range_is_cut_and_the_notes_say_so(
    name: str, given_: int, used: int
) -> None:
    parameters = read(**{name: given_})

    assert parameters.notes() == [f"{name} {given_} was cut to {used}"]
    assert parameters.used()[name] == used


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("limit", (1, 50)),
        ("timeout_seconds", (1, 600)),
        ("keep_alive_seconds", (60, 604_800)),
        ("wait_seconds", (0, 25)),
    ],
)
def test_the_bounds_themselves_are_not_cut(name: str, bounds: tuple[int, int]) -> None:
    for bound in bounds:
        assert read(**{name: bound}).notes() == []


@given(st.integers(-(10**20), 10**20))
def test_whatever_whole_number_is_given_something_possible_is_used(number: int) -> None:
    parameters = read(timeout_seconds=number, keep_alive_seconds=number, wait_seconds=number)

    assert 1 <= parameters.timeout_s <= 600
    assert 60 <= parameters.keep_alive_s <= 604_800
    assert 0 <= parameters.wait_s <= 25


@pytest.mark.parametrize("name", ["limit", "timeout_seconds", "keep_alive_seconds", "wait_seconds"])
@pytest.mark.parametrize("given_", ["5", 5.5, 5.0, True, None, [5], float("nan")])
def test_what_is_no_whole_number_is_refused(name: str, given_: object) -> None:
    assert list(wrong(JobParameters, {name: given_})) == [name]


@pytest.mark.parametrize("name", ["explain", "allow_partial"])
@pytest.mark.parametrize("given_", ["true", 1, 0, None, []])
def test_a_switch_is_nothing_but_true_or_false(name: str, given_: object) -> None:
    assert list(wrong(JobParameters, {name: given_})) == [name]


@pytest.mark.parametrize("given_", ["L1", [], None, {}])
def test_levels_are_a_list(given_: object) -> None:
    assert list(wrong(JobParameters, {"level": given_})) == ["level"]


@pytest.mark.parametrize("given_", ["L3", "l1", 1, None, "L1 ", []])
def test_a_level_that_there_is_none_of_is_named_by_its_place(given_: object) -> None:
    assert list(wrong(JobParameters, {"level": ["L1", given_]})) == ["level[1]"]


def test_levels_are_a_set() -> None:
    assert read(level=["L2", "L0", "L2"]).to_query().levels == (Level.L0, Level.L2)


@pytest.mark.parametrize("given_", ["poimen", "a,b", [], {"a": 1}])
def test_projects_are_a_list(given_: object) -> None:
    assert list(wrong(JobParameters, {"projects": given_})) == ["projects"]


@pytest.mark.parametrize("given_", ["", 5, None])
def test_a_project_that_is_no_name_is_named_by_its_place(given_: object) -> None:
    assert list(wrong(JobParameters, {"projects": ["a", given_]})) == ["projects[1]"]


def test_one_project_and_a_list_of_them_contradict_each_other() -> None:
    assert list(wrong(JobParameters, {"project": "a", "projects": ["a"]})) == ["projects"]


@pytest.mark.parametrize("question", [None, 5, "", " \t", "x" * 4001, "a\0b", "half \ud83d", []])
def test_a_question_that_cannot_be_asked_is_refused(question: object) -> None:
    assert list(wrong(JobParameters, {"query": question})) == ["query"]


def test_what_was_asked_can_be_read_again_from_where_it_was_kept() -> None:
    for parameters in (
        read(),
        read(project="p", level=["L0"], limit=99, explain=True),
        read(projects=["a", "b"], method="semantic", allow_partial=False, wait_seconds=10**20),
        read(filters={"tags": "a", "occurred_since": "2026-03-03T00:00:00+02:00"}, facets=False),
    ):
        kept = parameters.model_dump(mode="json")

        again = JobParameters.model_validate(kept)

        assert again == parameters
        assert again.notes() == parameters.notes()
        assert load_query(dump_query(parameters.to_query())) == again.to_query()


@pytest.mark.parametrize("filters", ["{}", [], 5, "kind=note"])
def test_filters_are_an_object(filters: object) -> None:
    assert wrong(JobParameters, {"filters": filters}) == {"filters": "is not a JSON object"}


def test_a_filter_that_there_is_none_of_is_named_by_its_place() -> None:
    assert wrong(JobParameters, {"filters": {"kinds": "note", "tags": [5]}}) == {
        "filters.kinds": "is unknown; did you mean kind?",
        "filters.tags[0]": "is not text",
    }


@pytest.mark.parametrize("given_", ["true", 1, []])
def test_whether_values_are_counted_is_nothing_but_true_or_false(given_: object) -> None:
    assert list(wrong(JobParameters, {"facets": given_})) == ["facets"]


@pytest.mark.parametrize(
    ("model", "given_", "meant"),
    [
        (JobParameters, "wait", "wait_seconds"),
        (JobParameters, "keep_alive", "keep_alive_seconds"),
        (JobParameters, "levels", "level"),
        (PollParameters, "sinse", "since"),
        (RemoveParameters, "running", "if_running"),
        (JobListParameters, "states", "status"),
    ],
)
def test_an_unknown_parameter_names_the_nearest_known_one(
    model: type[BaseModel], given_: str, meant: str
) -> None:
    assert wrong(model, {given_: "1"}) == {given_: f"is unknown; did you mean {meant}?"}


def test_where_no_parameter_is_taken_none_is_meant() -> None:
    assert wrong(NoParameters, {"wait": "1"}) == {"wait": "is unknown; none is taken here"}


@pytest.mark.parametrize(("given_", "waited"), [("-1", 0), ("0", 0), ("25", 25), ("9" * 30, 25)])
def test_the_wait_of_a_poll_is_cut(given_: str, waited: int) -> None:
    assert read_parameters(PollParameters, MultiDict({"wait_seconds": given_})).wait_s == waited


@pytest.mark.parametrize("given_", ["-1", "1.5", "", "x", "٥"])
def test_a_revision_is_a_whole_number(given_: str) -> None:
    assert list(wrong(PollParameters, {"since": given_})) == ["since"]


@pytest.mark.parametrize(("given_", "page"), [("-1", 1), ("0", 1), ("100", 100), ("101", 100)])
def test_the_length_of_a_page_is_cut(given_: str, page: int) -> None:
    assert read_parameters(JobListParameters, MultiDict({"limit": given_})).page == page


@pytest.mark.parametrize("given_", ["", "open", "queued", "expired", "Running", "x"])
def test_jobs_are_listed_by_a_known_status(given_: str) -> None:
    assert list(wrong(JobListParameters, {"status": given_})) == ["status"]


@pytest.mark.parametrize("model", [PollParameters, RemoveParameters, JobListParameters])
def test_a_parameter_given_twice_is_refused(model: type[BaseModel]) -> None:
    name = next(iter(model.model_fields))
    with pytest.raises(InvalidParameters) as caught:
        read_parameters(model, MultiDict([(name, "1"), (name, "1")]))

    assert caught.value.errors == [{"parameter": name, "reason": "was given twice"}]
