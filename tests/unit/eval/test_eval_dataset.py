"""Reading a judged dataset, and telling where one is wrong."""

from pathlib import Path
from typing import Any

import pytest

from app.eval.dataset import load_dataset, load_judged
from app.eval.errors import CannotAsk, DatasetError
from tests.unit.eval.datasets import CORPUS, QRELS, QUERIES, changed, write_dataset
from workers.ingest.nodes import node_sha256
from workers.model import Level

FIXTURE = Path(__file__).parents[2] / "fixtures" / "judged"


def test_nodes_are_known_by_the_identity_the_service_gives_them(tmp_path: Path) -> None:
    dataset = load_dataset(write_dataset(tmp_path))

    sha256 = node_sha256("talk", "L0", "turn", "s:1", "The disk is full.", 0)
    assert dataset.nodes["t1"].sha256 == sha256
    assert dataset.ids["talk", sha256] == "t1"
    assert dataset.projects == ["docs", "talk"]


def test_each_repetition_of_a_text_is_a_node_of_its_own(tmp_path: Path) -> None:
    repeated = {**CORPUS[0], "id": "t9"}
    elsewhere = {**CORPUS[0], "id": "e1", "project": "docs"}
    dataset = load_dataset(write_dataset(tmp_path, corpus=[*CORPUS, elsewhere, repeated]))

    same = ("L0", "turn", "s:1", "The disk is full.")
    assert dataset.ids["talk", node_sha256("talk", *same, 0)] == "t1"
    assert dataset.ids["talk", node_sha256("talk", *same, 1)] == "t9"
    assert dataset.ids["docs", node_sha256("docs", *same, 0)] == "e1"


def test_parents_keep_the_order_the_corpus_gives_them(tmp_path: Path) -> None:
    nodes = load_dataset(write_dataset(tmp_path)).nodes

    assert nodes["n1"].parents == (nodes["t2"].sha256, nodes["t1"].sha256)


def test_a_span_may_be_a_pair_of_characters(tmp_path: Path) -> None:
    dataset = load_dataset(write_dataset(tmp_path, corpus=changed(CORPUS, 4, span=[5, 26])))

    assert dataset.nodes["c1"].span == {"unit": "characters", "start": 5, "end": 26}


def test_a_question_asks_for_the_level_of_its_projects_passages(tmp_path: Path) -> None:
    talk, docs = load_dataset(write_dataset(tmp_path)).questions

    assert talk.levels == (Level.L0,)  # turns
    assert docs.levels == (Level.L1,)  # sections of documents


def test_where_there_are_no_passages_the_levels_are_those_the_service_asks_for(
    tmp_path: Path,
) -> None:
    corpus = [changed(CORPUS, place, kind="document")[place] for place in (0, 1)] + [CORPUS[2]]
    dataset = load_dataset(write_dataset(tmp_path, corpus, QUERIES[:1]))

    assert dataset.questions[0].levels == (Level.L1, Level.L2)


def test_a_question_and_before_it_the_caller_may_name_other_levels(tmp_path: Path) -> None:
    queries = changed(QUERIES, 0, levels=["L1"])
    dataset = load_dataset(write_dataset(tmp_path, queries=queries))

    assert dataset.questions[0].levels == (Level.L1,)
    assert {one.levels for one in dataset.choose(levels=[Level.L2])} == {(Level.L2,)}


def test_questions_are_chosen_by_type(tmp_path: Path) -> None:
    dataset = load_dataset(write_dataset(tmp_path))

    assert [one.id for one in dataset.choose(["when"])] == ["q2"]
    assert [one.id for one in dataset.choose()] == ["q1", "q2"]
    with pytest.raises(CannotAsk, match=r"'how'; there are when, why"):
        dataset.choose(["how"])


def test_judgements_are_read_on_their_own(tmp_path: Path) -> None:
    dataset = load_dataset(write_dataset(tmp_path, qrels=["nonsense"]))
    write_dataset(tmp_path)

    assert load_judged(dataset) == {"q1": {"t1": 1}, "q2": {"c1": 2}}


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels.tsv"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    (write_dataset(tmp_path) / name).unlink()

    with pytest.raises(DatasetError, match="there is no such file") as told:
        load_dataset(tmp_path)
    assert told.value.path == tmp_path / name


@pytest.mark.parametrize(
    ("line", "corpus", "reason"),
    [
        (3, [*CORPUS[:2], "{"], "is not JSON"),
        (1, ["[1]"], "is not a JSON object"),
        (2, changed(CORPUS, 1, id=None), "id: must be a text without blanks"),
        (2, changed(CORPUS, 1, id="t 2"), "id: must be a text without blanks"),
        (2, changed(CORPUS, 1, id="t1"), "id 't1' was already used in line 1"),
        (5, changed(CORPUS, 4, id="t1"), "id 't1' was already used in line 1"),
        (2, changed(CORPUS, 1, project=None), "project: is missing"),
        (1, changed(CORPUS, 0, txt="x"), "txt: "),
        (1, changed(CORPUS, 0, kind="page"), "kind: "),
        (1, changed(CORPUS, 0, text=" "), "text: is blank"),
        (5, changed(CORPUS, 4, span=[5]), "span: must be two whole numbers"),
        (3, changed(CORPUS, 2, parents=["t3"]), "parent 't3' does not exist"),
        (3, changed(CORPUS, 2, parents=["c1"]), "parent 'c1' does not exist in project 'talk'"),
        (3, changed(CORPUS, 2, parents=[]), "an L1 node needs a parent"),
        (4, [CORPUS[0], "", "", "x"], "is not JSON"),
    ],
)
def test_a_wrong_line_of_the_corpus_is_named(
    line: int, corpus: Any, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError) as told:
        load_dataset(write_dataset(tmp_path, corpus=corpus))

    assert (told.value.path.name, told.value.line) == ("corpus.jsonl", line)
    assert told.value.reason.startswith(reason)
    assert str(told.value).startswith(f"{tmp_path}/corpus.jsonl, line {line}: ")


@pytest.mark.parametrize(
    ("line", "queries", "reason"),
    [
        (2, [QUERIES[0], "no"], "is not JSON"),
        (2, changed(QUERIES, 1, id="q1"), "id 'q1' was already used in line 1"),
        (1, changed(QUERIES, 0, project="else"), "no node of corpus.jsonl is in project 'else'"),
        (1, changed(QUERIES, 0, text="  "), "text: "),
        (1, changed(QUERIES, 0, kind="why"), "kind: "),
        (1, changed(QUERIES, 0, type=None), "type: "),
        (1, changed(QUERIES, 0, levels=["L7"]), "levels[0]: "),
    ],
)
def test_a_wrong_question_is_named(line: int, queries: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as told:
        load_dataset(write_dataset(tmp_path, queries=queries))

    assert (told.value.path.name, told.value.line) == ("queries.jsonl", line)
    assert told.value.reason.startswith(reason)


@pytest.mark.parametrize(
    ("line", "qrels", "reason"),
    [
        (1, QRELS[1:], "the first line must be"),
        (2, [QRELS[0], "q1\tt1"], "three fields"),
        (3, [*QRELS[:2], "q3\tt1\t1"], "question 'q3' is not in queries.jsonl"),
        (3, [*QRELS[:2], "q1\tt3\t1"], "node 't3' is not in corpus.jsonl"),
        (3, [*QRELS[:2], "q1\tt1\t1"], "'q1' and 't1' were judged before"),
        (2, [QRELS[0], "q1\tt1\t0.5"], "the score must be a whole number"),
        (2, [QRELS[0], "q1\tt1\t-1"], "the score must be a whole number"),
    ],
)
def test_a_wrong_judgement_is_named(
    line: int, qrels: list[str], reason: str, tmp_path: Path
) -> None:
    dataset = load_dataset(write_dataset(tmp_path, qrels=qrels))

    with pytest.raises(DatasetError) as told:
        load_judged(dataset)

    assert (told.value.path.name, told.value.line) == ("qrels.tsv", line)
    assert told.value.reason.startswith(reason)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_an_empty_file_and_one_that_is_no_text_are_told(name: str, tmp_path: Path) -> None:
    path = write_dataset(tmp_path) / name

    path.write_bytes(b"\n")
    with pytest.raises(DatasetError, match="holds no"):
        load_dataset(tmp_path)

    path.write_bytes(b"\n\xff\n")
    with pytest.raises(DatasetError, match="line 2: is not UTF-8"):
        load_dataset(tmp_path)


def test_the_datasets_of_the_tests_are_whole() -> None:
    dataset = load_dataset(FIXTURE)
    judged = load_judged(dataset)

    assert {asked.id for asked in dataset.questions} == judged.keys()
    for asked in dataset.questions:
        for node in judged[asked.id]:
            assert dataset.nodes[node].project == asked.project
            assert dataset.nodes[node].level in asked.levels
