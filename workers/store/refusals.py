"""Why a database cannot be used, in words of our own: the driver's may quote the password."""

import re

import psycopg
from psycopg.errors import ConnectionTimeout

# While connecting, the driver gives a text and no code. The server's part of it may be in another
# language; that falls to the last line. Looked for in this order.
_REASONS = (
    ("password authentication failed", "PostgreSQL refuses the password, or has no such role"),
    ("no password supplied", "PostgreSQL wants a password and the address has none"),
    ("role name does not exist", "PostgreSQL has no such role"),
    ("database name does not exist", "PostgreSQL has no such database"),
    ("no pg_hba.conf entry", "PostgreSQL does not let this role connect from here (pg_hba.conf)"),
    ("authentication failed", "PostgreSQL does not let this role sign in"),
    ("permission denied for database", "This role may not connect to this database"),
    ("too many", "PostgreSQL has no connection left"),
    ("the database system is", "PostgreSQL is starting or stopping"),
    ("connection refused", "Nothing listens at this host and port"),
    ("no such file or directory", "There is no socket in this folder: no server runs there"),
    ("failed to resolve host", "This host is not known"),
    ("could not translate host", "This host is not known"),
    ("name or service not known", "This host is not known"),
    ("invalid port", "The port is no number from 1 to 65535"),
    ("invalid integer value", "The port, or another number in the address, is no number"),
    ("no route to host", "There is no way to this host"),
    ("unreachable", "There is no way to this host"),
    ("timeout", "PostgreSQL does not answer in time"),
    ("ssl", "PostgreSQL and this address do not agree about SSL (sslmode)"),
)
_BY_STATE = {
    "28P01": _REASONS[0][1],
    "28000": "PostgreSQL does not let this role sign in",
    "3D000": "PostgreSQL has no such database",
    "53300": "PostgreSQL has no connection left",
    "57P03": "PostgreSQL is starting or stopping",
}


def refusal(error: psycopg.Error) -> str:
    """What kept us from connecting; no name, host or password in it."""
    if isinstance(error, ConnectionTimeout):
        return "PostgreSQL does not answer in time"
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return "The address cannot be read: postgresql://user:password@host:port/database"
    if error.sqlstate in _BY_STATE:
        return _BY_STATE[error.sqlstate]
    # Names of the operator's stand in quotation marks and might read like a reason.
    said = re.sub(r'"[^"]*"', "NAME", str(error)).lower()
    known = (reason for sign, reason in _REASONS if sign in said)
    return next(known, f"PostgreSQL cannot be reached ({type(error).__name__})")
