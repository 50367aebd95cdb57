"""Slowness that comes from outside: the database is slow for one project, a process is stopped."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from tests.integration.service import Service, until

# A policy's function runs per row; sleeping once per transaction makes the delay a known one.
_SLOW = """
CREATE OR REPLACE FUNCTION delay_of(asked text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE seconds float;
BEGIN
    SELECT slow.seconds INTO seconds FROM slow WHERE slow.project = asked;
    IF seconds < 0 THEN
        RAISE EXCEPTION 'this project is broken';
    END IF;
    IF seconds IS NOT NULL
       AND current_setting('slow.p' || md5(asked), true) IS DISTINCT FROM 'slept' THEN
        PERFORM set_config('slow.p' || md5(asked), 'slept', true);
        PERFORM pg_sleep(seconds);
    END IF;
    RETURN true;
END $$;
"""


@contextmanager
def slow_projects(service: Service, seconds: dict[str, float]) -> Iterator[None]:
    """Make recall of these projects take so long, by a row-security policy on the vectors."""
    with service.connect() as connection:
        connection.execute("CREATE TABLE slow (project text PRIMARY KEY, seconds float)")
        for project, delay in seconds.items():
            connection.execute("INSERT INTO slow VALUES (%s, %s)", [project, delay])
        connection.execute(_SLOW)
        connection.execute("ALTER TABLE node_vector ENABLE ROW LEVEL SECURITY")
        connection.execute("ALTER TABLE node_vector FORCE ROW LEVEL SECURITY")
        connection.execute("CREATE POLICY slow ON node_vector USING (delay_of(project))")
    try:
        yield
    finally:
        with service.connect() as connection:
            connection.execute("DROP POLICY slow ON node_vector")
            connection.execute("ALTER TABLE node_vector NO FORCE ROW LEVEL SECURITY")
            connection.execute("ALTER TABLE node_vector DISABLE ROW LEVEL SECURITY")
            connection.execute("DROP FUNCTION delay_of")
            connection.execute("DROP TABLE slow")


@contextmanager
def broken_projects(service: Service, projects: Iterable[str]) -> Iterator[None]:
    """Make recall of these projects fail in a way that nobody foresaw."""
    with slow_projects(service, dict.fromkeys(projects, -1.0)):
        yield


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Stop processes as a hanging machine would, until the block ends."""
    pids = list(pids)
    try:
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            _send(pid, signal.SIGCONT)


def _send(pid: int, sent: signal.Signals) -> None:
    # A database session may have ended by itself; that must leave no other process stopped.
    with suppress(ProcessLookupError):
        os.kill(pid, sent)


def pids_of(service: Service, queue: str, count: int = 1) -> list[int]:
    """The live workers of a queue, once there are so many: an earlier test may have ended some."""

    def live() -> list[int] | None:
        pids = [worker["pid"] for worker in service.workers() if queue in worker["queues"]]
        return pids if len(pids) >= count else None

    return until(live, within_s=40)
