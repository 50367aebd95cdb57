"""The words of nodes, for lexical search."""

from workers.store.migrations import apply_sql

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    apply_sql(__file__)
