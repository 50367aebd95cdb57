"""The thread of a merge worker that sweeps up after whatever died."""

import threading
import time
from datetime import UTC, datetime
from typing import Any

import structlog

from workers.errors import PoimenError
from workers.jobs import Sweep
from workers.ports import JobStore

log = structlog.get_logger(__name__)

PERIOD_S = 1.0
SHORTEST_PAUSE_S = 0.2
CLEAN_UP_S = 60.0


class Sweeper:
    """A thread and not a task: it goes on while the queue is down, and behind no other work."""

    def __init__(self, sweep: Sweep, store: JobStore) -> None:
        self._sweep = sweep
        self._store = store
        self._swept_at: datetime | None = None

    def start(self) -> None:
        threading.Thread(target=self._go_on, name="sweeper", daemon=True).start()

    def says(self) -> dict[str, Any]:
        """For the heartbeat."""
        at = self._swept_at
        return {"swept_at": f"{at:%Y-%m-%dT%H:%M:%SZ}" if at else None}

    def _go_on(self) -> None:
        cleaned_at = time.monotonic()
        took_s = 0.0
        while True:
            # A Redis that hangs makes it long, and jobs must not wait for its turn as well.
            time.sleep(max(SHORTEST_PAUSE_S, PERIOD_S - took_s))
            began_at = time.monotonic()
            try:
                self._sweep.run()
                self._swept_at = datetime.now(UTC)
                if time.monotonic() - cleaned_at >= CLEAN_UP_S:
                    self._store.clean_up()
                    cleaned_at = time.monotonic()
            except PoimenError as error:
                log.warning("sweep_failed", reason=str(error))
            except Exception as error:  # it must not be the last sweep
                log.error("sweep_broke", error=type(error).__name__, exc_info=error)
            took_s = time.monotonic() - began_at
