"""Which projects a question is for, and which may be written to."""

from app.parameters import Question
from workers.deadline import Deadline
from workers.errors import NotPermitted, ProjectNotFound
from workers.model import Principal, ProjectName
from workers.ports import Projects


def resolve(
    projects: Projects, parameters: Question, principal: Principal, deadline: Deadline
) -> dict[ProjectName, int]:
    """The projects a question is for, each with its nodes of the asked levels.

    Raises:
        ProjectNotFound: a named one is unknown, or not this principal's.
    """
    name = "projects" if parameters.project is None else "project"
    asked = parameters.projects if parameters.project is None else [parameters.project]
    found = projects.find_projects(principal, parameters.to_query().levels, deadline, asked)
    for project in asked or ():
        if project not in found:
            raise ProjectNotFound(project, name)
    return found


def check_writer(principal: Principal, project: ProjectName | None) -> None:
    if not principal.can_write:
        raise NotPermitted("This key may only read; `mem keys create` makes one that may write.")
    if project is not None and not principal.may_reach(project):
        raise NotPermitted(f"This key may not write to project {project!r}.")
