"""Which results an answer had and with which scores, in Redis for a day.

poimen:served:{query_id}    the record
poimen:served               list: the queries that have one, the newest first
"""

import zlib
from typing import cast

from pydantic import TypeAdapter
from redis import Redis

from workers.contracts import PREFIX
from workers.model import Served
from workers.store.redis import reachable

KEPT_S = 86_400
_KEY = f"{PREFIX}:served"
_SERVED = TypeAdapter(Served)

# A memory that answers very much would otherwise fill Redis, and a full one takes no questions.
# More than one may have to go: the setting can have been lowered.
_SAVE = """
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
local surplus = redis.call('LPUSH', KEYS[2], KEYS[1]) - ARGV[3]
redis.call('EXPIRE', KEYS[2], ARGV[2])
for _ = 1, math.min(surplus, 10) do
  redis.call('UNLINK', redis.call('RPOP', KEYS[2]))
end
"""


class RedisServed:
    """Implements `workers.ports.ServedAnswers`.

    Every method raises QueueUnavailable when Redis does not answer.
    """

    def __init__(self, redis: Redis, most: int) -> None:
        """most: records at a time; above, the oldest go first."""
        self._redis = redis
        self._save = redis.register_script(_SAVE)
        self._most = most

    def save(self, query_id: str, served: Served) -> None:
        data = zlib.compress(_SERVED.dump_json(served), level=1)
        with reachable():
            self._save(keys=[f"{_KEY}:{query_id}", _KEY], args=[data, KEPT_S, self._most])

    def find(self, query_id: str) -> Served | None:
        with reachable():
            data = cast(bytes | None, self._redis.get(f"{_KEY}:{query_id}"))
        return _SERVED.validate_json(zlib.decompress(data)) if data else None
