"""What verifying a memory reads: every node once, a few at a time."""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from workers.model import ProjectName, Sha256
from workers.store.database import Rows
from workers.store.queries import load_queries

QUERIES = load_queries("verify.sql")

MOST_NODES = 500
MOST_BYTES = 8_000_000  # of their texts; one larger text comes alone


class StoredProvenance:
    """Reads of all projects. The caller owns the connection."""

    def __init__(self, connection: Connection[dict[str, Any]]) -> None:
        self._connection = connection

    def projects(self, only: ProjectName | None) -> dict[ProjectName, int]:
        """Each with its nodes."""
        return {row["project"]: row["nodes"] for row in self._run("count_stored", project=only)}

    def nodes_after(self, project: ProjectName, after: Sha256) -> Rows:
        """The next nodes by sha256, with how many edges begin at each."""
        bounds = {"limit": MOST_NODES, "bytes": MOST_BYTES}
        return self._run("take_nodes", project=project, after=after, **bounds)

    def broken_edges(self, project: ProjectName, nodes: Sequence[Sha256]) -> Rows:
        """Those from these nodes that lead to nothing, or to a node that is no evidence of them."""
        return self._run("broken_edges", project=project, nodes=list(nodes))

    def orphaned_edges(self, project: ProjectName) -> Rows:
        """Those that begin at nothing."""
        return self._run("orphaned_edges", project=project)

    def chunks_of(self, project: ProjectName, document: Sha256, source: str) -> Rows:
        """Those that were cut from a document, with the bytes that they cite."""
        return self._run("take_chunks", project=project, document=document, source=source)

    def _run(self, name: str, **arguments: Any) -> Rows:
        return self._connection.execute(QUERIES[name].encode(), arguments).fetchall()
