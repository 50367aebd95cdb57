"""Percentiles, medians over rounds, and what calls itself busy."""

import pytest

from app.bench.figures import over_rounds, percentile, percentiles
from app.bench.machine import is_busy


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 10.0), (25, 20.0), (50, 30.0), (95, 48.0), (100, 50.0)]
)
def test_a_percentile_lies_on_the_line_between_its_neighbours(
    percent: float, expected: float
) -> None:
    assert percentile([50.0, 10.0, 30.0, 20.0, 40.0], percent) == pytest.approx(expected)


def test_one_value_is_every_percentile() -> None:
    assert percentiles("single", [7.0]) == {
        "single_p10_ms": 7.0,
        "single_p50_ms": 7.0,
        "single_p95_ms": 7.0,
    }


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 101), ([1.0], -1)])
def test_there_is_no_percentile_of_nothing_and_none_beyond_100(
    values: list[float], percent: float
) -> None:
    with pytest.raises(ValueError, match="no percentile"):
        percentile(values, percent)


def test_a_figure_is_the_median_of_the_rounds_that_have_it() -> None:
    rounds = [{"a": 1.0, "b": 5.0}, {"a": 9.0}, {"a": 2.00049}]

    assert over_rounds(rounds) == {"a": 2.0, "b": 5.0}


@pytest.mark.parametrize(
    ("load", "others", "steal", "expected"),
    [
        (0.4, 0.02, 0.0, False),
        (1.2, 0.0, 0.0, True),
        (0.1, 0.3, 0.0, True),
        (0.1, 0.0, 0.05, True),
    ],
)
def test_a_run_is_busy_when_something_else_took_much_of_the_machine(
    load: float, others: float, steal: float, expected: bool
) -> None:
    assert is_busy(load, others, steal) is expected
