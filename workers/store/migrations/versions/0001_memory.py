"""The first schema: projects, nodes, edges, vectors, ingest jobs and keys."""

from workers.store.migrations import apply_sql

revision = "0001"
down_revision = None


def upgrade() -> None:
    apply_sql(__file__)
