"""A circuit breaker per model server, shared by all workers through Redis.

    poimen:circuit:{server}   hash: failures, reason; once open also since, until, open_ms, probe

Closed, calls go through and failures in a row are counted. Open, calls fail at once. When its time
is over it is half open: one call goes through, and decides. Instants are Redis's own milliseconds,
so hosts need not agree on the time. A call that dies leaves nothing behind: its right to try ends
by itself, and so does the key.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast

import structlog
from redis import Redis
from redis.exceptions import RedisError

from workers.contracts import PREFIX

FAILURES = 3  # in a row
FIRST_OPEN_S, LAST_OPEN_S = 5.0, 120.0
_KEPT_S = 600  # without any call; longer than it is ever open

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

# {0, failures}: closed. {1, 0}: half open, and this call may try. {-1, ms}: open for so long.
_ENTER = f"""
{_NOW}
local said = redis.call('HMGET', KEYS[1], 'until', 'failures')
if not said[1] then return {{0, tonumber(said[2] or 0)}} end
local left = tonumber(said[1]) - now
if left > 0 then return {{-1, left}} end
-- Whoever asks while it is tried finds it open; if the one that tries dies, the next may.
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + ARGV[2]), 'probe', ARGV[1])
redis.call('EXPIRE', KEYS[1], {_KEPT_S})
return {{1, 0}}
"""

# A call that began before the circuit opened says nothing about it any more: only the one that was
# let through to try does.
_SUCCEED = """
local said = redis.call('HMGET', KEYS[1], 'until', 'probe')
if not said[1] or said[2] == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""

# Returns how many ms it has been opened for, 0 if it was not.
_FAIL = f"""
{_NOW}
local said = redis.call('HMGET', KEYS[1], 'until', 'probe', 'open_ms')
local open_ms = 0
redis.call('HSET', KEYS[1], 'reason', ARGV[2])
if said[1] then
  if said[2] == ARGV[1] then open_ms = math.min(2 * said[3], {LAST_OPEN_S * 1000:.0f}) end
elseif redis.call('HINCRBY', KEYS[1], 'failures', 1) >= {FAILURES} then
  open_ms = {FIRST_OPEN_S * 1000:.0f}
  redis.call('HSET', KEYS[1], 'since', string.format('%.0f', now))
end
if open_ms > 0 then
  redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + open_ms), 'open_ms', open_ms)
  redis.call('HDEL', KEYS[1], 'probe')
end
redis.call('EXPIRE', KEYS[1], {_KEPT_S})
return open_ms
"""

# One that was let through to try and found nothing out: the next may.
_LEAVE = f"""
{_NOW}
if redis.call('HGET', KEYS[1], 'probe') == ARGV[1] then
  redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now))
  redis.call('HDEL', KEYS[1], 'probe')
end
"""

_STATE = f"""
{_NOW}
local said = redis.call('HMGET', KEYS[1], 'until', 'since', 'probe', 'reason')
if not said[1] then return {{}} end
return {{tonumber(said[1]) - now, tonumber(said[2]), said[3] and 1 or 0, said[4]}}
"""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to make one call, and to say what came of it."""

    token: str
    is_probe: bool = False
    failures: int = 0  # in a row, when it was given


@dataclass(frozen=True, slots=True)
class Open:
    """No call now; the next one may try in `retry_after_s`."""

    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Circuit:
    """A circuit as the operator sees it."""

    state: Literal["closed", "open", "half_open"]
    since: datetime | None = None  # it opened
    retry_after_s: float = 0.0
    reason: str = ""  # of the last failure


class CircuitBreaker:
    """The circuit of one server. Without Redis, or with one that fails, it is closed."""

    def __init__(self, client: Redis | None, server: str) -> None:
        """server: what tells it from others in a key; no secret in it."""
        self._redis = client
        self._key = f"{PREFIX}:circuit:{server}"
        if client is not None:
            self._enter = client.register_script(_ENTER)
            self._succeed = client.register_script(_SUCCEED)
            self._fail = client.register_script(_FAIL)
            self._leave = client.register_script(_LEAVE)
            self._state = client.register_script(_STATE)

    def enter(self, lease_s: float) -> Permit | Open:
        """Ask for a call. lease_s: how long a half-open circuit is left to this one to try."""
        token = secrets.token_hex(8)
        if self._redis is None:
            return Permit(token)
        said = self._said(lambda: self._enter([self._key], [token, int(lease_s * 1000)]))
        answer, number = cast(list[int], said) if said is not None else (0, 0)
        if answer < 0:
            return Open(number / 1000)
        return Permit(token, is_probe=answer == 1, failures=number)

    def settle(self, permit: Permit, has_failed: bool | None, reason: str = "") -> None:
        """Say what came of a call.

        has_failed: None for nothing that concerns the server. reason: shown to the operator.
        """
        if self._redis is None:
            return
        arguments: tuple[list[str], list[str]] = ([self._key], [permit.token, reason])
        if has_failed:
            open_ms = self._said(lambda: self._fail(*arguments))
            if open_ms:
                _log.warning("circuit_opened", circuit=self._key, seconds=cast(int, open_ms) / 1000)
        elif has_failed is None:
            if permit.is_probe:
                self._said(lambda: self._leave(*arguments))
        elif permit.is_probe or permit.failures:  # else there is nothing to forget
            self._said(lambda: self._succeed(*arguments))
            if permit.is_probe:
                _log.info("circuit_closed", circuit=self._key)

    def state(self) -> Circuit:
        """The circuit now.

        Raises:
            RedisError: Redis does not answer.
        """
        said = cast(list[Any], self._state([self._key])) if self._redis is not None else []
        if not said:
            return Circuit("closed")
        left_ms, since_ms, is_tried, reason = said
        is_open = left_ms > 0 and not is_tried
        since = datetime.fromtimestamp(since_ms / 1000, UTC)
        state: Literal["open", "half_open"] = "open" if is_open else "half_open"
        return Circuit(state, since, max(0, left_ms) / 1000, reason.decode())

    def _said(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except RedisError as error:
            _log.warning("circuit_unknown", error=type(error).__name__)
            return None
