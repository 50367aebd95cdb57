"""The connection pool, and the two ways to use it: bounded reads and transactions."""

import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple

import psycopg
from pgvector.psycopg import register_vector
from psycopg import Connection, RawCursor, errors
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool, PoolTimeout
from pydantic_core import from_json

from workers.deadline import Deadline
from workers.errors import DeadlineExceeded, StoreUnavailable
from workers.store.refusals import refusal
from workers.store.watchdog import Watchdog

MIN_SERVER = 150000
MIN_PGVECTOR = (0, 8, 4)
_CONNECT_TIMEOUT_S = 5.0
_RECONNECT_S = 1.0
_WRITE_TIMEOUT_S = 60.0

Rows = list[dict[str, Any]]


_BOUNDS = """
SELECT set_config('statement_timeout', %(limit)s, true),
       set_config('plan_cache_mode', %(plan)s, true)
"""
Plan = Literal["auto", "force_generic_plan"]


class Statement(NamedTuple):
    """One statement of a read."""

    query: str
    arguments: Mapping[str, Any]
    # Partial indexes need it: only with its values at hand does the planner see that one applies.
    is_planned_anew: bool = False


class Database:
    """A pool of connections to the one durable truth. No wait for it is without an end."""

    def __init__(
        self, url: str, max_connections: int = 8, write_timeout_s: float = _WRITE_TIMEOUT_S
    ) -> None:
        """write_timeout_s: for a transaction, and for each of its statements."""
        self._write_timeout_s = write_timeout_s
        self._watchdog = Watchdog()
        # Connections at work. The pool's own count has those as well that it tries in vain to make.
        self._lent = 0
        self._lending = threading.Lock()
        self._pool = ConnectionPool(
            url,
            min_size=1,
            max_size=max_connections,
            open=False,
            configure=_configure,
            timeout=_CONNECT_TIMEOUT_S,
            # After that it is tried when somebody asks for one: by itself the pool would wait twice
            # as long after each failure, and so for minutes more once a long outage is over.
            reconnect_timeout=_RECONNECT_S,
            kwargs={
                "connect_timeout": int(_CONNECT_TIMEOUT_S),
                "autocommit": True,
                # Tells whoever looks at pg_stat_activity which process a session belongs to.
                "application_name": f"poimen-{socket.gethostname()[:40]}-{os.getpid()}",
            },
        )
        self._pool.open()

    def close(self) -> None:
        self._pool.close()

    def read(
        self, statements: Sequence[Statement], deadline: Deadline, plan: Plan = "auto"
    ) -> list[Rows]:
        """The rows of each statement, sent together; the server stops them at the deadline or cut.

        Args:
            plan: `force_generic_plan` for statements whose plan never depends on their values, so
                that they are planned once per connection and not each time.

        A connection that broke is replaced while there is time: after a restart of the server, all
        that lay idle are broken.

        Raises:
            DeadlineExceeded: out of time, in a statement or waiting for a connection.
            StoreUnavailable: the database does not answer.
        """
        for is_last in (*[False] * self._pool.max_size, True):
            try:
                return self._read(statements, deadline, plan)
            except psycopg.OperationalError as error:
                if deadline.is_cut:
                    raise DeadlineExceeded("The search was ended.") from error
                if is_last or deadline.passed():
                    raise _unavailable(error) from error
        raise AssertionError("the last round returns or raises")

    def _read(self, statements: Sequence[Statement], deadline: Deadline, plan: Plan) -> list[Rows]:
        if deadline.passed():
            raise DeadlineExceeded("No time left for the database.")
        try:
            with self._free_connection(deadline) as connection:
                left = deadline.remaining()
                with self._watchdog.over(connection, left, deadline.cut):
                    return _pipelined(connection, statements, left, plan)
        except errors.QueryCanceled as error:
            raise DeadlineExceeded("The database was still searching at the deadline.") from error
        except PoolTimeout as error:
            if not (deadline.is_cut or self._lent):
                raise _unavailable(error) from error
            if deadline.passed():
                raise DeadlineExceeded("No database connection was free in time.") from error
            raise

    @contextmanager
    def _free_connection(self, deadline: Deadline) -> Iterator[Connection[Any]]:
        """As the pool's own, but that a cut ends the wait for it, and each second asks anew.

        Raises:
            PoolTimeout: none was free; after some time, to ask whether there is a database at all.
        """
        patience = deadline.within(_CONNECT_TIMEOUT_S)
        while True:
            try:
                connection = self._pool.getconn(min(patience.nap(), _RECONNECT_S))
                break
            except PoolTimeout:
                if patience.passed():
                    raise
        try:
            with self._counted(), connection:
                yield connection
        finally:
            self._pool.putconn(connection)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lending:
            self._lent += 1
        try:
            yield
        finally:
            with self._lending:
                self._lent -= 1

    @contextmanager
    def transaction(self) -> Iterator[Connection[dict[str, Any]]]:
        """A connection inside a transaction: committed at the end, rolled back on an error.

        Raises:
            StoreUnavailable: the database does not answer, or not within the write timeout.
        """
        try:
            with (
                self._free_connection(Deadline.after(_CONNECT_TIMEOUT_S)) as connection,
                self._watchdog.over(connection, self._write_timeout_s),
                connection.transaction(),
            ):
                connection.row_factory = dict_row
                limit = [f"{self._write_timeout_s * 1000:.0f}"]
                connection.execute("SELECT set_config('statement_timeout', %s, true)", limit)
                yield connection
        except (PoolTimeout, psycopg.OperationalError) as error:
            raise _unavailable(error) from error

    @contextmanager
    def alone(self, lock: int) -> Iterator[Connection[dict[str, Any]] | None]:
        """A connection without a transaction, for the one holder of an advisory lock.

        None if another session holds it. Never waits for it: a waiting statement holds a snapshot,
        for which a CREATE INDEX CONCURRENTLY of the holder would wait for ever.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        try:
            with self._free_connection(Deadline.after(_CONNECT_TIMEOUT_S)) as connection:
                connection.row_factory = dict_row
                taken = connection.execute("SELECT pg_try_advisory_lock(%s) AS taken", [lock])
                row = taken.fetchone()
                if row is None or not row["taken"]:
                    yield None
                    return
                try:
                    yield connection
                finally:
                    connection.execute("SELECT pg_advisory_unlock(%s)", [lock])
        except (PoolTimeout, psycopg.OperationalError) as error:
            raise _unavailable(error) from error


def _pipelined(
    connection: Connection[Any], statements: Sequence[Statement], seconds: float, plan: Plan
) -> list[Rows]:
    # At least 1 ms, since 0 would mean no limit at all. The statements of a pipeline are one
    # transaction by themselves; the limit ends with it, also behind a pooling proxy.
    bounds = {"limit": str(max(1, int(seconds * 1000))), "plan": plan}
    try:
        with connection.pipeline():
            connection.execute(_BOUNDS, bounds)
            cursors = [_execute(connection, statement) for statement in statements]
            return [cursor.fetchall() for cursor in cursors]
    except psycopg.Error:
        # What stood behind the failed statement was never parsed by the server, yet the driver may
        # remember it as prepared: this connection cannot be trusted any more.
        connection.close()
        raise


def _execute(connection: Connection[Any], statement: Statement) -> RawCursor[dict[str, Any]]:
    query, names = _numbered(statement.query)
    # Binary: token vectors and timestamps need no parsing, at half the time.
    return RawCursor(connection, row_factory=dict_row).execute(
        query,
        [statement.arguments[name] for name in names],
        prepare=False if statement.is_planned_anew else None,
        binary=True,
    )


@cache
def _numbered(query: str) -> tuple[bytes, list[str]]:
    """A statement with its arguments by number, as PostgreSQL takes it, and which they are.

    The driver would do the same, but for a long statement each time it is sent.
    """
    names: dict[str, int] = {}

    def number(name: re.Match[str]) -> str:
        if name[0] == "%%":
            return "%"
        return f"${names.setdefault(name[1], len(names) + 1)}"

    return re.sub(r"%%|%\((\w+)\)s", number, query).encode(), list(names)


def _configure(connection: Connection[Any]) -> None:
    register_vector(connection)
    set_json_loads(from_json, connection)  # of bytes, several times faster than the standard one


def _unavailable(error: Exception) -> StoreUnavailable:
    # Only the kind of error: a driver's message may quote the address with its password.
    return StoreUnavailable(
        f"PostgreSQL does not answer ({type(error).__name__}); see GET /health/ready, try again."
    )


def check_database(url: str) -> str:
    """The server's and pgvector's version, as one line to show.

    Raises:
        StoreUnavailable: not reachable, or older than what recall needs.
    """
    try:
        with psycopg.connect(url, connect_timeout=int(_CONNECT_TIMEOUT_S)) as connection:
            server = connection.info.server_version
            found = connection.execute(
                "SELECT installed_version, default_version FROM pg_available_extensions"
                " WHERE name = 'vector'"
            ).fetchone()
    except psycopg.Error as error:
        raise StoreUnavailable(f"{refusal(error)} (POIMEN_DATABASE_URL).") from error
    if server < MIN_SERVER:
        raise StoreUnavailable(
            f"PostgreSQL {server // 10000} is too old: 15 or newer is needed (POIMEN_DATABASE_URL)."
        )
    version = (found[0] or found[1]) if found else None
    if version is None:
        raise StoreUnavailable("This PostgreSQL has no pgvector: install pgvector 0.8.4 or newer.")
    if tuple(int(part) for part in version.split(".")) < MIN_PGVECTOR:
        raise StoreUnavailable(
            f"pgvector {version} is too old: 0.8.4 or newer is needed"
            " (install it, then ALTER EXTENSION vector UPDATE)."
        )
    return f"PostgreSQL {server // 10000}.{server % 10000}, pgvector {version}"
