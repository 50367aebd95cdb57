"""The running state of queries, in Redis: what may be lost, and what every process can reach.

Per query, all under one hash tag and all with a lifetime set in the same step that writes them:

    poimen:q:{id}            hash: projects, documents, limit; by and silence (once frozen), late;
                             of a job also base (where its revisions start), total and begun
    poimen:q:{id}:outcomes   hash: project -> outcome
    poimen:q:{id}:answer     the answer
    poimen:q:{id}:done       list: the answer, once, for whoever waits

and of a job, which many may watch while it runs, instead of the last two:

    poimen:q:{id}:begun      hash: project -> the worker process that took it
    poimen:q:{id}:changes    stream: one entry per revision, its id
"""

import json
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import Any, cast

from redis import Redis
from redis.exceptions import ResponseError

from workers.contracts import (
    JOBS_QUEUE,
    PREFIX,
    QUERY_QUEUE,
    dump_answer,
    dump_outcome,
    load_answer,
    load_outcome,
)
from workers.model import (
    Answer,
    Change,
    Frozen,
    Job,
    JobLook,
    Opened,
    Outcome,
    Pace,
    ProjectName,
    SignOfLife,
    Silence,
    Status,
)
from workers.store.redis import reachable, wait_for

_KEPT_S = 60  # beyond the deadline, for readers and late outcomes
_LINGER_S = 10
ALIVE_MS = 3500  # a worker process without a sign of life for so long has lost its work
_SLICE_MS = 1000  # shorter than the client's socket timeout

# Also tells how much waits in the queue, and Redis's time: messages carry instants, and the clocks
# of hosts differ.
_OPEN = """
local waiting = redis.call('LLEN', KEYS[2])
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('EXPIRE', KEYS[1], ARGV[1])
return {waiting, time[1], time[2]}
"""

# -2 unknown query, -1 too late, 0 there is one already, 1 recorded, 2 no outcome is missing now.
# The last is also said to whoever repeats one: the first reply may have been lost.
_RECORD = """
local lifetime = redis.call('TTL', KEYS[1])
if lifetime < 0 then return -2 end
if redis.call('HEXISTS', KEYS[1], 'by') == 1 then
  redis.call('HINCRBY', KEYS[1], 'late', 1)
  return -1
end
local recorded = redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], lifetime + 1)
if ARGV[3] and recorded == 1 then
  -- Whoever began it may not have been able to say so.
  redis.call('HSETNX', KEYS[1], 'begun', 1)
  local base = redis.call('HGET', KEYS[1], 'base')
  local revision = base + 1 + redis.call('HLEN', KEYS[2])
  redis.call('XADD', KEYS[3], string.format('%d-0', revision),
             'project', ARGV[1], 'status', ARGV[3], 'reason', ARGV[4])
  redis.call('EXPIRE', KEYS[3], lifetime + 1)
end
local asked = cjson.decode(redis.call('HGET', KEYS[1], 'projects'))
if redis.call('HLEN', KEYS[2]) == #asked then return 2 end
return recorded
"""

# Who takes which projects of a job, and those still worth a search: none once it is frozen.
_BEGIN = """
local lifetime = redis.call('TTL', KEYS[1])
if lifetime < 0 or redis.call('HEXISTS', KEYS[1], 'by') == 1 then return {} end
local left = {}
for i = 2, #ARGV do
  if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 0 then
    redis.call('HSET', KEYS[3], ARGV[i], ARGV[1])
    table.insert(left, ARGV[i])
  end
end
if #left > 0 then redis.call('EXPIRE', KEYS[3], lifetime + 1) end
if redis.call('HSETNX', KEYS[1], 'begun', 1) == 1 then
  local base = redis.call('HGET', KEYS[1], 'base')
  redis.call('XADD', KEYS[4], string.format('%d-0', base + 1), 'begun', 1)
  redis.call('EXPIRE', KEYS[4], lifetime + 1)
end
return left
"""

# A job that was closed without being frozen, since it was cancelled, has no silence.
# The answer where there is one already.
_FREEZE = """
local answer = redis.call('GET', KEYS[3])
if answer then return {answer} end
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
if redis.call('HSETNX', KEYS[1], 'by', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], 'silence', ARGV[2])
elseif redis.call('HEXISTS', KEYS[1], 'silence') == 0 then
  return {}
end
return {redis.call('HMGET', KEYS[1], 'projects', 'limit', 'by', 'silence', 'documents'),
        redis.call('HGETALL', KEYS[2])}
"""

# The outcomes have become the answer; only the record stays, to tell who comes late.
_PUBLISH = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) then
  redis.call('LPUSH', KEYS[2], ARGV[1])
  redis.call('EXPIRE', KEYS[2], ARGV[2])
  redis.call('UNLINK', KEYS[3])
  return 1
end
return redis.call('GET', KEYS[1])
"""

# A job's answer is in PostgreSQL. A waiter may have seen a later revision than Redis knows of, if
# Redis forgot the job meanwhile; the last one is said by who ended it. Its outcomes linger: whoever
# found it running a moment ago is about to read them, and must not see less than before.
_CLOSE = """
redis.call('HSETNX', KEYS[1], 'by', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
local last = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
if not last or tonumber(string.match(last[1], '^%d+')) < tonumber(ARGV[1]) then
  redis.call('XADD', KEYS[3], string.format('%d-0', ARGV[1]), 'ended', 1)
end
redis.call('EXPIRE', KEYS[3], ARGV[3])
redis.call('EXPIRE', KEYS[2], ARGV[4])
redis.call('UNLINK', KEYS[4])
"""


class Recorded(IntEnum):
    """What became of an outcome."""

    UNKNOWN_QUERY = -2
    TOO_LATE = -1
    DUPLICATE = 0
    RECORDED = 1
    COMPLETED = 2  # every project has an outcome now


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
        self,
        query_id: str,
        projects: Sequence[ProjectName],
        documents: Sequence[int],
        limit: int,
        timeout_s: float,
    ) -> Opened:
        """Write the query's record; must come before any of its tasks is sent."""
        record: dict[str, str | int] = {
            "projects": json.dumps(list(projects)),
            "documents": json.dumps(list(documents)),
            "limit": limit,
        }
        return self._opened(query_id, record, QUERY_QUEUE, timeout_s)

    def _opened(
        self, query_id: str, record: Mapping[str, str | int], queue: str, timeout_s: float
    ) -> Opened:
        lifetime = int(timeout_s) + _KEPT_S
        fields = [part for field in record.items() for part in field]
        with reachable():
            said = self._open(keys=[_key(query_id), queue], args=[lifetime, *fields])
        waiting, seconds, microseconds = (int(number) for number in cast(list[bytes], said))
        return Opened(waiting, seconds + microseconds / 1e6)

    def record(self, query_id: str, outcome: Outcome) -> Recorded:
        """Store one project's outcome. The first one stands; after freezing it is only counted."""
        keys = [_key(query_id), _key(query_id, "outcomes")]
        with reachable():
            said = self._record(keys=keys, args=[outcome.project, dump_outcome(outcome)])
        return Recorded(cast(int, said))

    def freeze(
        self, query_id: str, by: str, silence: Silence = Silence.NO_ANSWER
    ) -> Frozen | Answer | None:
        keys = [_key(query_id), _key(query_id, "outcomes"), _key(query_id, "answer")]
        with reachable():
            said = cast(list[Any], self._freeze(keys=keys, args=[by, silence.value]))
        if not said:
            return None
        return load_answer(said[0]) if len(said) == 1 else _frozen(*said)

    def publish(self, query_id: str, answer: Answer) -> Answer:
        keys = [_key(query_id, part) for part in ("answer", "done", "outcomes")]
        with reachable():
            said = self._publish(keys=keys, args=[dump_answer(answer), _KEPT_S])
        return answer if said == 1 else load_answer(cast(bytes, said))

    def wait(self, query_id: str, seconds: float) -> Answer | None:
        """The answer once there is one, or None after `seconds`. For one that waits."""
        with reachable():
            data = wait_for(self._redis, _key(query_id, "done"), seconds)
        return load_answer(data) if data else None


class JobRuns(QueryRuns):
    """The same of jobs, which many may watch while they run and whose answer is in PostgreSQL.

    `Job.last_revision` says how revisions are counted.
    """

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self._begin = redis.register_script(_BEGIN)
        self._close = redis.register_script(_CLOSE)

    def open_job(self, job: Job, projects: Sequence[ProjectName], limit: int) -> Opened:
        """Write the job's record; must come before any of its tasks is sent.

        Args:
            projects: those that are sent now; nobody has begun them, whoever did before.
        """
        record: dict[str, str | int] = {
            "projects": json.dumps(job.projects),
            "documents": json.dumps(job.documents),
            "limit": limit,
            "base": job.first_revision,
            "total": len(job.projects),
        }
        opened = self._opened(job.id, record, JOBS_QUEUE, max(0.0, job.left_s))
        if projects:
            with reachable():
                self._redis.hdel(_key(job.id, "begun"), *projects)
        return opened

    def begin(
        self, query_id: str, projects: Sequence[ProjectName], worker: str
    ) -> list[ProjectName]:
        """Say that this worker takes these projects; returns those that are still to be searched.

        None are when the job has ended, or is not known any more.
        """
        keys = [_key(query_id, part) for part in ("", "outcomes", "begun", "changes")]
        with reachable():
            left = cast(list[bytes], self._begin(keys=keys, args=[worker, *projects]))
        return [project.decode() for project in left]

    def record(self, query_id: str, outcome: Outcome) -> Recorded:
        """Store one project's outcome, and tell who watches."""
        keys = [_key(query_id, part) for part in ("", "outcomes", "changes")]
        data, reason = dump_outcome(outcome), outcome.reason or ""
        with reachable():
            said = self._record(
                keys=keys, args=[outcome.project, data, outcome.status.value, reason]
            )
        return Recorded(cast(int, said))

    def look(self, query_ids: Sequence[str]) -> list[JobLook | None]:
        """Who works on each of these jobs; None for one that is not known (any more)."""
        with reachable(), self._redis.pipeline(transaction=False) as pipe:
            for query_id in query_ids:
                pipe.hexists(_key(query_id), "by")
                pipe.hget(_key(query_id), "base")
                pipe.hkeys(_key(query_id, "outcomes"))
                pipe.hgetall(_key(query_id, "begun"))
            said = pipe.execute()
        return [_look(*said[at : at + 4]) for at in range(0, len(said), 4)]

    def pace(self, query_ids: Sequence[str]) -> list[Pace | None]:
        """How far each of these jobs is; None for one that is not known (any more)."""
        with reachable(), self._redis.pipeline(transaction=False) as pipe:
            for query_id in query_ids:
                pipe.hmget(_key(query_id), "base", "begun", "total")
                pipe.hlen(_key(query_id, "outcomes"))
            said = pipe.execute()
        return [_pace(*said[at : at + 2]) for at in range(0, len(said), 2)]

    def waiting(self) -> int:
        """Tasks of jobs that no worker has taken yet."""
        with reachable():
            return self._redis.llen(JOBS_QUEUE)

    def takes_writes(self) -> bool:
        """Whether something small can be written: a Redis that is full still answers questions."""
        with reachable():
            try:
                self._redis.set(f"{PREFIX}:sweep", 1, ex=_KEPT_S)
            except ResponseError:
                return False
        return True

    def say_alive(self, worker: str, jobs: Collection[str]) -> None:
        """Show that this worker process goes on with these jobs."""
        with reachable():
            self._redis.set(_alive_key(worker), json.dumps(sorted(jobs)), px=ALIVE_MS)

    def signs(self, workers: Collection[str]) -> dict[str, SignOfLife]:
        """The last sign of life of each of these worker processes that gave one lately."""
        named = sorted(workers)
        with reachable(), self._redis.pipeline(transaction=True) as pipe:
            for worker in named:
                pipe.get(_alive_key(worker))
                pipe.pttl(_alive_key(worker))
            said = pipe.execute() if named else []
        found = zip(named, said[::2], said[1::2], strict=True)
        return {
            worker: SignOfLife((ALIVE_MS - left_ms) / 1000, frozenset(json.loads(jobs)))
            for worker, jobs, left_ms in found
            if jobs is not None
        }

    def frozen(self, query_ids: Sequence[str]) -> list[bool]:
        """Whether each of these has stopped accepting outcomes, or is not known any more."""
        with reachable(), self._redis.pipeline(transaction=False) as pipe:
            for query_id in query_ids:
                pipe.hmget(_key(query_id), "limit", "by")
            said = pipe.execute()
        return [limit is None or by is not None for limit, by in said]

    def so_far(self, query_id: str) -> Frozen | None:
        """What has arrived, without ending anything."""
        with reachable(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hmget(_key(query_id), "projects", "limit", "by", "silence", "documents")
            pipe.hgetall(_key(query_id, "outcomes"))
            (projects, limit, *_, documents), outcomes = pipe.execute()
        if projects is None:
            return None
        return Frozen(
            projects=tuple(json.loads(projects)),
            limit=int(limit),
            by="",
            outcomes=_outcomes(outcomes),
            silence=Silence.UNFINISHED,
            documents=tuple(json.loads(documents)),
        )

    def close(self, query_id: str, revision: int, by: str) -> None:
        """The job has ended: let go of its outcomes soon, and tell who watches."""
        keys = [_key(query_id, part) for part in ("", "outcomes", "changes", "begun")]
        with reachable():
            self._close(keys=keys, args=[revision, by, _KEPT_S, _LINGER_S])

    def changes(self, query_id: str, since: int, seconds: float) -> list[Change]:
        """The changes after a revision, waiting for the first; none if there is none in time.

        Waits one slice at most: what Redis has forgotten is then asked of PostgreSQL.
        """
        block = max(1, min(_SLICE_MS, int(seconds * 1000)))
        stream = _key(query_id, "changes")
        with reachable():
            said = self._redis.xread({stream: f"{since}-0"}, block=block, count=1000)
        entries = cast(list[Any], said)[0][1] if said else []
        return [_change(entry_id, fields) for entry_id, fields in entries]


def _frozen(record: list[bytes], flat: list[bytes]) -> Frozen:
    projects, limit, frozen_by, silence, documents = record
    outcomes = dict(zip(flat[::2], flat[1::2], strict=True))
    return Frozen(
        projects=tuple(json.loads(projects)),
        limit=int(limit),
        by=frozen_by.decode(),
        outcomes=_outcomes(outcomes),
        silence=Silence(silence.decode()),
        documents=tuple(json.loads(documents)),
    )


def _outcomes(stored: Mapping[bytes, bytes]) -> dict[ProjectName, Outcome]:
    return {name.decode(): load_outcome(data) for name, data in stored.items()}


def _look(
    is_frozen: bool, base: bytes | None, answered: list[bytes], begun: dict[bytes, bytes]
) -> JobLook | None:
    if base is None:
        return None
    return JobLook(
        is_frozen=bool(is_frozen),
        answered=frozenset(project.decode() for project in answered),
        begun={project.decode(): worker.decode() for project, worker in begun.items()},
    )


def _pace(record: list[bytes | None], done: int) -> Pace | None:
    base, begun, total = record
    if base is None or total is None:
        return None
    is_begun = begun is not None
    return Pace(int(base) + is_begun + done, is_begun, done, int(total))


def _change(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Change:
    said = {name.decode(): value.decode() for name, value in fields.items()}
    return Change(
        revision=int(entry_id.partition(b"-")[0]),
        project=said.get("project"),
        status=Status(said["status"]) if "status" in said else None,
        reason=said.get("reason") or None,
        is_end="ended" in said,
    )


def _alive_key(worker: str) -> str:
    return f"{PREFIX}:alive:{worker}"


def _key(query_id: str, part: str = "") -> str:
    return f"{PREFIX}:q:{{{query_id}}}" + (f":{part}" if part else "")
