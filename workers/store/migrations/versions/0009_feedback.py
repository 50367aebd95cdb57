"""What people and agents say of results."""

from workers.store.migrations import apply_sql

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    apply_sql(__file__)
