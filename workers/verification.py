"""Whether what is stored can still be traced: names, edges and citations, all of them.

A node's name is a hash of what it says, so a text that was changed beside the service is found. An
edge leads from a note to what it was made from, which is of a lower level; so a node that has no
edge, or one that leads nowhere, has no path to its evidence. A chunk cites bytes of its document.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from workers.ingest.nodes import find_occurrence
from workers.model import Level, ProjectName, Sha256
from workers.store.database import Database
from workers.store.verify import StoredProvenance

START: Sha256 = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a node."""

    project: ProjectName
    sha256: Sha256
    level: Level | None  # None, as the source: there is no such node
    source: str | None
    problem: str  # a stable code
    message: str


@dataclass
class Verified:
    """What was looked at, and what was found; counts are exact, findings only the first."""

    projects: int = 0
    nodes: int = 0
    edges: int = 0
    broken: int = 0  # edges, and nodes above L0 that have none
    stale: int = 0  # nodes whose evidence has changed since
    hashes_checked: int = 0
    hashes_wrong: int = 0
    citations_checked: int = 0
    citations_wrong: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not (self.broken or self.hashes_wrong or self.citations_wrong)


def verify(
    database: Database,
    only: ProjectName | None,
    most_findings: int,
    told: Callable[[int, int], None],
) -> Verified:
    """Look at every node, edge and citation of a project, or of all. Nothing is changed.

    A few nodes at a time, so that questions and ingest go on; what is stored or forgotten meanwhile
    may or may not be looked at.

    told: how many of how many nodes are done.

    Raises:
        StoreUnavailable: PostgreSQL does not answer.
    """
    found = Verified()

    def note(count: str, finding: Finding) -> None:
        setattr(found, count, getattr(found, count) + 1)
        if len(found.findings) < most_findings:
            found.findings.append(finding)

    with database.transaction() as connection:
        projects = StoredProvenance(connection).projects(only)
    total = sum(projects.values())
    for project in projects:
        found.projects += 1
        after = START
        while True:
            told(found.nodes, max(total, found.nodes))
            with database.transaction() as connection:
                stored = StoredProvenance(connection)
                rows = stored.nodes_after(project, after)
                if not rows:
                    break
                for count, finding in _check(project, rows, stored, found):
                    note(count, finding)
            after = rows[-1]["sha256"]
        with database.transaction() as connection:
            for row in StoredProvenance(connection).orphaned_edges(project):
                found.edges += 1
                message = f"an edge to {row['parent'][:12]} begins at a node that is not there"
                note("broken", Finding(project, row["child"], None, None, "no_child", message))
    told(found.nodes, found.nodes)
    return found


def _check(
    project: ProjectName, rows: list[dict[str, Any]], stored: StoredProvenance, found: Verified
) -> Iterator[tuple[str, Finding]]:
    """What is wrong with these nodes, and what it counts as."""

    def finding(row: dict[str, Any], problem: str, message: str) -> Finding:
        level = Level(row["level"])
        return Finding(project, row["sha256"], level, row["source"], problem, message)

    by_name = {row["sha256"]: row for row in rows}
    for row in rows:
        found.nodes += 1
        found.edges += row["edges"]
        found.stale += row["is_stale"]
        found.hashes_checked += 1
        same = (project, row["level"], row["kind"], row["source"], row["text"])
        if find_occurrence(*same, row["sha256"]) is None:
            message = "its text, source, kind or level is not what it was stored with"
            yield "hashes_wrong", finding(row, "hash_wrong", message)
        if row["level"] != Level.L0 and not row["edges"]:
            yield "broken", finding(row, "no_evidence", "it names nothing that it was made from")
        if row["kind"] == "document":
            data = row["text"].encode()
            for chunk in stored.chunks_of(project, row["sha256"], row["source"]):
                found.citations_checked += 1
                if not _is_cited(chunk, data):
                    message = f"these bytes of document {row['sha256'][:12]} say something else"
                    yield "citations_wrong", finding(chunk, "citation_wrong", message)
    for edge in stored.broken_edges(project, list(by_name)):
        parent, level = edge["parent"][:12], edge["parent_level"]
        where = "is not there" if level is None else f"is of level {level}, which is not below"
        yield "broken", finding(by_name[edge["child"]], "edge_broken", f"parent {parent} {where}")


def _is_cited(chunk: dict[str, Any], document: bytes) -> bool:
    span = chunk["span"]
    cited = document[span["start"] : span["end"] + 1].decode(errors="replace")
    text: str = chunk["text"]
    return cited.strip() == text
