"""Each question is encoded once: memory, then Redis, then the engine, one flight at a time."""

import hashlib
import json
import secrets
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Literal

import numpy as np
import redis
import structlog

from workers.deadline import Deadline
from workers.errors import EmbeddingServiceUnavailable
from workers.model import EmbeddingModel, Encoding, Refused, Vector
from workers.ports import Encoder

Origin = Literal["memory", "redis", "flight", "miss"]
"""Where an encoding came from; `flight`: from another's call that was under way."""

LEASE_S = 2.0  # most that a dead leader holds the others up
FIRST_POLL_S, LAST_POLL_S = 0.002, 0.020

# One round trip, and no gap in which a leader could finish between the look and the lock: the
# value if there is one, else 1 to the caller that may lead, 0 to one that has to wait.
_FIND_OR_LEAD = """
local value = redis.call('GET', KEYS[1])
if value then return value end
if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
"""
# Keeps the value, if there is one, and releases only one's own lock: after a lease has run out it
# may be another's.
_FINISH = """
if ARGV[2] ~= '' then redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) end
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
"""

_VALUE_VERSION = 2
# Version, whether it is understood, whether tokens follow, numbers of the vector.
_VALUE_HEADER = struct.Struct("<BBBI")

_log = structlog.get_logger(__name__)


class _Flight(Future[Encoding]):
    """An encoding under way in this process; those who ask for the same text wait for it."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self.deadline = deadline  # its leader's


class CachedEncoder:
    """An encoder that remembers questions, in this process and in Redis, shared by all threads.

    Redis only saves work: without it, or with a slow one, a question is encoded all the same. Give
    it a client of its own, answering bytes, whose timeouts are a fraction of a query's.
    """

    def __init__(
        self,
        encoder: Encoder,
        client: "redis.Redis | None",
        *,
        entries: int,
        lifetime_s: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """entries: most questions kept in this process. lifetime_s: of one in Redis."""
        self.model: EmbeddingModel = encoder.model
        self.token_model: str | None = encoder.token_model
        self.most_tokens = encoder.most_tokens
        self._encoder = encoder
        self._redis = client
        self._entries = entries
        self._lifetime_s = lifetime_s
        self._sleep = sleep
        self._lock = threading.Lock()  # guards the two below
        self._memory: OrderedDict[str, Encoding] = OrderedDict()
        self._flights: dict[str, _Flight] = {}
        if client is not None:
            self._find_or_lead = client.register_script(_FIND_OR_LEAD)
            self._finish = client.register_script(_FINISH)

    def encode_query(self, text: str, deadline: Deadline) -> Encoding:
        """The encoding of a question; see `encode_query_with_origin`."""
        return self.encode_query_with_origin(text, deadline)[0]

    def count_tokens(self, text: str) -> int:
        """As the engine counts."""
        return self._encoder.count_tokens(text)

    def warm_up(self) -> None:
        """Warm the engine up; nothing of it is remembered."""
        self._encoder.warm_up()

    def encode_passages(self, texts: Sequence[str]) -> list[Encoding | Refused]:
        """Stored texts go straight to the engine: each is encoded once by nature."""
        return self._encoder.encode_passages(texts)

    def embed_passages(self, texts: Sequence[str]) -> list[Vector | Refused]:
        return self._encoder.embed_passages(texts)

    def prepare_passages(self, texts: Sequence[str]) -> list[bytes | None]:
        return self._encoder.prepare_passages(texts)

    def encode_query_with_origin(self, text: str, deadline: Deadline) -> tuple[Encoding, Origin]:
        """The encoding of a question, and where it came from.

        Whoever asks first for a text leads; others wait for the leader, each no longer than its
        own deadline, and get the leader's error if it fails. Errors are not remembered.

        Raises:
            EmbeddingServiceUnavailable: the engine failed, or not in time.
        """
        text = text.strip()
        key = self._key(text)
        while True:
            with self._lock:
                if (known := self._memory.get(key)) is not None:
                    self._memory.move_to_end(key)
                    return known, "memory"
                flight = self._flights.get(key)
                if flight is None:
                    flight = self._flights[key] = _Flight(deadline)
                    break
            try:
                return flight.result(deadline.nap()), "flight"
            except TimeoutError as error:
                if deadline.passed():
                    raise _out_of_time() from error
            except EmbeddingServiceUnavailable:
                # A leader that was cut or ran out of its own, shorter time says nothing about the
                # engine.
                if deadline.passed() or not flight.deadline.passed():
                    raise
        return self._lead(key, text, flight)

    def _lead(self, key: str, text: str, flight: _Flight) -> tuple[Encoding, Origin]:
        try:
            encoding, origin = self._find_or_encode(key, text, flight.deadline)
        except BaseException as error:
            with self._lock:
                del self._flights[key]
            flight.set_exception(error)
            raise
        encoding.vector.setflags(write=False)  # from here on it is shared
        with self._lock:
            self._memory[key] = encoding
            if len(self._memory) > self._entries:
                self._memory.popitem(last=False)
            del self._flights[key]
        flight.set_result(encoding)
        return encoding, origin

    def _find_or_encode(self, key: str, text: str, deadline: Deadline) -> tuple[Encoding, Origin]:
        if self._redis is None:
            return self._encoder.encode_query(text, deadline), "miss"
        token = secrets.token_hex(8)
        try:
            found = self._find_or_wait(key, token, deadline)
        except redis.RedisError as error:
            _log.warning("query_cache_unavailable", error=type(error).__name__)
            return self._encoder.encode_query(text, deadline), "miss"
        if found is not None:
            return found
        value = b""
        try:
            encoding = self._encoder.encode_query(text, deadline)
            value = _pack(encoding)
        finally:
            self._save_and_release(key, token, value)
        return encoding, "miss"

    def _find_or_wait(
        self, key: str, token: str, deadline: Deadline
    ) -> tuple[Encoding, Origin] | None:
        """What Redis has or another process puts there; None once it is for this one to make."""
        origin: Origin = "redis"
        pause_s = FIRST_POLL_S
        while not deadline.passed():
            # Half of what is left, so that if this process dies, one that waits can still do it.
            lease_ms = int(1000 * min(LEASE_S, deadline.remaining() / 2))
            answer = self._find_or_lead(keys=[key, _lock_key(key)], args=[token, max(1, lease_ms)])
            if isinstance(answer, bytes):
                encoding = _unpack(answer, self.model.dimension)
                return None if encoding is None else (encoding, origin)
            if answer == 1:
                return None
            origin = "flight"
            self._sleep(min(pause_s, deadline.remaining()))
            pause_s = min(2 * pause_s, LAST_POLL_S)
        raise _out_of_time()

    def _save_and_release(self, key: str, token: str, value: bytes) -> None:
        try:
            self._finish(keys=[key, _lock_key(key)], args=[token, value, self._lifetime_s])
        except redis.RedisError as error:  # the lock then ends with its lease
            _log.warning("query_cache_unavailable", error=type(error).__name__)

    def _key(self, text: str) -> str:
        parts = [self.model.name, self.model.sha256, self.model.dimension, self.token_model, text]
        return "poimen:enc:" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _lock_key(key: str) -> str:
    return f"{key}:lock"


def _out_of_time() -> EmbeddingServiceUnavailable:
    return EmbeddingServiceUnavailable(
        "The question was not embedded in time; allow the query more time or check the load of "
        "the embedding service."
    )


def _pack(encoding: Encoding) -> bytes:
    vector = encoding.vector.astype("<f4")
    flags = (encoding.is_understood, encoding.tokens is not None)
    header = _VALUE_HEADER.pack(_VALUE_VERSION, *flags, len(vector))
    return header + vector.tobytes() + (encoding.tokens or b"")


def _unpack(value: bytes, dimension: int) -> Encoding | None:
    """A stored encoding, or None if it is of another version or was damaged."""
    vector_end = _VALUE_HEADER.size + 4 * dimension
    if len(value) < vector_end:
        return None
    version, is_understood, has_tokens, length = _VALUE_HEADER.unpack_from(value)
    if version != _VALUE_VERSION or length != dimension:
        return None
    vector = np.frombuffer(value[_VALUE_HEADER.size : vector_end], "<f4").astype(np.float32)
    tokens = value[vector_end:] if has_tokens else None
    return Encoding(vector, tokens, bool(is_understood))
