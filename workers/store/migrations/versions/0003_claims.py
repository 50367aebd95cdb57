"""Which process works on an ingest job."""

from workers.store.migrations import apply_sql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    apply_sql(__file__)
