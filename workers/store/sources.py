"""Sources: which nodes a session or a document consists of, and what becomes of those it loses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg import Connection

from workers.ingest.drafts import KnownTurn, SourceDraft
from workers.ingest.exported import ExportedNode, ExportedProject, ExportedSource
from workers.model import Node, ProjectName, Sha256
from workers.store.queries import load_queries

QUERIES = load_queries("sources.sql")

Rows = Connection[dict[str, Any]]


class PostgresSources:
    """The source and turn tables. The caller owns the connection and its transaction."""

    def __init__(self, connection: Rows, project: ProjectName) -> None:
        self._connection = connection
        self._project = project

    def save_source(self, draft: SourceDraft, name: str) -> None:
        """Create a source, or add the file it was read from now."""
        session = draft.session
        self._run(
            "save_source",
            source=draft.source,
            format=draft.format,
            title=draft.title,
            file=name,
            session=session.id if session else None,
            parent=session.parent_id if session else None,
            cwd=session.cwd if session else None,
            started_at=session.started_at if session else None,
        )

    def save_exported(self, source: ExportedSource) -> None:
        """Create a source as an export tells it, or add what is new about it."""
        told = source.model_dump(exclude={"type", "names"})
        self._run("save_exported_source", names=source.names or [source.source], **told)

    def save_exported_project(self, own: ExportedProject) -> None:
        """Create the project as an export tells it, or add what it lacks of it.

        A root that another project has stays there alone: a folder tells one project.
        """
        self._run("save_exported_project", **own.model_dump(exclude={"type"}))

    def save_exported_instants(self, nodes: Sequence[tuple[Sha256, ExportedNode]]) -> None:
        """Since when nodes that were just stored are there, and are stale, as an export tells."""
        names = ("created_at", "updated_at", "stale_since")
        told = {name: [getattr(exported, name) for _, exported in nodes] for name in names}
        self._run("save_exported_instants", shas=[sha256 for sha256, _ in nodes], **told)

    def known_sources(self, sources: Iterable[str]) -> set[str]:
        """Those of these sources that exist."""
        return {row["source"] for row in self._run("known_sources", sources=list(sources))}

    def find_turns(self, keys: Sequence[str]) -> dict[str, tuple[str, Sha256]]:
        """Of the turns that are known by these keys: their source and node."""
        rows = self._run("find_turns", keys=list(keys))
        return {row["key"]: (row["source"], row["sha256"]) for row in rows}

    def turns_of(self, source: str, keys: Sequence[str]) -> dict[str, KnownTurn]:
        """All turns of a source by their keys, and what other sources brought under these."""
        rows = self._run("turns_of", source=source, keys=list(keys))
        return {row.pop("key"): KnownTurn(**row) for row in rows}

    def texts_of(self, nodes: Sequence[Sha256]) -> dict[Sha256, str]:
        rows = self._run("texts_of", shas=list(nodes))
        return {row["sha256"]: row["text"] for row in rows}

    def save_turns(self, source: str, turns: Mapping[str, Sha256]) -> int:
        """Remember which node each turn is; returns how many nodes others took the place of.

        What was made from a node that is replaced rests on the one that takes its place.
        """
        replaced = self._run(
            "save_turns", source=source, keys=list(turns), shas=list(turns.values())
        )
        for row in replaced:
            self._run("replace_parent", old=row["old"], new=row["new"])
        return len(self.drop(row["old"] for row in replaced))

    def abandon(self, keys: Sequence[str]) -> int:
        """Mark turns of a session that its file no longer holds; returns how many."""
        return len(self._run("mark_abandoned", keys=list(keys))) if keys else 0

    def drop_parts(self, keys: Sequence[str], first: Sha256) -> int:
        """Remove parts that a turn no longer has; what rested on them rests on its first one."""
        gone = [row["sha256"] for row in self._run("nodes_of_turns", keys=list(keys))]
        for old in gone:
            self._run("replace_parent", old=old, new=first)
        return len(self.drop(gone))

    def drop_others(self, source: str, root: Node, chunks: Sequence[Node]) -> int:
        """Remove what a document's earlier version brought and this one does not.

        What was made from an earlier text rests on the one in its place: the present whole, its
        `root`, or the nearest chunk, of the same section where there still is one.
        """
        present = [root.sha256, *(chunk.sha256 for chunk in chunks)]
        gone = self._run("nodes_of", source=source, shas=present)
        for row in gone:
            new = root if row["level"] == root.level else _nearest(row, chunks)
            if new is not None:
                self._run("replace_parent", old=row["sha256"], new=new.sha256)
        return len(self.drop(row["sha256"] for row in gone))

    def drop(self, nodes: Iterable[Sha256]) -> list[Sha256]:
        """Remove nodes, and the notes that rested on them alone; returns what went.

        Notes that rest on other nodes too are kept, and marked as stale.
        """
        dropped: list[Sha256] = []
        doomed = list(nodes)
        while doomed:
            children = [row["child"] for row in self._run("children_of", shas=doomed)]
            dropped += [row["sha256"] for row in self._run("drop_nodes", shas=doomed)]
            self._run("close_gaps", shas=children)
            # Levels only descend, so this ends after two rounds.
            doomed = [row["sha256"] for row in self._run("mark_stale", shas=children)]
        return dropped

    def project_above(self, folder: str) -> ProjectName | None:
        """The project with the nearest root folder that is this one, or above it."""
        rows = self._run("roots_above", folder=folder)
        return rows[0]["project"] if rows else None

    def projects_of_others(self, projects: Sequence[ProjectName], folder: str) -> set[ProjectName]:
        """Those of these projects that belong to another folder than this one."""
        rows = self._run("projects_of_others", projects=list(projects), folder=folder)
        return {row["project"] for row in rows}

    def _run(self, query: str, **arguments: Any) -> list[dict[str, Any]]:
        given = {"project": self._project, **arguments}
        cursor = self._connection.execute(QUERIES[query].encode(), given)
        return cursor.fetchall() if cursor.description else []


def _nearest(gone: Mapping[str, Any], chunks: Sequence[Node]) -> Node | None:
    """The chunk that stands where one stood that is gone."""

    def distance(chunk: Node) -> tuple[bool, int]:
        is_elsewhere = chunk.metadata.get("anchor") != gone["anchor"]
        return is_elsewhere, abs((chunk.position or 0) - (gone["position"] or 0))

    return min(chunks, key=distance, default=None)
