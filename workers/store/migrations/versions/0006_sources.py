"""Files that were submitted, and the sources that nodes come from."""

from workers.store.migrations import apply_sql

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    apply_sql(__file__)
