"""The table of a run."""

from typing import Any

import pytest

from app.bench.report import COMPARISONS, LINES, PERCENTS, table

CONDITIONS: dict[str, Any] = {
    "version": "0.1.0",
    "cpu_count": 2,
    "load_start": 0.1,
    "load_end": 1.4,
    "projects": 50,
    "nodes": 850,
    "seed": 1,
    "rounds": 3,
    "took_s": 240.4,
    "others_share": 0.25,
    "busy": False,
    "plan": "hnsw",
    "explain_uses_index": False,
    "clients": 16,
    "seconds": 900,
    "order_equals_exact": False,
}


def report_of(bench: str, **conditions: Any) -> dict[str, Any]:
    figures: dict[str, float] = {}
    for name in COMPARISONS:
        for side in (name, f"{name}_floor"):
            figures |= dict.fromkeys([f"{side}_p{percent}_ms" for percent in PERCENTS], 1.0)
            figures[f"{side}_cpu_ms"] = 2.0
    figures |= dict.fromkeys(LINES[bench], 12.345)
    return {"bench": bench, **CONDITIONS, **figures, **conditions}


@pytest.mark.parametrize("bench", ["query", "ingest", "recall", "soak", "jobs"])
def test_a_table_names_its_conditions_and_every_figure_on_lines_that_fit(bench: str) -> None:
    first, *rest = table(report_of(bench))

    assert first.startswith(f"mem bench {bench}, version 0.1.0: 2 cores, load 0.1")
    assert sum("12.35" in line or "12.34" in line for line in rest) == len(LINES[bench])
    assert all(len(line) <= 100 for line in rest)
    assert not any("BUSY" in line for line in rest)


def test_a_disturbed_run_says_so_before_its_figures() -> None:
    lines = list(table(report_of("query", busy=True)))

    assert lines[1].startswith("BUSY: other processes used 25%")


def test_an_index_that_postgresql_does_not_take_is_told_aloud() -> None:
    assert any("takes the index: NO" in line for line in table(report_of("recall")))


def test_an_answer_in_another_order_is_told_aloud() -> None:
    assert any(line.endswith("in its order: NO") for line in table(report_of("jobs")))


def test_whole_numbers_have_no_fraction_and_what_should_not_have_been_comes_last() -> None:
    lines = list(table(report_of("soak", jobs_lost=0, examples=["job 1 ended late"])))

    assert any(line.endswith(" 0") for line in lines)
    assert lines[-1] == "! job 1 ended late"
