"""Alembic's entry point: runs on the connection that `workers.store.migrations` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], target_metadata=None)
with context.begin_transaction():
    context.run_migrations()
