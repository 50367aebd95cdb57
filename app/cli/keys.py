"""`mem keys`: who may ask. Works on the database itself, so that the first key needs no key."""

from datetime import UTC, datetime
from typing import Any

import click

from app.cli.database import open_database
from app.cli.failures import CommandFailed, plain
from app.cli.shell import echo_json, format_option, note, store_failures


@click.group(
    epilog="""\b
Examples:
  mem keys create --name laptop
  mem keys list
  mem keys revoke KEY_ID

\b
These commands need the database: POIMEN_DATABASE_URL, or a running `mem up`."""
)
def keys() -> None:
    """Create, list and revoke API keys."""


@keys.command(
    epilog="""\b
Examples:
  mem keys create --name laptop
  mem keys create --name ci --project poimen --read-only
  mem keys create --name agent --project poimen --project agent-rust
"""
)
@click.option("--name", required=True, help="What the key is for.")
@click.option("-p", "--project", "projects", multiple=True, help="Only this one; repeatable.")
@click.option("--read-only", is_flag=True, help="May ask, may not store.")
@format_option
def create(name: str, projects: tuple[str, ...], read_only: bool, output: str) -> None:
    """Make a key and print it, once."""
    from app.wiring import create_key, known_projects

    if not name.strip():
        raise click.BadParameter("say what the key is for.", param_hint="--name")
    with store_failures():
        database = open_database()
        for project in sorted({*projects} - known_projects(database)) if projects else ():
            note(f"warning: there is no project {plain(project)} yet; the key is tied to this name")
        key_id, key = create_key(database, name, list(projects) or None, not read_only)
    if output == "json":
        echo_json({"id": key_id, "key": key})
        return
    click.echo(key)
    note(f"Key {key_id}. It is not shown again; put it into POIMEN_API_KEY.")


@keys.command(
    "list",
    epilog="""\b
Examples:
  mem keys list
  mem keys list --format json
  mem keys list | cut -f 1,2
""",
)
@format_option
def list_command(output: str) -> None:
    """Every key's id, name, rights and projects; never the key itself."""
    from app.wiring import list_keys

    with store_failures():
        found = list_keys(open_database())
    if output == "json":
        echo_json({"keys": [{name: _sendable(value) for name, value in k.items()} for k in found]})
        return
    for key in found:
        click.echo(_row(key))
    if not found:
        note("No key yet. Make one: mem keys create --name NAME")


def _sendable(value: Any) -> Any:
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else value


def _row(key: dict[str, Any]) -> str:
    projects = key.get("projects")
    columns = (
        key["id"],
        key["name"],
        "read and write" if key["can_write"] else "read only",
        "all projects" if projects is None else ",".join(projects),
        "revoked" if key.get("revoked_at") else "valid",
    )
    return "\t".join(plain(str(column)) for column in columns)


@keys.command(
    epilog="""\b
Examples:
  mem keys list
  mem keys revoke KEY_ID
  mem keys revoke KEY_ID && mem keys create --name laptop
"""
)
@click.argument("key_id", metavar="KEY_ID")
def revoke(key_id: str) -> None:
    """End a key's validity, at once."""
    from app.wiring import revoke_key

    with store_failures():
        is_known = revoke_key(open_database(), key_id)
    if not is_known:
        raise CommandFailed(
            f"no valid key has the id {key_id!r}.",
            "All of them: mem keys list",
            code="key_not_found",
        )
    note(f"Key {key_id} is revoked.")
