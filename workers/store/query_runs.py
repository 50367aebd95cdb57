"""The running state of queries, in Redis: what may be lost, and what every process can reach.

Per query, all under one hash tag and all with a lifetime set in the same step that writes them:

    poimen:q:{id}            hash: projects, limit, by (once frozen), late
    poimen:q:{id}:outcomes   hash: project -> outcome
    poimen:q:{id}:answer     the answer
    poimen:q:{id}:done       list: one element once there is an answer, for whoever waits
"""

import json
from collections.abc import Sequence
from enum import IntEnum
from typing import cast

from redis import Redis

from workers.contracts import PREFIX, dump_answer, dump_outcome, load_answer, load_outcome
from workers.model import Answer, Frozen, Outcome, ProjectName
from workers.store.redis import reachable, wait_for

_KEPT_S = 60  # beyond the deadline, for readers and late outcomes

_OPEN = """
redis.call('HSET', KEYS[1], 'projects', ARGV[1], 'limit', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
"""

# -2 unknown query, -1 too late, 0 there is one already, 1 recorded
_RECORD = """
local lifetime = redis.call('TTL', KEYS[1])
if lifetime < 0 then return -2 end
if redis.call('HEXISTS', KEYS[1], 'by') == 1 then
  redis.call('HINCRBY', KEYS[1], 'late', 1)
  return -1
end
local recorded = redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], lifetime + 1)
return recorded
"""

_FREEZE = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
redis.call('HSETNX', KEYS[1], 'by', ARGV[1])
return {redis.call('HMGET', KEYS[1], 'projects', 'limit', 'by'), redis.call('HGETALL', KEYS[2])}
"""

# The outcomes have become the answer; only the record stays, to tell who comes late.
_PUBLISH = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) then
  redis.call('LPUSH', KEYS[2], 'answer')
  redis.call('EXPIRE', KEYS[2], ARGV[2])
  redis.call('UNLINK', KEYS[3])
  return 1
end
return redis.call('GET', KEYS[1])
"""


class Recorded(IntEnum):
    """What became of an outcome."""

    UNKNOWN_QUERY = -2
    TOO_LATE = -1
    DUPLICATE = 0
    RECORDED = 1


class QueryRuns:
    """Implements `workers.ports.Runs`, and what the front door and the tasks need beside it.

    Every method raises QueueUnavailable when Redis does not answer.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._open = redis.register_script(_OPEN)
        self._record = redis.register_script(_RECORD)
        self._freeze = redis.register_script(_FREEZE)
        self._publish = redis.register_script(_PUBLISH)

    def open(
        self, query_id: str, projects: Sequence[ProjectName], limit: int, timeout_s: float
    ) -> None:
        """Write the query's record; must come before any of its tasks is sent."""
        lifetime = int(timeout_s) + _KEPT_S
        with reachable():
            self._open(keys=[_key(query_id)], args=[json.dumps(list(projects)), limit, lifetime])

    def record(self, query_id: str, outcome: Outcome) -> Recorded:
        """Store one project's outcome. The first one stands; after freezing it is only counted."""
        keys = [_key(query_id), _key(query_id, "outcomes")]
        with reachable():
            said = self._record(keys=keys, args=[outcome.project, dump_outcome(outcome)])
        return Recorded(cast(int, said))

    def freeze(self, query_id: str, by: str) -> Frozen | None:
        keys = [_key(query_id), _key(query_id, "outcomes")]
        with reachable():
            said = cast(list[list[bytes]], self._freeze(keys=keys, args=[by]))
        if not said:
            return None
        (projects, limit, frozen_by), flat = said
        outcomes = dict(zip(flat[::2], flat[1::2], strict=True))
        return Frozen(
            projects=tuple(json.loads(projects)),
            limit=int(limit),
            by=frozen_by.decode(),
            outcomes={name.decode(): load_outcome(data) for name, data in outcomes.items()},
        )

    def publish(self, query_id: str, answer: Answer) -> Answer:
        keys = [_key(query_id, part) for part in ("answer", "done", "outcomes")]
        with reachable():
            said = self._publish(keys=keys, args=[dump_answer(answer), _KEPT_S])
        return answer if said == 1 else load_answer(cast(bytes, said))

    def find_answer(self, query_id: str) -> Answer | None:
        with reachable():
            data = self._redis.get(_key(query_id, "answer"))
        return load_answer(cast(bytes, data)) if data else None

    def wait(self, query_id: str, seconds: float) -> None:
        """Return once there is an answer, or after `seconds`."""
        with reachable():
            wait_for(self._redis, _key(query_id, "done"), seconds)


def _key(query_id: str, part: str = "") -> str:
    return f"{PREFIX}:q:{{{query_id}}}" + (f":{part}" if part else "")
