"""Encoding nodes outside of any transaction, and saving them in one while others forget."""

from collections.abc import Mapping, Sequence

from workers import wiring
from workers.errors import EmbeddingServiceUnavailable
from workers.model import Encoding, Node, ProjectName, Refused, Sha256
from workers.store.nodes import PostgresNodes
from workers.tasks.report import Beat

ENCODED = 64  # texts encoded between two signs of life

Encodings = Mapping[Sha256, Encoding | Refused]


def encode(
    work: wiring.Ingest, project: ProjectName, nodes: Sequence[Node], beat: Beat
) -> dict[Sha256, Encoding | Refused]:
    """The encodings of those that have no vector and bring none."""
    with work.database.transaction() as connection:
        store = work.nodes(connection)
        new = _without_vector(store, project, nodes, {})
    encodings: dict[Sha256, Encoding | Refused] = {}
    for start in range(0, len(new), ENCODED):
        some = new[start : start + ENCODED]
        encoded = work.encoder.encode_passages([node.text for node in some])
        if len(encoded) != len(some):
            raise EmbeddingServiceUnavailable("The engine returned another number of vectors.")
        encodings |= {node.sha256: one for node, one in zip(some, encoded, strict=True)}
        beat(f"embedding {some[0].source}: {start + len(some)} of {len(new)}")
    return encodings


def lacks(
    store: PostgresNodes, project: ProjectName, nodes: Sequence[Node], encodings: Encodings
) -> bool:
    """Whether some would be stored without a vector: what they had was forgotten meanwhile."""
    return bool(_without_vector(store, project, nodes, encodings))


def save(
    store: PostgresNodes, nodes: Sequence[Node], encodings: Encodings
) -> dict[tuple[ProjectName, Sha256], str]:
    """Save nodes with those of the encodings that are theirs; of each: what became of it."""
    vectors = {
        node.key: encoding
        for node in nodes
        if isinstance(encoding := encodings.get(node.sha256), Encoding)
    }
    return store.save(nodes, vectors) if nodes else {}


def _without_vector(
    store: PostgresNodes, project: ProjectName, nodes: Sequence[Node], encodings: Encodings
) -> list[Node]:
    found = store.find_nodes(project, [node.sha256 for node in nodes])
    return [
        node
        for node in nodes
        if node.embedding is None
        and node.sha256 not in encodings
        and not found.get(node.sha256, (None, False))[1]
    ]
