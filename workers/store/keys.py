"""API keys. Only a hash is stored: a key has 256 random bits, so a slow hash would add nothing."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Any

from workers.deadline import Deadline
from workers.model import Principal, ProjectName
from workers.store.database import Database, Statement
from workers.store.queries import load_queries

QUERIES = load_queries("registry.sql")


class PostgresKeys:
    """The key table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_key(
        self, name: str, projects: Sequence[ProjectName] | None, can_write: bool
    ) -> tuple[str, str]:
        """Make a key for these projects (None: all of them).

        Returns:
            Its id, and the key itself, which cannot be shown again.
        """
        key_id = secrets.token_hex(6)
        key = f"pmk_{key_id}_{secrets.token_urlsafe(32)}"
        arguments = {
            "id": key_id,
            "name": name,
            "secret": _hash(key),
            "can_write": can_write,
            "projects": None if projects is None else sorted(set(projects)),
        }
        with self._database.transaction() as connection:
            connection.execute(QUERIES["save_key"].encode(), arguments)
        return key_id, key

    def find_principal(self, key: str, deadline: Deadline) -> Principal | None:
        """Who presents this key; None for an unknown, malformed or revoked one."""
        prefix, _, rest = key.partition("_")
        key_id = rest.partition("_")[0]
        if prefix != "pmk" or not key_id.isalnum() or not key.isascii():
            return None
        (rows,) = self._database.read(
            [Statement(QUERIES["find_key"], {"id": key_id})], deadline, "force_generic_plan"
        )
        if not rows or not hmac.compare_digest(bytes(rows[0]["secret"]), _hash(key)):
            return None
        row = rows[0]
        projects = None if row["projects"] is None else frozenset(row["projects"])
        return Principal(key_id, row["name"], row["can_write"], projects)

    def list_keys(self) -> list[dict[str, Any]]:
        with self._database.transaction() as connection:
            return connection.execute(QUERIES["list_keys"].encode()).fetchall()

    def revoke_key(self, key_id: str) -> bool:
        """Whether there was such a key to revoke."""
        with self._database.transaction() as connection:
            found = connection.execute(QUERIES["revoke_key"].encode(), {"id": key_id})
            return found.fetchone() is not None


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
