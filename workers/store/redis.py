"""Connections to Redis or Valkey, and the one setting that has two spellings."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError
from redis.retry import Retry

from workers.errors import QueueUnavailable

MIN_SERVER = (6, 2)
_LONGEST_WAIT_S = 60.0


def connect(url: str) -> Redis:
    """A client whose blocking waits are safe.

    redis-py's default socket timeout is 5 s with retries, which turns a BLPOP of 7 s into a minute
    of repeated timeouts; so the socket timeout is longer than any wait, and one retry covers only a
    connection that had died idle.
    """
    return Redis.from_url(
        url,
        socket_timeout=_LONGEST_WAIT_S,
        socket_connect_timeout=2.0,
        retry=Retry(NoBackoff(), 1),
        health_check_interval=30,
    )


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
