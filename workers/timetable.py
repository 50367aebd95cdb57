"""What a background worker does beside its tasks, from the event loop of its own process.

The pool's processes may be busy, hang or die; the loop is what the worker's heartbeat comes from.
"""

import os
import signal
import time
from datetime import UTC, datetime
from typing import Any

import psutil
import structlog
from celery import bootsteps
from celery.worker import state
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from workers import wiring
from workers.contracts import (
    ANALYSE_MISSING,
    EMBED_MISSING,
    INDEX_LARGE_PROJECTS,
    INDEX_WORDS,
    INGEST_NODES,
    INGEST_QUEUE,
    PREPARE_TOKENS,
    REDISPATCH_INGEST,
    UPKEEP_KEY,
    UPKEEP_QUEUE,
)
from workers.errors import PoimenError
from workers.pulse import pulse

log = structlog.get_logger(__name__)

# Several workers may do so at once: each of these tasks is harmless twice.
PERIODS_S = {
    REDISPATCH_INGEST: 5.0,
    PREPARE_TOKENS: 5.0,
    EMBED_MISSING: 5.0,
    ANALYSE_MISSING: 5.0,
    INDEX_WORDS: 5.0,
    INDEX_LARGE_PROJECTS: 15.0,
}
LOOK_S = 5.0


class Timetable:
    """Sends upkeep when its time has come, and knows when it last ran."""

    def __init__(self, consumer: Any) -> None:
        self._app = consumer.app
        self._processes: int = consumer.controller.concurrency
        self._upkeep_at: float | None = None
        for task, period_s in PERIODS_S.items():
            self._send(task, period_s)
            consumer.timer.call_repeatedly(period_s, self._send, (task, period_s))

    def says(self) -> dict[str, Any]:
        """For the heartbeat: remembered here, since Redis may forget.

        Raises:
            RedisError: Redis does not answer.
        """
        ran_at = wiring.redis().get(UPKEEP_KEY)
        if ran_at is not None:
            self._upkeep_at = max(float(ran_at), self._upkeep_at or 0.0)
        at = self._upkeep_at
        instant = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" if at else None
        return {"upkeep_at": instant, "is_busy": self._is_busy()}

    def _is_busy(self) -> bool:
        return len(state.active_requests) >= self._processes

    def _send(self, task: str, period_s: float) -> None:
        """A queue that nobody reads must not fill up with these, so they expire."""
        if self._is_busy():
            return
        try:
            self._app.send_task(task, queue=UPKEEP_QUEUE, expires=period_s, ignore_result=True)
        except (OperationalError, RedisError, OSError) as error:
            log.warning("upkeep_not_sent", task=task, error=type(error).__name__)


def end_hung_processes(limit_s: float) -> None:
    """End processes of the pool that gave no sign of life while they work on a job.

    The pool starts another one, and upkeep takes the job over.
    """
    for request in list(state.active_requests):
        pid = request.worker_pid
        if request.name != INGEST_NODES or pid is None:
            continue
        # The last sign may be from an earlier job when this one has only just begun.
        worked_s = time.time() - request.time_start
        heard_s = pulse.silent_s(pid)
        silent_s = worked_s if heard_s is None else min(heard_s, worked_s)
        if silent_s > limit_s:
            log.error("ingest_process_hung", pid=pid, silent_s=round(silent_s), task_id=request.id)
            os.kill(pid, signal.SIGKILL)


class ReleaseJobs(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Gives running jobs back when the worker is asked to end, before it waits for its processes.

    They find out at their next sign of life. A restart so costs a job neither an attempt nor time.
    """

    requires = ("celery.worker.components:Pool",)

    def close(self, worker: Any) -> None:
        if INGEST_QUEUE not in worker.app.amqp.queues.consume_from:
            return
        try:
            released = wiring.release_jobs([child.pid for child in psutil.Process().children()])
        except PoimenError as error:
            log.warning("ingest_not_released", reason=str(error))
            return
        if released:
            log.info("ingest_released", jobs=released)
