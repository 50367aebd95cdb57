"""`mem migrate`: bring a database of one's own to this version's schema."""

import click

from app.cli.failures import EXIT_USAGE, CommandFailed
from app.cli.shell import load_settings, note, store_failures


@click.command(
    "migrate",
    epilog="""\b
Examples:
  POIMEN_DATABASE_URL=postgresql://poimen:secret@db/poimen mem migrate
  docker compose run --rm migrate
  mem migrate && systemctl restart poimen-web

\b
The extension `vector` must be there, or the role must be allowed to create it.
Running it again, or on several machines at once, is harmless. `mem up` does it by itself.""",
)
def migrate_command() -> None:
    """Create or update the tables in POIMEN_DATABASE_URL."""
    from app.wiring import check_database, migrate

    url = load_settings().database_url
    if url is None:
        raise CommandFailed(
            "POIMEN_DATABASE_URL is not set.",
            "Name the database to migrate; the one of `mem up` migrates itself.",
            code="database_not_named",
            exits_with=EXIT_USAGE,
        )
    with store_failures():
        version = check_database(url.get_secret_value())
        migrate(url.get_secret_value())
    note(f"{version}: the schema is up to date.")
