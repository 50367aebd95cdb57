"""HTTP requests to a service that is being tried: how each was answered, and how late."""

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any

import requests

LATE_S = 0.5  # that an answer may come after its timeout
PATIENCE_S = 10.0  # that an answer is waited for after its timeout
# The server closes a connection that lay idle; a request sent at that moment would get no answer.
IDLE_S = 1.0
JOBS = "/memory/query/jobs"

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and what came of it."""

    kind: str
    at_s: float  # when it was sent, on the monotonic clock
    took_s: float
    within_s: float  # in which it should be answered
    status: int  # 0: there was no answer
    error: str | None = None  # the code of a problem; without an answer, what happened instead
    retry_after_s: float | None = None
    request_id: str | None = None
    body: Body = field(default_factory=dict, repr=False)

    @property
    def is_answered(self) -> bool:
        return self.status > 0

    @property
    def has_failed(self) -> bool:
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR

    @property
    def late_s(self) -> float:
        """How much after its timeout it was answered; 0 if before."""
        return max(0.0, self.took_s - self.within_s) if self.is_answered else 0.0

    def as_sample(self) -> Body:
        """As a line of raw samples: everything but what was answered."""
        return {name: value for name, value in asdict(self).items() if name != "body"}


class Calls:
    """What all clients together were answered. Safe to share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: list[Call] = []

    def add(self, call: Call) -> None:
        with self._lock:
            self._made.append(call)

    def made(self) -> list[Call]:
        with self._lock:
            return list(self._made)


class Caller:
    """One client with a connection of its own. No answer, or a bad one, is a result here."""

    def __init__(self, url: str, api_key: str, calls: Calls) -> None:
        self._url = url
        self._calls = calls
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Authorization"] = f"Bearer {api_key}"
        self._used_at = time.monotonic()

    def call(
        self,
        kind: str,
        verb: str,
        path: str,
        within_s: float,
        *,
        parameters: Mapping[str, str | int] | None = None,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Call:
        """Ask once, and remember how it was answered."""
        began = time.monotonic()
        if began - self._used_at > IDLE_S:
            self._session.close()
        response: requests.Response | None = None
        error: str | None = None
        try:
            response = self._session.request(
                verb,
                self._url + path,
                params=parameters,
                json=body,
                headers=headers,
                timeout=within_s + PATIENCE_S,
            )
        except requests.RequestException as failure:
            error = type(failure).__name__
        self._used_at = time.monotonic()
        call = _call(kind, began, self._used_at - began, within_s, response, error)
        self._calls.add(call)
        return call


def _call(
    kind: str,
    at_s: float,
    took_s: float,
    within_s: float,
    response: requests.Response | None,
    error: str | None,
) -> Call:
    if response is None:
        return Call(kind, at_s, took_s, within_s, 0, error)
    body = _json(response)
    if response.status_code >= HTTPStatus.BAD_REQUEST:
        error = str(body.get("error", "not_a_problem"))
    retry_after = response.headers.get("Retry-After", "")
    return Call(
        kind,
        at_s,
        took_s,
        within_s,
        response.status_code,
        error,
        float(retry_after) if retry_after.isdigit() else None,
        response.headers.get("X-Request-Id"),
        body,
    )


def _json(response: requests.Response) -> Body:
    try:
        said = response.json()
    except requests.JSONDecodeError:
        return {}
    return said if isinstance(said, dict) else {}
