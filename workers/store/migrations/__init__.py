"""Brings the database to this version's schema: plain SQL files, recorded by Alembic."""

import time
from pathlib import Path
from typing import Any

import psycopg

from workers.errors import StoreUnavailable

_LOCK = 0x706F696D  # any number, the same in every process: "poim"
_LOCK_WAIT_S = 120.0


def migrate(database_url: str) -> None:
    """Apply what is missing. Several processes may call this at once: one works, the others wait.

    Raises:
        StoreUnavailable: another process held the migration lock for two minutes, the role may not
            create the extension or the tables, or a newer version has made them.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    with psycopg.connect(database_url, autocommit=True) as guard:
        _take_lock(guard)
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(database_url),
            poolclass=NullPool,
        )
        with engine.connect() as connection:
            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent))
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except psycopg.errors.InsufficientPrivilege as error:
                raise StoreUnavailable(
                    "This role may not create what is missing. Let an administrator run"
                    " CREATE EXTENSION vector in this database, and own the schema `public`."
                ) from error
            except CommandError as error:
                raise StoreUnavailable(
                    f"This database is of a version that this program does not know ({error})."
                    " Use the program that made it, or a newer one."
                ) from error


def _take_lock(guard: psycopg.Connection[Any]) -> None:
    # Poll, never wait inside pg_advisory_lock(): a waiting statement holds a snapshot, and a
    # CREATE INDEX CONCURRENTLY of the holder would wait for that snapshot for ever.
    end = time.monotonic() + _LOCK_WAIT_S
    while True:
        row = guard.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK]).fetchone()
        if row is not None and row[0]:
            return
        if time.monotonic() > end:
            raise StoreUnavailable("Another process has been migrating the database for minutes.")
        time.sleep(0.1)


def apply_sql(revision_file: str) -> None:
    """Run the .sql file beside a revision, as it is: no parameters, so % and : mean themselves."""
    from alembic import op

    sql = Path(revision_file).with_suffix(".sql").read_text(encoding="utf-8")
    driver = op.get_bind().connection.driver_connection
    assert driver is not None  # noqa: S101  # a bound connection always has one
    driver.execute(sql)
