"""At most so many calls to one model server at once, by all workers together.

    poimen:slots:{server}   sorted set: a call's token -> when its lease ends, by Redis's clock

A call that ends gives its slot back. One whose process dies loses it when its lease ends, so
nothing stays taken.
"""

import random
import secrets
import time
from collections.abc import Callable
from typing import Any, cast

import structlog
from redis import Redis
from redis.exceptions import RedisError

from workers.contracts import PREFIX
from workers.deadline import Deadline

LEASE_BEYOND_S = 1.0  # a lease outlasts its call's deadline by so much
FIRST_POLL_S, LAST_POLL_S = 0.002, 0.040

_TAKE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[3]), ARGV[1])
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', last - now + 1))
return 1
"""

_log = structlog.get_logger(__name__)


class Slot:
    """The right to one call; given back when its block ends."""

    def __init__(self, give_back: Callable[[], None] = lambda: None) -> None:
        self._give_back = give_back

    def __enter__(self) -> "Slot":
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()


class Slots:
    """The slots of one server. Without Redis, or with one that fails, there is no limit."""

    def __init__(
        self,
        client: Redis | None,
        server: str,
        most: int,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """server: what tells it from others in a key. most: calls at once, of all workers."""
        self._redis = client
        self._key = f"{PREFIX}:slots:{server}"
        self._most = most
        self._sleep = sleep
        if client is not None:
            self._take = client.register_script(_TAKE)

    def take(self, deadline: Deadline) -> Slot | None:
        """A slot as soon as there is one; None if there is none before the deadline."""
        if self._redis is None:
            return Slot()
        token = secrets.token_hex(8)
        pause_s = FIRST_POLL_S
        while not deadline.passed():
            lease_ms = int(1000 * (deadline.remaining() + LEASE_BEYOND_S))
            try:
                taken = cast(int, self._take([self._key], [token, self._most, lease_ms]))
            except RedisError as error:
                _log.warning("slots_unlimited", error=type(error).__name__)
                return Slot()
            if taken:
                return Slot(lambda: self._give_back(token))
            # Not in step with those who wait as well.
            self._sleep(min(pause_s * random.uniform(0.5, 1.5), deadline.remaining()))  # noqa: S311
            pause_s = min(2 * pause_s, LAST_POLL_S)
        return None

    def _give_back(self, token: str) -> None:
        redis: Any = self._redis
        try:
            redis.zrem(self._key, token)
        except RedisError as error:  # its lease ends it
            _log.warning("slot_not_given_back", error=type(error).__name__)
