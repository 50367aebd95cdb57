"""The lines of an export, read back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.ingest.exported import ExportedNode, node_of, read_lines
from workers.ingest.nodes import node_sha256
from workers.ingest.parsed import Skipped
from workers.model import EmbeddingModel

MODEL = EmbeddingModel(name="m", dimension=2, sha256=None)
NODE = {"type": "node", "id": "a" * 64, "level": "L0", "kind": "turn", "source": "s", "text": "t"}


def read(**members: Any) -> ExportedNode:
    (line,) = read_lines(json.dumps(NODE | members).encode())
    assert isinstance(line.record, ExportedNode), line.record
    return line.record


def test_a_node_has_the_name_that_its_project_gives_it() -> None:
    node = node_of(read(occurrence=2), "q", {}, MODEL)

    assert node.sha256 == node_sha256("q", "L0", "turn", "s", "t", occurrence=2)


def test_parents_are_found_by_the_names_that_they_had() -> None:
    child = read(level="L1", kind="note", parents=["x", "lost"])

    assert node_of(child, "q", {"x": "1" * 64}, MODEL).parents == ("1" * 64,)
    with pytest.raises(ValueError, match="rests on"):
        node_of(child, "q", {}, MODEL)


@pytest.mark.parametrize(
    ("embedding", "model", "is_kept"),
    [
        ([0.6, 0.8], "m", True),
        ([0.6, 0.8], "other", False),
        ([0.6, 0.8, 0.0], "m", False),
        ([0.0, 0.0], "m", False),
        ([1e300, 1e300], "m", False),
        (None, "m", False),
    ],
)
def test_only_vectors_of_this_model_that_point_somewhere_are_kept(
    embedding: list[float] | None, model: str, is_kept: bool
) -> None:
    node = node_of(read(embedding=embedding, embedding_model=model), "q", {}, MODEL)

    assert (node.embedding is not None) == is_kept


@given(st.lists(st.binary(max_size=60)))
def test_lines_of_any_bytes_are_told_with_their_number(lines: list[bytes]) -> None:
    data = b"\n".join(lines)

    found = list(read_lines(data))

    assert [line.number for line in found] == [
        number for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()
    ]
    assert all(isinstance(line.record, Skipped) for line in found)


def test_a_reason_quotes_nothing_of_the_line() -> None:
    (line,) = read_lines(json.dumps(NODE | {"level": "hunter2", "secret": "hunter2"}).encode())

    assert isinstance(line.record, Skipped)
    assert "hunter2" not in line.record.reason
