"""The nodes whose words an index outside PostgreSQL lacks."""

from workers.store.migrations import apply_sql

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    apply_sql(__file__)
