"""The use cases of what is stored: look at it, forget it, carry it elsewhere."""

import re
from collections.abc import Iterator
from typing import Any, Protocol

from app.reach import check_writer
from workers.deadline import Deadline
from workers.errors import NodeNotFound, ProjectNotFound
from workers.model import Principal, ProjectName, Sha256
from workers.ports import Projects

_READ_S = 5.0
_SHA256 = re.compile("[0-9a-f]{64}")
SOURCES_PAGE = 100
NODES_SHOWN = 20  # of those whose sha256 begins alike


class Records(Protocol):
    """Single nodes and whole projects, where they are stored."""

    def load_node(self, project: ProjectName, sha256: Sha256) -> dict[str, Any]: ...

    def list_nodes(self, project: ProjectName, prefix: str, limit: int) -> list[dict[str, Any]]: ...

    def list_sources(
        self, project: ProjectName, after: str, limit: int
    ) -> list[dict[str, Any]]: ...

    def forget_node(self, project: ProjectName, sha256: Sha256, principal: Principal) -> int: ...

    def forget_source(self, project: ProjectName, source: str, principal: Principal) -> int: ...

    def forget_project(self, project: ProjectName, principal: Principal) -> int: ...

    def export(self, project: ProjectName) -> Iterator[str]: ...


class RecordService:
    """What a principal may do with single nodes, sources and projects.

    Every method raises ProjectNotFound for a project that is unknown, or not this principal's.
    """

    def __init__(self, projects: Projects, records: Records) -> None:
        self._projects = projects
        self._records = records

    def load_node(
        self, project: ProjectName, sha256: Sha256, principal: Principal
    ) -> dict[str, Any]:
        """
        Raises:
            NodeNotFound: there is none.
        """
        self._check(project, principal)
        _check_sha256(sha256)
        return self._records.load_node(project, sha256)

    def list_nodes(
        self, project: ProjectName, prefix: str, principal: Principal
    ) -> tuple[list[dict[str, Any]], bool]:
        """The nodes whose sha256 begins so, and whether there are more than are told."""
        self._check(project, principal)
        rows = self._records.list_nodes(project, prefix, NODES_SHOWN + 1)
        return rows[:NODES_SHOWN], len(rows) > NODES_SHOWN

    def list_sources(
        self, project: ProjectName, after: str, principal: Principal
    ) -> tuple[list[dict[str, Any]], str | None]:
        """One page of a project's sources by name, and where the next one begins."""
        self._check(project, principal)
        rows = self._records.list_sources(project, after, SOURCES_PAGE + 1)
        page = rows[:SOURCES_PAGE]
        return page, page[-1]["source"] if len(rows) > len(page) else None

    def forget_node(self, project: ProjectName, sha256: Sha256, principal: Principal) -> int:
        """Remove a node, and the notes that rested on it alone; returns how many nodes went."""
        self._check_writer(project, principal)
        _check_sha256(sha256)
        return self._records.forget_node(project, sha256, principal)

    def forget_source(self, project: ProjectName, source: str, principal: Principal) -> int:
        """Remove what a source brought, and the notes that rested on it alone."""
        self._check_writer(project, principal)
        return self._records.forget_source(project, source, principal)

    def forget_project(self, project: ProjectName, principal: Principal) -> int:
        """Remove a project with everything in it."""
        self._check_writer(project, principal)
        return self._records.forget_project(project, principal)

    def export(self, project: ProjectName, principal: Principal) -> Iterator[str]:
        """A project as JSON lines."""
        self._check(project, principal)
        return self._records.export(project)

    def _check_writer(self, project: ProjectName, principal: Principal) -> None:
        self._check(project, principal)
        check_writer(principal, project)

    def _check(self, project: ProjectName, principal: Principal) -> None:
        deadline = Deadline.after(_READ_S)
        if not self._projects.find_projects(principal, (), deadline, [project]):
            raise ProjectNotFound(project)


def _check_sha256(text: str) -> None:
    """What is no sha256 is the name of no node, and may hold what PostgreSQL cannot read."""
    if not _SHA256.fullmatch(text):
        raise NodeNotFound("A node's name is its sha256: 64 hex digits in lower case.")
