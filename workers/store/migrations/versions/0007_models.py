"""Vectors of a second model beside those that answer."""

import time

from alembic import op
from workers.store.migrations import apply_sql

revision = "0007"
down_revision = "0006"

INDEX_BUILDS = 0x706F6978  # as `workers.store.vector_indexes` has it
PATIENCE_S = 60.0


def upgrade() -> None:
    _wait_for_index_builds()
    apply_sql(__file__)


def _wait_for_index_builds() -> None:
    """Let a build under way end: the trigger waits for its lock, and it for our transaction.

    Asked again and again, never waited for in a statement, for which the build would wait.
    """
    end = time.monotonic() + PATIENCE_S
    driver = op.get_bind().connection.driver_connection
    assert driver is not None  # noqa: S101  # a bound connection always has one
    while time.monotonic() < end:
        (is_ours,) = driver.execute(
            "SELECT pg_try_advisory_xact_lock(%s)", [INDEX_BUILDS]
        ).fetchone()
        if is_ours:
            return
        time.sleep(0.1)
