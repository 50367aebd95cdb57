"""Sending tasks by name: whoever sends knows their contracts, not their code."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from celery import Celery
from kombu.exceptions import BatchPublishError, OperationalError
from redis.exceptions import RedisError

from workers.contracts import (
    INGEST_NODES,
    INGEST_QUEUE,
    JOBS_QUEUE,
    MERGE_QUEUE,
    MERGE_RESULTS,
    QUERY_QUEUE,
    SEARCH_PROJECT,
    SearchMessage,
    dump_query,
)
from workers.errors import QueueUnavailable
from workers.model import ProjectName, Query, Sending


class Dispatcher:
    """Puts work on the queues.

    Every method raises QueueUnavailable, at once, when the broker does not take it.
    """

    def __init__(self, celery: Celery, tasks_per_query: int = 16) -> None:
        self._celery = celery
        self._tasks_per_query = tasks_per_query

    def search_one(self, query: Query, project: ProjectName, sending: Sending) -> None:
        """Send one project's search, which finalizes the query by itself."""
        message = _message(sending, query, [project], is_federated=False)
        with self._publishing() as producer:
            self._search(message, producer, sending)

    def search_all(self, query: Query, projects: Sequence[ProjectName], sending: Sending) -> None:
        """Send a chord: the searches, one project or pack of projects each, and the merge.

        The header messages carry the chord themselves. Celery 5.7.0's `chord()` registers every
        header's result in the dispatching process and never lets go of it, which in a long-lived
        process is a leak of one subscription per message.
        """
        group_id = uuid4().hex
        packs = pack(projects, self._tasks_per_query)
        callback = self._celery.signature(
            MERGE_RESULTS,
            [sending.query_id, sending.is_job],
            task_id=uuid4().hex,
            queue=MERGE_QUEUE,
            ignore_result=True,
        )
        callback["chord_size"] = len(packs)
        with self._publishing() as producer, producer.batch():  # all messages in one step
            for index, packed in enumerate(packs):
                message = _message(sending, query, packed, is_federated=True)
                self._search(
                    message,
                    producer,
                    sending,
                    chord=callback,
                    group_id=group_id,
                    group_index=index,
                )

    def ingest(self, job_id: str) -> None:
        with self._publishing() as producer:
            self._send(INGEST_NODES, [job_id], producer, queue=INGEST_QUEUE)

    def _search(
        self, message: SearchMessage, producer: Any, sending: Sending, **options: Any
    ) -> None:
        # Without Celery's `expires`, which each worker would compare with its own host's clock: the
        # task itself knows when its query is over.
        queue = JOBS_QUEUE if sending.is_job else QUERY_QUEUE
        self._send(SEARCH_PROJECT, [message], producer, queue=queue, **options)

    def _send(self, name: str, arguments: list[Any], producer: Any, **options: Any) -> None:
        # argsrepr: Celery would render the arguments, the question among them, into every header.
        self._celery.send_task(
            name, arguments, producer=producer, ignore_result=True, argsrepr="", **options
        )

    @contextmanager
    def _publishing(self) -> Iterator[Any]:
        """A producer of the pool; the driver's errors become ours."""
        try:
            with self._celery.producer_or_acquire() as producer:
                yield producer
        except (BatchPublishError, OperationalError, RedisError, OSError) as error:
            raise QueueUnavailable(
                "The queue does not take work; see GET /health/ready, try again."
            ) from error


def pack(projects: Sequence[ProjectName], most: int) -> list[list[ProjectName]]:
    """The projects in at most `most` packs of nearly equal size: one each while that is enough."""
    count = min(most, len(projects))
    return [list(projects[index::count]) for index in range(count)]


def _message(
    sending: Sending, query: Query, projects: Sequence[ProjectName], is_federated: bool
) -> SearchMessage:
    return {
        "query_id": sending.query_id,
        "projects": list(projects),
        "query": dump_query(query),
        "is_federated": is_federated,
        "is_job": sending.is_job,
        "deadline_at": sending.at + sending.left_s,
        "sent_at": sending.at,
    }
