"""`mem bench` from end to end, in sizes that measure nothing."""

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service import MEM, clean_environment

ENDS_S = 120
TIMES = ("p10_ms", "p50_ms", "p95_ms", "cpu_ms")
COMPARED = product(("single", "single_floor", "fed10", "fed10_floor"), TIMES, ("", "_rerank"))
QUERY_FIGURES = {
    *(f"{name}_{time}{reranked}" for name, time, reranked in COMPARED),
    *("fed10_rerank_p95_ms", "fed10_rerank_p95_8_clients_ms", "fed50_rerank_p95_ms"),
    *("qps_8_clients", "floor_qps_8", "fed10_qps_8_clients", "rerank100_ms"),
    *("ingest_nodes_per_s", "ingest_cpu_ms_per_node", "peak_rss_mb"),
}
INGEST_FIGURES = {
    *("vectors_nodes_per_s", "vectors_cpu_ms_per_node", "tokens_cpu_ms_per_node"),
    *("ingest_nodes_per_s", "ingest_cpu_ms_per_node"),
    *("model_texts_per_s", "embed_ratio", "peak_rss_mb", "largest_process_mb"),
    *("turns", "turns_per_s", "bare_model_turns_per_s", "one_by_one_turns_per_s"),
    *("kills", "lost", "doubled"),
}
RECALL_FIGURES = {
    *("recall_at_50", "recall_at_50_p10", "index_ready_s", "hnsw_p50_ms", "hnsw_p95_ms"),
    *("exact_p50_ms", "exact_p95_ms", "service_p50_ms", "service_p95_ms"),
}
JOBS_FIGURES = {
    *("burst_submit_p95_ms", "burst_took_s", "single_p95_ms", "poll_after_final_p50_ms"),
    *("first_partial_ms", "complete_after_submit_ms", "submit_with_workers_stopped_ms"),
}
CONDITIONS = {
    *("bench", "version", "cpu_count", "seed", "rounds", "projects", "nodes", "busy"),
    *("load_start", "load_end", "others_share", "steal_share", "took_s"),
}


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where temporary files go; the account of PostgreSQL must be able to enter it."""
    folder = Path(tempfile.mkdtemp(prefix="poimen-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def start(scratch: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [MEM, "bench", *arguments],
        env=clean_environment() | {"TMPDIR": str(scratch), "POIMEN_DATA_DIR": str(scratch / "d")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_in(scratch: Path) -> set[str]:
    # onnxruntime leaves a session id of 51 bytes wherever it is imported.
    return {path.name for path in scratch.iterdir()} - {".ses"}


@pytest.mark.parametrize(
    ("kind", "figures"),
    [
        ("query", QUERY_FIGURES),
        pytest.param("ingest", INGEST_FIGURES, marks=pytest.mark.long),
        pytest.param("recall", RECALL_FIGURES, marks=pytest.mark.long),
    ],
)
def test_a_run_gives_every_figure_and_leaves_nothing_behind(
    kind: str, figures: set[str], scratch: Path, tmp_path: Path
) -> None:
    samples = tmp_path / "samples.jsonl"
    asked = ("--quick", "--format", "json", "--samples", str(samples), "--seed", "7")

    run = start(scratch, kind, *asked)
    said, told = run.communicate(timeout=ENDS_S)

    assert run.returncode == 0, told
    report: dict[str, Any] = json.loads(said)
    assert not (figures | CONDITIONS) - report.keys()
    assert all(isinstance(report[name], int | float) for name in figures)
    assert all(report[name] > 0 for name in figures if name.endswith(("p50_ms", "per_s")))
    assert (report["bench"], report["seed"]) == (kind, 7)
    assert all(json.loads(line) for line in samples.read_text().splitlines())
    assert f"mem bench {kind}, version" in told
    assert left_in(scratch) == set()


def test_a_small_burst_of_jobs_ends_completely_and_in_the_order_of_one_exact_run(
    scratch: Path,
) -> None:
    run = start(scratch, "jobs", "--quick", "--format", "json")
    said, told = run.communicate(timeout=ENDS_S)

    assert run.returncode == 0, told
    report: dict[str, Any] = json.loads(said)
    assert not (JOBS_FIGURES | CONDITIONS) - report.keys()
    assert report["order_equals_exact"] is True
    assert (report["burst_terminal"], report["burst_lost"]) == (report["jobs"], 0)
    assert (report["burst_refused"], report["unbegun_lost"]) == (0, 0)
    assert left_in(scratch) == set()


@pytest.mark.long
def test_an_interrupted_run_stops_its_servers_and_leaves_nothing_behind(scratch: Path) -> None:
    run = start(scratch, "query", "--projects", "10", "--nodes", "40")
    assert run.stderr is not None
    for line in run.stderr:
        if line.startswith("Copied"):
            break

    run.send_signal(signal.SIGINT)
    said, told = run.communicate(timeout=ENDS_S)

    assert run.returncode == 130, told
    assert said == ""
    assert left_in(scratch) == set()
    still = subprocess.run(["pgrep", "-f", str(scratch)], capture_output=True, text=True)
    assert still.stdout == ""
