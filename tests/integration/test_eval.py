"""`mem eval` from end to end, over a small judged dataset and the real embedded stack."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.eval.dataset import load_dataset, load_judged
from app.eval.metrics import FIGURES, means, measure
from app.eval.runs import read_run
from tests.integration.service import MEM, clean_environment

JUDGED = Path(__file__).parents[1] / "fixtures" / "judged"
ENDS_S = 180
# The user's own, which an evaluation must not touch: nothing listens there.
SETTINGS = {
    "POIMEN_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
    "POIMEN_REDIS_URL": "redis://127.0.0.1:9/0",
    "POIMEN_EMBEDDING_URL": "http://127.0.0.1:9",
    "POIMEN_RERANK_URL": "http://127.0.0.1:9",
}


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """Where temporary files go; the account of PostgreSQL must be able to enter it."""
    folder = Path(tempfile.mkdtemp(prefix="poimen-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def evaluate(scratch: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [MEM, "eval", *map(str, arguments)],
        env=clean_environment()
        | SETTINGS
        | {"TMPDIR": str(scratch), "POIMEN_DATA_DIR": str(scratch / "d")},
        capture_output=True,
        text=True,
        timeout=ENDS_S,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "semantic.trec").write_text("of an earlier run\n")
    (folder / "of the user").write_text("kept")
    return folder


@pytest.fixture(scope="module")
def ended(scratch: Path, runs: Path) -> "subprocess.CompletedProcess[str]":
    sweep = "rerank_depth=0:10:10"
    return evaluate(scratch, JUDGED, "--format", "json", "--run", runs, "--sweep", sweep)


@pytest.fixture(scope="module")
def report(ended: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


def test_every_stage_has_every_figure_with_its_interval(report: dict[str, Any]) -> None:
    assert (report["dataset"], report["queries"], report["unjudged"]) == ("judged", 25, 0)
    assert report["levels"] == ["L0", "L1"]
    for own in report["by_stage"].values():
        for figure in FIGURES:
            low, high = own["intervals"][figure]
            assert 0 <= low <= own[figure] <= high <= 1
        assert set(own["by_type"]) == {"fact", "how-to", "symptom"}


def test_the_service_finds_what_was_judged_right(report: dict[str, Any]) -> None:
    stages = report["by_stage"]

    assert stages["semantic"]["recall@10"] >= 0.9
    assert stages["hybrid_rerank"]["ndcg@10"] >= 0.8
    assert stages["hybrid_rerank"]["mrr"] > stages["semantic"]["mrr"]
    assert stages["federated_hybrid_rerank"]["ndcg@10"] >= 0.7
    assert report["citations_resolved"] == 1.0
    assert report["p95_ms"] > 0
    shown = stages["hybrid_rerank"]
    assert len(report["failures"]) <= round((1 - shown["recall@10"]) * 25) + 1


def test_the_walk_leads_from_notes_to_the_turns_that_were_judged(
    report: dict[str, Any], runs: Path
) -> None:
    dataset = load_dataset(JUDGED)
    run = read_run(runs / "notes_walk.trec")
    oncall = [asked.id for asked in dataset.questions if asked.project == "heron-oncall"]

    figures = means(measure(run, load_judged(dataset), oncall))

    assert figures["recall@5"] == 1.0
    assert {dataset.nodes[node].level for found in run.values() for node in found} == {"L0"}
    assert report["notes"] == [
        "notes_walk ends in L0, and 21 questions have no answer there",
    ]


def test_the_runs_on_disk_give_the_figures_that_were_told(
    report: dict[str, Any], runs: Path
) -> None:
    dataset = load_dataset(JUDGED)
    judged = load_judged(dataset)
    questions = [asked.id for asked in dataset.questions]

    written = {path.stem for path in runs.glob("*.trec")}
    assert written == set(report["by_stage"])
    for stage, own in report["by_stage"].items():
        told = {figure: own[figure] for figure in FIGURES}
        assert means(measure(read_run(runs / f"{stage}.trec"), judged, questions)) == told
    assert (runs / "of the user").read_text() == "kept"


def test_a_question_is_searched_in_its_own_project_unless_it_goes_to_all(
    report: dict[str, Any], runs: Path
) -> None:
    def searched(stage: str) -> dict[str, set[str]]:
        run = read_run(runs / f"{stage}.trec")
        return {name: {node.split("/")[0] for node in found} for name, found in run.items()}

    assert all(found == {name.split("/")[0]} for name, found in searched("hybrid_rerank").items())
    assert all(len(found) > 1 for found in searched("federated_hybrid_rerank").values())


def test_a_sweep_ends_in_the_curve_of_each_value_and_the_present_one(
    report: dict[str, Any],
) -> None:
    swept = report["sweep"]
    own = swept["by_stage"]["hybrid_rerank"]

    assert (swept["parameter"], swept["default"]) == ("rerank_depth", 100)
    assert [row["value"] for row in own["curve"]] == [0, 10, 100]
    assert own["curve"][0]["ndcg@10"] == report["by_stage"]["hybrid"]["ndcg@10"]
    assert own["curve"][2]["ndcg@10"] == report["by_stage"]["hybrid_rerank"]["ndcg@10"]
    assert own["best"] in (0, 10)


def test_the_table_goes_beside_the_document_and_nothing_is_left_behind(
    ended: "subprocess.CompletedProcess[str]", report: dict[str, Any], scratch: Path
) -> None:
    assert "mem eval judged, version" in ended.stderr
    # onnxruntime leaves a session id of 51 bytes wherever it is imported.
    assert {path.name for path in scratch.iterdir()} - {".ses"} == set()


def test_what_was_judged_is_not_read_before_the_runs_are_written(
    scratch: Path, tmp_path: Path
) -> None:
    dataset = Path(shutil.copytree(JUDGED, tmp_path / "dataset"))
    with (dataset / "qrels.tsv").open("a") as stream:
        stream.write("heron-api/q99\theron-api/limits.md#1\t1\n")

    run = evaluate(scratch, dataset, "--types", "fact", "--run", tmp_path / "runs")

    assert run.returncode == 2
    assert "the dataset cannot be used" in run.stderr
    assert "qrels.tsv, line 29: question 'heron-api/q99' is not in queries.jsonl" in run.stderr
    assert len(read_run(tmp_path / "runs" / "hybrid_rerank.trec")) == 7


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--types", "opinion"), "No question has the type 'opinion'; there are fact, how-to"),
        (("--sweep", "depth=0:1:1"), "'depth' cannot be swept"),
        (("--levels", "L4"), "levels are L0, L1 and L2"),
    ],
)
def test_what_does_not_fit_the_dataset_is_told_before_anything_is_started(
    arguments: tuple[str, str], said: str, scratch: Path
) -> None:
    run = evaluate(scratch, JUDGED, *arguments)

    assert run.returncode == 2
    assert said in run.stderr
    assert "ready" not in run.stderr
