"""Making the Celery application, and the base of every task."""

from collections.abc import Sequence
from typing import Any

import structlog
from celery import Celery, Task
from kombu.transport.virtual import base

from config.celery import celery_options
from workers.store.redis import celery_url

log = structlog.get_logger(__name__)

TASK_MODULES = (
    "workers.tasks.query",
    "workers.tasks.ingest",
    "workers.tasks.vectors",
    "workers.tasks.words",
    "workers.tasks.upkeep",
)


class PoimenTask(Task):  # type: ignore[misc]  # celery has no types
    """Binds the task's name and id to every line it logs."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with structlog.contextvars.bound_contextvars(task=self.name, task_id=self.request.id):
            return super().__call__(*args, **kwargs)


def make_celery(redis_url: str) -> Celery:
    """The application for a Redis address as redis-py spells it.

    Task modules are imported by workers only: the front door sends tasks by name.
    """
    base.emergency_dump_state = _keep_no_messages  # type: ignore[attr-defined,assignment]
    celery = Celery("poimen", task_cls=PoimenTask, include=TASK_MODULES, set_as_current=True)
    celery.conf.update(celery_options(celery_url(redis_url)))
    return celery


def _keep_no_messages(messages: Sequence[Any], **_: Any) -> None:
    """What kombu does with tasks that it cannot give back to a broker that is gone: nothing.

    By itself it writes them, questions and all, into files of the temporary folder that nobody ever
    reads. Here what was lost is sent again from PostgreSQL, or ended by its deadline.
    """
    log.warning("tasks_not_given_back", tasks=len(messages))
