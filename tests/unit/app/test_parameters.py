"""What the query string may hold, and what is said where it does not."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.datastructures import MultiDict

from app.parameters import (
    IngestParameters,
    QueryParameters,
    check_submission,
    read_parameters,
    validate,
)
from workers.errors import InvalidParameters
from workers.model import Filters, Kind, Level, Method

NOT_SEVERAL = "is neither text nor a list"


def read(**given_: str) -> QueryParameters:
    return read_parameters(QueryParameters, MultiDict({"query": "why"} | given_))


def wrong(**given_: str) -> dict[str, str]:
    with pytest.raises(InvalidParameters) as caught:
        read(**given_)
    return {error["parameter"]: error["reason"] for error in caught.value.errors}


def test_a_question_alone_asks_for_five_notes_and_syntheses_within_five_seconds() -> None:
    parameters = read()

    query = parameters.to_query()
    assert (query.text, query.limit, query.levels) == ("why", 5, (Level.L1, Level.L2))
    assert (parameters.timeout_s, query.is_explained) == (5, False)
    assert parameters.notes() == []


def test_a_question_is_trimmed() -> None:
    assert read(query=" \t why \u3000\n").query == "why"


@pytest.mark.parametrize(
    ("name", "given_", "used"),
    [
        ("limit", "0", 1),
        ("limit", "-7", 1),
        ("limit", "51", 50),
        ("limit", "9" * 30, 50),
        ("timeout_seconds", "0", 1),
        ("timeout_seconds", "31", 30),
        ("timeout_seconds", "-" + "9" * 30, 1),
    ],
)
def test_a_number_out_of_range_is_cut_and_the_notes_say_so(
    name: str, given_: str, used: int
) -> None:
    parameters = read(**{name: given_})

    assert parameters.notes() == [f"{name} {given_} was cut to {used}"]
    assert used == (parameters.to_query().limit if name == "limit" else parameters.timeout_s)


@pytest.mark.parametrize("given_", ["1", "50"])
def test_the_bounds_themselves_are_not_cut(given_: str) -> None:
    assert read(limit=given_).notes() == []


@given(st.integers(-(10**20), 10**20), st.integers(-(10**20), 10**20))
def test_whatever_whole_number_is_given_something_sensible_is_used(
    limit: int, timeout: int
) -> None:
    parameters = read(limit=str(limit), timeout_seconds=str(timeout))

    assert 1 <= parameters.to_query().limit <= 50
    assert 1 <= parameters.timeout_s <= 30
    assert len(parameters.notes()) == (not 1 <= limit <= 50) + (not 1 <= timeout <= 30)


@pytest.mark.parametrize("given_", ["five", "5.0", "1e1", "", " ", "0x5", "٥", "５", "1_0", "nan"])
def test_what_is_no_whole_number_is_refused(given_: str) -> None:
    assert wrong(limit=given_) == {"limit": "is not a whole number"}


@pytest.mark.parametrize(
    ("given_", "value"),
    [("true", True), ("TRUE", True), ("1", True), ("false", False), ("0", False)],
)
def test_a_switch_is_true_or_false(given_: str, value: bool) -> None:
    assert read(explain=given_).explain is value


@pytest.mark.parametrize("given_", ["", "yes", "2", "on", "null"])
def test_a_switch_that_is_neither_is_refused(given_: str) -> None:
    assert wrong(explain=given_) == {"explain": "is neither true nor false"}


@pytest.mark.parametrize(
    ("given_", "levels"),
    [
        ("L0", [Level.L0]),
        ("L2,L0", [Level.L0, Level.L2]),
        (" L1 , L1 ", [Level.L1]),
        ("L0,L1,L2", list(Level)),
    ],
)
def test_levels_are_a_set_separated_by_commas(given_: str, levels: list[Level]) -> None:
    assert list(read(level=given_).to_query().levels) == levels


@pytest.mark.parametrize("given_", ["", ",", "L3", "l1", "L1,", "L1;L2", "1"])
def test_levels_that_are_none_are_refused(given_: str) -> None:
    assert wrong(level=given_) == {"level": "takes L0, L1 and L2, comma-separated"}


def test_projects_are_a_list_separated_by_commas() -> None:
    assert read(projects="poimen, agent-rust").projects == ["poimen", "agent-rust"]


@pytest.mark.parametrize("given_", ["", ",", "poimen,,agent-rust", "poimen,"])
def test_an_empty_name_among_projects_is_refused(given_: str) -> None:
    assert wrong(projects=given_) == {"projects": "has an empty name"}


def test_one_project_and_a_list_of_them_contradict_each_other() -> None:
    assert wrong(project="poimen", projects="poimen") == {
        "projects": "cannot be given together with project"
    }


@pytest.mark.parametrize("question", ["", " ", "\n\t", "\u3000", "x" * 4001, "a\0b"])
def test_a_question_that_cannot_be_asked_is_refused(question: str) -> None:
    assert list(wrong(query=question)) == ["query"]


@pytest.mark.parametrize("question", ["x" * 4000, " " * 5000 + "x", "?", "木", "\x07", "\u202e"])
def test_a_question_of_any_other_kind_is_asked(question: str) -> None:
    assert read(query=question).query == question.strip()


def test_a_missing_question_is_required() -> None:
    with pytest.raises(InvalidParameters) as caught:
        read_parameters(QueryParameters, MultiDict())

    assert caught.value.errors == [{"parameter": "query", "reason": "is required"}]


@pytest.mark.parametrize("method", Method)
def test_a_method_that_is_asked_for_is_used(method: Method) -> None:
    assert read(method=method.value).to_query().method is method


def test_without_a_method_the_question_decides() -> None:
    assert read(query="ORA-00942").to_query().method is Method.LEXICAL
    assert read(query="why did it fail?").to_query().method is Method.HYBRID


@pytest.mark.parametrize(("said", "weight"), [("0", 0), ("1", 1), ("0.25", 0.25), ("1.0", 1)])
def test_the_weight_of_the_meaning_is_a_number_from_zero_to_one(said: str, weight: float) -> None:
    assert read(semantic_weight=said).to_query().semantic_weight == weight


def test_without_a_weight_each_project_says_what_the_meaning_counts() -> None:
    assert read().to_query().semantic_weight is None


@pytest.mark.parametrize("said", ["", "half", "1.1", "-0.1", "nan", "inf", "1e-1", "0,5", "0." * 9])
def test_a_weight_that_is_none_is_refused(said: str) -> None:
    assert list(wrong(semantic_weight=said)) == ["semantic_weight"]


@pytest.mark.parametrize("method", ["", "fuzzy", "AUTO"])
def test_an_unknown_method_is_refused_with_the_known_ones(method: str) -> None:
    assert "'semantic'" in wrong(method=method)["method"]


def filtered(**filters: Any) -> QueryParameters:
    return read(level="L0,L1,L2", filters=json.dumps(filters))


def refused(**filters: Any) -> dict[str, str]:
    return wrong(level="L0,L1,L2", filters=json.dumps(filters))


def test_without_filters_every_node_passes_and_nothing_is_counted() -> None:
    for parameters in (read(), read(filters="{}")):
        query = parameters.to_query()
        assert not query.filters
        assert (query.has_facets, parameters.filters_applied) == (False, {})


def test_filters_are_one_json_object_and_shown_as_they_are_understood() -> None:
    parameters = filtered(
        level=["L2", "L1", "L1"],
        source_pattern="docs/*.md",
        updated_since="2026-07-01",
        occurred_before="2026-07-21T09:52:03+02:00",
        tags=["b", "a", "b"],
        kind="note",
        standing_id=["y", "x"],
    )

    query = parameters.to_query()
    assert query.levels == (Level.L1, Level.L2)
    assert query.filters == Filters(
        source_pattern="docs/*.md",
        updated_since=datetime(2026, 7, 1, tzinfo=UTC),
        occurred_before=datetime(2026, 7, 21, 7, 52, 3, tzinfo=UTC),
        tags=("a", "b"),
        kinds=(Kind.NOTE,),
        standing_ids=("x", "y"),
    )
    assert parameters.filters_applied == {
        "level": ["L1", "L2"],
        "source_pattern": "docs/*.md",
        "updated_since": "2026-07-01T00:00:00Z",
        "occurred_before": "2026-07-21T07:52:03Z",
        "tags": ["a", "b"],
        "kind": ["note"],
        "standing_id": ["x", "y"],
    }


@pytest.mark.parametrize(
    ("filters", "facets", "has_facets"),
    [
        ("{}", None, False),
        ('{"kind": "note"}', None, True),
        ('{"level": "L1"}', None, True),
        ('{"kind": "note"}', "false", False),
        ("{}", "true", True),
    ],
)
def test_values_are_counted_where_it_is_asked_for_and_by_default_with_filters(
    filters: str, facets: str | None, has_facets: bool
) -> None:
    said = {} if facets is None else {"facets": facets}

    assert read(filters=filters, **said).to_query().has_facets is has_facets


def test_a_level_to_filter_by_is_one_of_those_that_are_asked() -> None:
    assert read(level="L0,L1", filters='{"level": ["L1", "L2"]}').levels == [Level.L1]
    assert read(level="L0,L1", filters='{"level": ["L1", "L2"]}').filters_applied == {
        "level": ["L1"]
    }
    assert wrong(filters='{"level": "L0"}') == {
        "filters.level": "leaves no level: level is L1,L2",
    }


@pytest.mark.parametrize(
    ("said", "instant"),
    [
        ("2026-03-03", "2026-03-03T00:00:00Z"),
        ("2026-03-03T00:00:00", "2026-03-03T00:00:00Z"),
        ("2026-03-03T00:00:00Z", "2026-03-03T00:00:00Z"),
        ("2026-03-03t00:00:00z", "2026-03-03T00:00:00Z"),
        ("2026-03-03 00:00:00+02:00", "2026-03-02T22:00:00Z"),
        ("2026-03-03T10:30:00.123456789-05:00", "2026-03-03T15:30:00.123456Z"),
        ("0001-01-01", "0001-01-01T00:00:00Z"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/Chicago"])
def test_a_date_is_an_instant_whatever_the_zone_of_the_server(
    monkeypatch: pytest.MonkeyPatch, zone: str, said: str, instant: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()

    assert filtered(occurred_since=said).filters_applied == {"occurred_since": instant}

    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "said",
    [
        *(1772528400, "1772528400", 0.5, True, None, [], {}, "", "yesterday", " 2026-03-03"),
        *("2026", "2026-03", "20260303", "2026-02-30", "2026-W10-1", "2026-03-03Z", "٢٠٢٦-03-03"),
        *("2026-03-03T10", "2026-03-03T10:00", "2026-03-03T25:00:00Z"),
        *("2026-03-03T00:00:00 02:00", "0000-01-01"),
        *("0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00"),
    ],
)
def test_what_is_no_date_is_refused(said: object) -> None:
    assert list(refused(updated_before=said)) == ["filters.updated_before"]


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ("", {"filters": "is not valid JSON"}),
        ("{", {"filters": "is not valid JSON"}),
        ("[" * 10_000, {"filters": "is not valid JSON"}),
        ("[]", {"filters": "is not a JSON object"}),
        ("null", {"filters": "is not a JSON object"}),
        ('{"tags": "a", "tags": "b"}', {"filters": "names something twice"}),
        (
            '{"source_patern": "x"}',
            {"filters.source_patern": "is unknown; did you mean source_pattern?"},
        ),
        ('{"tag": "x"}', {"filters.tag": "is unknown; did you mean tags?"}),
        ('{"tags": 5, "kind": {}}', dict.fromkeys(["filters.tags", "filters.kind"], NOT_SEVERAL)),
        ('{"tags": ["a", 5]}', {"filters.tags[1]": "is not text"}),
        ('{"tags": []}', {"filters.tags": "is empty"}),
        ('{"tags": null}', {"filters.tags": "is null: leave it out instead"}),
        ('{"level": "l1"}', {"filters.level[0]": "is not 'L0', 'L1' or 'L2'"}),
        ('{"source_pattern": ["a"]}', {"filters.source_pattern": "is not text"}),
        ('{"source_pattern": ""}', {"filters.source_pattern": "is empty"}),
        ('{"source_pattern": "a\\u0000"}', {"filters.source_pattern": "holds U+0000"}),
    ],
)
def test_filters_that_cannot_be_used_are_refused_by_name(
    filters: str, told: dict[str, str]
) -> None:
    assert wrong(filters=filters) == told


def test_half_of_a_character_is_no_text_to_filter_by() -> None:
    assert list(refused(tags="half \ud83d")) == ["filters.tags[0]"]


@pytest.mark.parametrize("name", ["level", "tags", "kind", "standing_id"])
def test_lists_to_filter_by_have_a_bound(name: str) -> None:
    value = {"level": "L1", "kind": "note"}.get(name, "x")

    assert filtered(**{name: [value] * 50}).filters_applied[name] == [value]
    assert refused(**{name: [value] * 51}) == {f"filters.{name}": "has more than 50 entries"}


def test_words_to_filter_by_have_a_bound() -> None:
    for name in ("source_pattern", "tags", "standing_id"):
        assert filtered(**{name: "x" * 1000}).filters_applied
        assert len(refused(**{name: "x" * 1001})) == 1


@pytest.mark.parametrize("value", ["", "2", "yes", "null"])
def test_whether_values_are_counted_is_true_or_false(value: str) -> None:
    assert wrong(facets=value) == {"facets": "is neither true nor false"}


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ("quary", "query"),
        ("projekt", "project"),
        ("limits", "limit"),
        ("timeout", "timeout_seconds"),
        ("levels", "level"),
        ("Limit", "limit"),
    ],
)
def test_an_unknown_parameter_names_the_nearest_known_one(given_: str, meant: str) -> None:
    assert wrong(**{given_: "1"}) == {given_: f"is unknown; did you mean {meant}?"}


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(InvalidParameters) as caught:
        read_parameters(QueryParameters, MultiDict([("query", "a"), ("query", "a")]))

    assert caught.value.errors == [{"parameter": "query", "reason": "was given twice"}]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    assert set(wrong(query="", limit="many", nope="x")) == {"query", "limit", "nope"}


def ingest(**members: Any) -> IngestParameters:
    return validate(IngestParameters, {"format": "nodes", "nodes": [{}]} | members)


@pytest.mark.parametrize(
    ("members", "parameter"),
    [
        ({"nodes": []}, "nodes"),
        ({"nodes": {}}, "nodes"),
        ({"nodes": None}, "nodes"),
        ({"nodes": "[]"}, "nodes"),
        ({"format": "markdown"}, "files"),
        ({"format": "rtf"}, "format"),
        ({"format": "text", "files": [{"name": "a", "text": ""}]}, "nodes"),
        ({"format": ["nodes"]}, "format"),
        ({"project": "Not A Name"}, "project"),
        ({"project": 1}, "project"),
        ({"project": "p\n"}, "project"),
        ({"nodez": []}, "nodez"),
    ],
)
def test_a_submission_s_own_members_are_checked(members: dict[str, Any], parameter: str) -> None:
    with pytest.raises(InvalidParameters) as caught:
        ingest(**members)

    assert [error["parameter"] for error in caught.value.errors] == [parameter]


GOOD = {"name": "a.md", "text": "a"}


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ({"text": "a"}, {"files[1].name": "is required"}),
        ({"name": "", "text": "a"}, {"files[1].name": "is empty"}),
        ({"name": "a\0", "text": "a"}, {"files[1].name": "holds U+0000"}),
        ({"name": 7, "text": 7}, {"files[1].name": "is not text", "files[1].text": "is not text"}),
        (GOOD | {"nmae": "a"}, {"files[1].nmae": "is unknown; did you mean name?"}),
        ({"name": "a.md"}, {"files[1]": "needs either text or base64"}),
        (GOOD | {"base64": ""}, {"files[1]": "needs either text or base64"}),
        ({"name": "a.md", "base64": "?"}, {"files[1].base64": "is not base64"}),
        (None, {"files[1]": "is not a JSON object"}),
    ],
)
def test_a_file_that_cannot_be_taken_is_named_by_its_place(
    file: object, told: dict[str, str]
) -> None:
    def read() -> list[bytes]:
        files = validate(IngestParameters, {"format": "text", "files": [GOOD, file]}).files
        return [one.content(place) for place, one in enumerate(files or ())]

    with pytest.raises(InvalidParameters) as caught:
        read()

    assert {error["parameter"]: error["reason"] for error in caught.value.errors} == told


def test_of_very_many_faults_some_are_named_and_the_others_counted() -> None:
    with pytest.raises(InvalidParameters) as caught:
        validate(IngestParameters, {"format": "text", "files": [7] * 1000})

    *first, last = caught.value.errors
    assert [error["parameter"] for error in first] == [f"files[{n}]" for n in range(50)]
    assert last == {"parameter": "body", "reason": "has 950 more faults"}


def test_of_nodes_that_are_nested_too_deeply_the_first_is_named() -> None:
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]

    with pytest.raises(InvalidParameters) as caught:
        check_submission([{}, {}, deep, deep], 10)

    assert [error["parameter"] for error in caught.value.errors] == ["nodes[2]"]


@pytest.mark.parametrize(
    "node",
    [
        None,
        1,
        [],
        {"text": 5},
        {"text": "a\0"},
        {"text": "half \ud83d"},
        {"embedding": [float("inf")]},
    ],
)
def test_whatever_a_node_holds_is_left_to_the_job(node: object) -> None:
    assert ingest(nodes=[node]).nodes == [node]


@pytest.mark.parametrize("body", [[], None, "text", 1])
def test_a_body_is_an_object(body: object) -> None:
    with pytest.raises(InvalidParameters) as caught:
        validate(IngestParameters, body)

    assert caught.value.errors == [{"parameter": "body", "reason": "is not a JSON object"}]
