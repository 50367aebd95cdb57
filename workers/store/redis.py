"""Connections to Redis or Valkey, and the one setting that has two spellings."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from workers.contracts import PREFIX
from workers.deadline import Clock
from workers.errors import QueueUnavailable

MIN_SERVER = (6, 2)
_SOCKET_TIMEOUT_S = 1.5
_SLICE_S = 1.0


def connect(url: str) -> Redis:
    """A client that never waits longer than a socket timeout; for longer waits see `wait_for`.

    redis-py retries a timeout by default, which turns a hanging server into a hanging caller. One
    retry covers a connection that had died idle, and only that.
    """
    return Redis.from_url(
        url,
        socket_timeout=_SOCKET_TIMEOUT_S,
        socket_connect_timeout=_SOCKET_TIMEOUT_S,
        retry=Retry(NoBackoff(), 1, supported_errors=(ConnectionError,)),
        health_check_interval=30,
    )


def wait_for(
    client: Redis, key: str, seconds: float, clock: Clock = time.monotonic
) -> bytes | None:
    """Wait until a list has an element, and take it; None when the time is over.

    In slices shorter than the socket timeout, so that a server which hangs ends the wait, and a
    connection which drops costs one slice and not the whole wait again.
    """
    end = clock() + seconds
    while (left := end - clock()) > 0:
        taken = client.blpop([key], timeout=min(left, _SLICE_S))
        if taken is not None:
            return cast(bytes, taken[1])
    return None


@contextmanager
def reachable() -> Iterator[None]:
    """Turns the driver's errors into ours.

    Raises:
        QueueUnavailable: Redis did not answer, or refused.
    """
    try:
        yield
    except RedisError as error:
        # Only the kind of error: a driver's message may quote the address with its password.
        raise QueueUnavailable(
            f"Redis does not answer ({type(error).__name__}); see GET /health/ready, try again."
        ) from error


def check_redis(url: str) -> str:
    """The server's version, as one line to show.

    Raises:
        QueueUnavailable: not reachable, too old, or set to evict keys.
    """
    try:
        with connect(url) as client:
            info = client.info("server")
            policy = client.info("memory").get("maxmemory_policy", "noeviction")
    except AuthenticationError as error:
        raise QueueUnavailable("Redis refuses the password (POIMEN_REDIS_URL).") from error
    except RedisError as error:
        raise QueueUnavailable(
            f"Redis cannot be reached ({type(error).__name__}); check POIMEN_REDIS_URL."
        ) from error
    except (ValueError, TypeError) as error:
        # What the driver says of an option it does not take quotes the address.
        raise QueueUnavailable("The options in POIMEN_REDIS_URL cannot be used.") from error
    said = str(info["redis_version"])
    if tuple(int(part) for part in said.split(".")[:2]) < MIN_SERVER:
        raise QueueUnavailable(f"Redis {said} is too old: 6.2 or newer is needed.")
    if policy != "noeviction":
        raise QueueUnavailable(
            f"Redis may evict keys ({policy}), which loses queued work:"
            " set maxmemory-policy noeviction."
        )
    name, version = (
        ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", said)
    )
    return f"{name} {version}"


def check_writes(url: str) -> None:
    """Write something small: a server that is full or cannot save still answers questions.

    Raises:
        QueueUnavailable: it refuses, or does not answer.
    """
    with reachable(), connect(url) as client:
        try:
            client.set(f"{PREFIX}:writes", 1, ex=5)
        except OutOfMemoryError as error:
            raise QueueUnavailable(
                "Redis refuses writes (OOM): it is full; raise maxmemory."
            ) from error
        except ResponseError as error:
            code = str(error).partition(" ")[0]
            reason = code if code.isupper() else type(error).__name__
            raise QueueUnavailable(f"Redis refuses writes ({reason}); see its log.") from error


def celery_url(url: str) -> str:
    """The same server as Celery spells it: a unix socket has another scheme there."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        query = parts.query.replace("db=", "virtual_host=")
        return f"redis+socket://{parts.netloc}{parts.path}" + (f"?{query}" if query else "")
    if parts.scheme == "rediss" and "ssl_cert_reqs" not in parts.query:
        # What redis-py does by itself, Celery wants to be told.
        query = "&".join(filter(None, (parts.query, "ssl_cert_reqs=required")))
        return parts._replace(query=query).geturl()
    return url
