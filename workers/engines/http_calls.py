"""Calls to a model server over HTTP: bounded in time and number, repeated where that can help.

One `ModelServer` per process and server, shared by all threads. What it raises says what went wrong
in words fit to be shown: neither a key nor a text is in them, nor in the log.
"""

import hashlib
import math
import random
import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.cookiejar import DefaultCookiePolicy
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import requests
import structlog
from redis import Redis
from requests.auth import AuthBase
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from workers.deadline import Clock, Deadline
from workers.engines.breaker import Circuit, CircuitBreaker, Open, Permit
from workers.engines.endable_calls import EndableAdapter, within
from workers.engines.slots import Slot, Slots

ATTEMPTS = 3  # of a call that a server fails; one that is told when to come back has as many as fit
FAIR_S = 1.0  # a time-out is held against a server that had at least so long
BACKOFF_S, LONGEST_BACKOFF_S = 0.1, 2.0

_MAY_BE_SIZE = (400, 413, 422)  # how servers refuse a text or a batch that is too large
_KEY_REFUSED = (401, 403)


_log = structlog.get_logger(__name__)


class CallFailed(Exception):
    """A call without a result. `is_fault`: the server's; None: it says nothing about the server."""

    is_fault: ClassVar[bool | None] = False
    retry_after_s: float | None = None


class OutOfTime(CallFailed):
    """The deadline came first."""

    is_fault: ClassVar[bool | None] = None


class Ended(OutOfTime):
    """The query was cut."""


class TimedOut(OutOfTime):
    """The server had a fair time and did not answer."""

    is_fault = True


class NoSlot(CallFailed):
    """All the server's slots were taken until the deadline."""

    is_fault = None


class CircuitOpen(CallFailed):
    """The server failed lately, and was not asked."""

    is_fault = None


class Refused(CallFailed):
    """The server will not do this, now or later."""


class TooLarge(Refused):
    """The server refused what was sent, perhaps for its size."""

    status = 0


class Limited(CallFailed):
    """The server asks for fewer calls."""


class ServerFault(CallFailed):
    """The server failed, or cannot be reached."""

    is_fault = True


class BadAnswer(CallFailed):
    """The server answered, with something else than what was asked for."""

    is_fault = True


T = TypeVar("T")
E = TypeVar("E", bound=CallFailed)


class ModelServer:
    """One address of a model server, shared by all threads of a process.

    Calls of all workers together stay within `concurrency`, and they share what they learn of a
    server that fails: a circuit, by which the next ones need not find it out again.
    """

    def __init__(
        self,
        endpoint: str,
        api_key: str | None,
        *,
        kind: str,
        concurrency: int = 8,
        client: Redis | None = None,
        sleep: Callable[[float], None] = time.sleep,
        wall: Clock = time.time,
    ) -> None:
        """
        Args:
            endpoint: what is posted to.
            kind: embedding or rerank; for messages, and for the names of its settings.
            concurrency: most calls at once, of all workers.
            client: what workers share; None: nothing is shared, and nothing limited.
        """
        server = server_key(kind, endpoint)
        self.host = host_of(endpoint)
        self._endpoint = endpoint
        self._kind = kind
        self._auth = _Bearer(api_key)
        self._session = _session(concurrency)
        self._slots = Slots(client, server, concurrency, sleep=sleep)
        self._breaker = CircuitBreaker(client, server)
        self._sleep = sleep
        self._wall = wall

    def call(self, body: object, deadline: Deadline, read: Callable[[Any], T]) -> T:
        """What `read` makes of the server's answer to a JSON body.

        The time for a slot, for answers and for pauses all count; nothing outlasts the deadline.
        A cut closes the connection.

        Args:
            read: raises BadAnswer for what it cannot use.

        Raises:
            CallFailed: one of its kinds.
        """
        if deadline.passed():
            raise self._out_of_time()
        permit = self._breaker.enter(deadline.remaining() + 1.0)
        if isinstance(permit, Open):
            raise self.failed(
                CircuitOpen,
                "has failed several times and is left alone for"
                f" {math.ceil(permit.retry_after_s)} s; see GET /health/ready",
                permit.retry_after_s,
            )
        is_fault: bool | None = None
        reason = ""
        try:
            attempts = self._retrying(deadline, permit)
            result: T = attempts(self._attempt, body, deadline, read)
            is_fault = False
        except CallFailed as error:
            if deadline.is_cut:
                # Whatever came of it may be the cut's doing: nothing is held against the server.
                what = "was left before it answered: the query was ended; ask again"
                raise self.failed(Ended, what) from error
            is_fault, reason = error.is_fault, str(error)
            raise
        finally:
            self._breaker.settle(permit, is_fault, reason)
        return result

    def failed(self, kind: type[E], what: str, retry_after_s: float | None = None) -> E:
        """An error about this server. what: what it did; what to do next."""
        error = kind(f"The {self._kind} server at {self.host} {what}.")
        error.retry_after_s = retry_after_s
        return error

    def setting(self, name: str) -> str:
        return f"POIMEN_{self._kind.upper()}_{name}"

    def _retrying(self, deadline: Deadline, permit: Permit) -> Retrying:
        def has_to_stop(state: RetryCallState) -> bool:
            # A pause that does not fit is not begun: whoever waits hears of it now.
            if permit.is_probe or state.upcoming_sleep >= deadline.remaining():
                return True
            return state.attempt_number >= ATTEMPTS and _asked_pause(state) is None

        return Retrying(
            retry=retry_if_exception_type((Limited, ServerFault)),
            wait=_pause,
            stop=has_to_stop,
            sleep=self._sleep if deadline.cut is None else deadline.cut.wait,
            before_sleep=self._tell,
            reraise=True,
        )

    def _tell(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning(
            "model_server_retry",
            server=self.host,
            kind=self._kind,
            error=type(error).__name__,
            attempt=state.attempt_number,
            pause_s=round(state.upcoming_sleep, 2),
        )

    def _attempt(self, body: object, deadline: Deadline, read: Callable[[Any], T]) -> T:
        slot = self._slots.take(deadline)
        if slot is None:
            raise self.failed(
                NoSlot,
                "was not asked: all its slots were taken; allow more time or raise"
                f" {self.setting('CONCURRENCY')}",
            )
        timeout = deadline.remaining()
        if timeout <= 0:
            with slot:
                raise self._out_of_time()
        try:
            answer = within(deadline, timeout, lambda: self._send(body, timeout, slot))
        except TimeoutError as error:
            raise self._late(timeout) from error
        return read(answer)

    def _send(self, body: object, timeout: float, slot: Slot) -> Any:
        # The slot is given back when the server is done with the call, not when its caller is late.
        with slot:
            try:
                response = self._session.post(
                    self._endpoint,
                    json=body,
                    auth=self._auth,
                    # A server that is there connects in moments; most of it is for the answer.
                    timeout=(timeout / 2, timeout),
                    allow_redirects=False,
                )
            except requests.Timeout as error:
                raise self._late(timeout) from error
            except (
                requests.ConnectionError,
                requests.exceptions.ChunkedEncodingError,
                requests.exceptions.ContentDecodingError,
            ) as error:
                raise self.failed(
                    ServerFault,
                    f"cannot be reached ({type(error).__name__}); start it, or correct"
                    f" {self.setting('URL')}",
                ) from error
            except requests.RequestException as error:
                raise self.failed(
                    Refused,
                    f"was not asked: its address cannot be used ({type(error).__name__}); correct"
                    f" {self.setting('URL')}",
                ) from error
            except ValueError:
                # Of http.client, about a header; its message, and so the log, would hold the key.
                raise self.failed(
                    Refused,
                    f"was not asked: its key holds a line break; correct {self.setting('API_KEY')}",
                ) from None
        if response.status_code != requests.codes.ok:
            raise self._refusal(response)
        try:
            return response.json()
        except (requests.JSONDecodeError, RecursionError) as error:
            raise self.failed(
                BadAnswer, f"answered something that is not JSON; correct {self.setting('URL')}"
            ) from error

    def _refusal(self, response: requests.Response) -> CallFailed:
        status = response.status_code
        asked = _retry_after(response.headers.get("Retry-After"), self._wall())
        if status == requests.codes.too_many_requests:
            wait = "" if asked is None else f", again in {asked:.0f} s"
            what = f"allows no more calls for now (HTTP 429{wait})"
            return self.failed(
                Limited, f"{what}; ask again later, or lower {self.setting('CONCURRENCY')}", asked
            )
        what = f"answered HTTP {status}"
        if status in _KEY_REFUSED:
            return self.failed(Refused, f"{what}; correct {self.setting('API_KEY')}")
        if status in _MAY_BE_SIZE:
            error = self.failed(TooLarge, f"{what}; see its log")
            error.status = status
            return error
        if status >= requests.codes.server_error:
            return self.failed(ServerFault, f"{what}; see its log", asked)
        return self.failed(Refused, f"{what}; correct {self.setting('URL')} or see its log")

    def _late(self, timeout: float) -> CallFailed:
        what = f"did not answer within {timeout:.2f} s; allow more time or check its load"
        return self.failed(TimedOut if timeout >= FAIR_S else OutOfTime, what)

    def _out_of_time(self) -> CallFailed:
        return self.failed(OutOfTime, "was not asked: no time was left; allow the query more time")


def circuit_of(client: Redis, kind: str, endpoint: str) -> Circuit:
    """The circuit that all workers share for this server.

    Raises:
        RedisError: Redis does not answer.
    """
    return CircuitBreaker(client, server_key(kind, endpoint)).state()


def server_key(kind: str, endpoint: str) -> str:
    """What tells a server from others in Redis; hashed, since an address may hold a password."""
    return f"{kind}:{hashlib.sha256(endpoint.encode()).hexdigest()[:16]}"


def host_of(address: str) -> str:
    """A server's host and port, fit for a message: without a password."""
    return urlsplit(address).netloc.rpartition("@")[2]


def _session(connections: int) -> requests.Session:
    session = requests.Session()
    # Retries are made above, where the deadline is known.
    adapter = EndableAdapter(pool_connections=1, pool_maxsize=connections, max_retries=0)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


def _asked_pause(state: RetryCallState) -> float | None:
    error = state.outcome.exception() if state.outcome else None
    return error.retry_after_s if isinstance(error, CallFailed) else None


_backoff = wait_random_exponential(multiplier=BACKOFF_S, max=LONGEST_BACKOFF_S)


def _pause(state: RetryCallState) -> float:
    """At least what the server asked for, and never in step with others that it asked as well."""
    asked = _asked_pause(state)
    if asked is None:
        return _backoff(state)
    return asked + random.uniform(0, max(BACKOFF_S, 0.1 * asked))  # noqa: S311


def _retry_after(header: str | None, now: float) -> float | None:
    """Seconds to wait by a Retry-After header, which holds seconds or a date; None if neither."""
    if header is None:
        return None
    said = header.strip()
    if said.isascii() and said.isdigit():
        return float(said)
    try:
        at = parsedate_to_datetime(said)
    except ValueError:
        return None
    if at.tzinfo is None:  # as -0000 is read, which means UTC
        at = at.replace(tzinfo=UTC)
    return max(0.0, at.timestamp() - now)


class _Bearer(AuthBase):
    """The key as a header. As `auth`, or requests would put ~/.netrc's password in its place."""

    def __init__(self, api_key: str | None) -> None:
        self._api_key = api_key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._api_key:
            # Headers go out as Latin-1; this way any key goes out as UTF-8.
            header = f"Bearer {self._api_key}".encode().decode("latin-1")
            request.headers["Authorization"] = header
        return request
