"""Submitted queries."""

from workers.store.migrations import apply_sql

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    apply_sql(__file__)
