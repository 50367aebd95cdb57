"""Making the Celery application, and the base of every task."""

from typing import Any

import structlog
from celery import Celery, Task

from config.celery import celery_options
from workers.store.redis import celery_url

TASK_MODULES = ("workers.tasks.query", "workers.tasks.ingest", "workers.tasks.upkeep")


class PoimenTask(Task):  # type: ignore[misc]  # celery has no types
    """Binds the task's name and id to every line it logs."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with structlog.contextvars.bound_contextvars(task=self.name, task_id=self.request.id):
            return super().__call__(*args, **kwargs)


def make_celery(redis_url: str) -> Celery:
    """The application for a Redis address as redis-py spells it.

    Task modules are imported by workers only: the front door sends tasks by name.
    """
    celery = Celery("poimen", task_cls=PoimenTask, include=TASK_MODULES, set_as_current=True)
    celery.conf.update(celery_options(celery_url(redis_url)))
    return celery
