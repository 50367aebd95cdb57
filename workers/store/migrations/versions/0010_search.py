"""How a project is searched, and where token vectors lie."""

from workers.store.migrations import apply_sql

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    apply_sql(__file__)
