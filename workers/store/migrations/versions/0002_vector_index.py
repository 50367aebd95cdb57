"""Which large projects have a vector index of their own."""

from workers.store.migrations import apply_sql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    apply_sql(__file__)
