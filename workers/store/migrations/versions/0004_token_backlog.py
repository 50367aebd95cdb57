"""What is still to be prepared for the reranker."""

from workers.store.migrations import apply_sql

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    apply_sql(__file__)
