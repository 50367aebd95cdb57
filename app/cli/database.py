"""The database, for commands that work on it themselves."""

from app.cli.failures import CommandFailed
from app.cli.shell import load_settings


def open_database() -> str:
    """The database of the settings, else the one of a running `mem up`; it answers.

    Asked first, as a pool of connections would try again and again, and would not say why.
    """
    from app.wiring import check_database

    url = _known_database()
    check_database(url)
    return url


def _known_database() -> str:
    from app.local.state import is_out_of_reach, read_state

    settings = load_settings()
    if settings.database_url:
        return settings.database_url.get_secret_value()
    state = read_state(settings.data_dir)
    if state is None and is_out_of_reach(settings.data_dir):
        raise CommandFailed(
            f"the service in {settings.data_dir} is another account's.",
            "Run this as that account, or name the database in POIMEN_DATABASE_URL.",
            code="store_unavailable",
        )
    if state is None:
        raise CommandFailed(
            "no database is known.",
            "Start one with `mem up`, or name one in POIMEN_DATABASE_URL.",
            code="store_unavailable",
        )
    return state.database_url
