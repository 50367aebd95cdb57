"""What a service holds on to: memory and connections, before and after."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg
from redis import Redis

from app.bench.processes import OpenProcess, tree

_SESSIONS = """
SELECT count(*) FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND application_name LIKE 'poimen-%'
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """memory_mb: by role. connections: by server."""

    memory_mb: Mapping[str, float]
    connections: Mapping[str, int]

    def growth_mb(self, before: "Reading") -> float:
        return sum(self.memory_mb.values()) - sum(before.memory_mb.values())

    def more_connections(self, before: "Reading") -> int:
        return sum(self.connections.values()) - sum(before.connections.values())


def own_memory_mb(root: int, open_process: OpenProcess = psutil.Process) -> float:
    """Memory that a process and its descendants hold for themselves, in MB.

    Without what is shared with others or read from files: the database's buffers fill up once, and
    that is no growth. Only Linux tells these apart.
    """
    return sum(map(_own, tree([root], open_process))) / 1e6


def _own(process: Any) -> float:
    try:
        said = process.memory_info()
    except psutil.Error:
        return 0.0
    return float(said.rss - getattr(said, "shared", 0))


def roles_of(workers: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The process of each worker by its name without its host, as readiness tells of them."""
    return {str(worker["name"]).partition("@")[0]: int(worker["pid"]) for worker in workers}


def read(roles: Mapping[str, int], database_url: str, redis_url: str) -> Reading:
    """roles: the root process of each."""
    with psycopg.connect(database_url) as connection:
        row = connection.execute(_SESSIONS).fetchone()
    with Redis.from_url(redis_url) as client:
        clients = int(client.info("clients")["connected_clients"])
    memory = {role: round(own_memory_mb(pid), 1) for role, pid in roles.items()}
    return Reading(memory, {"postgres": row[0] if row else 0, "valkey": clients - 1})
