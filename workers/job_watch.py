"""What a worker does beside the searches of jobs: hear of their end, and show that it lives."""

import os
import socket
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol
from uuid import uuid4

import structlog

from workers.deadline import Cut
from workers.errors import QueueUnavailable

log = structlog.get_logger(__name__)

LOOK_S = 0.2
ALIVE_S = 0.5


class Ends(Protocol):
    """Where the end of a job and the life of a worker are told."""

    def frozen(self, query_ids: Sequence[str]) -> list[bool]: ...

    def say_alive(self, worker: str, jobs: Collection[str]) -> None: ...


class JobWatch:
    """One thread of a worker process. It cuts searches of jobs that have ended meanwhile."""

    def __init__(self, ends: Ends) -> None:
        # Random as well: a number of a process that has ended is given to another one.
        self.worker = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._ends = ends
        self._cuts: dict[object, tuple[str, Cut]] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._go_on, name="job-watch", daemon=True).start()

    @contextmanager
    def over(self, query_id: str) -> Iterator[Cut]:
        """A cut that is made when this job ends inside the block."""
        cut, registration = Cut(), object()
        with self._lock:
            self._cuts[registration] = (query_id, cut)
        try:
            yield cut
        finally:
            with self._lock:
                del self._cuts[registration]

    def look(self) -> None:
        """Cut the searches of jobs that have ended.

        Raises:
            QueueUnavailable: Redis does not answer.
        """
        with self._lock:
            watched = list(self._cuts.values())
        jobs = sorted({query_id for query_id, _ in watched})
        if not jobs:
            return
        ended = {job for job, is_over in zip(jobs, self._ends.frozen(jobs), strict=True) if is_over}
        for query_id, cut in watched:
            if query_id in ended and not cut.is_made:
                cut.make()

    def _jobs(self) -> set[str]:
        with self._lock:
            return {query_id for query_id, _ in self._cuts.values()}

    def _go_on(self) -> None:
        said_at = float("-inf")
        while True:
            try:
                if time.monotonic() - said_at >= ALIVE_S:
                    self._ends.say_alive(self.worker, self._jobs())
                    said_at = time.monotonic()
                self.look()
            except QueueUnavailable as error:
                log.warning("job_watch_blind", reason=str(error))
            except Exception as error:  # without signs of life its work would be taken away
                log.error("job_watch_broke", error=type(error).__name__, exc_info=error)
            time.sleep(LOOK_S)
