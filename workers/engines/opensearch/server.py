"""Calls to OpenSearch: bounded in time, ended by a cut, and not made while it fails.

What they raise is fit to be shown: neither a credential nor a word is in it, nor in the log.
"""

import base64
import math
from collections.abc import Callable
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from opensearchpy import OpenSearch, RequestsHttpConnection
from opensearchpy.exceptions import (
    ConnectionError as NoConnection,
)
from opensearchpy.exceptions import (
    ConnectionTimeout,
    SerializationError,
    TransportError,
)
from redis import Redis
from requests.auth import AuthBase

from workers.deadline import Deadline
from workers.engines.breaker import CircuitBreaker, Open
from workers.engines.endable_calls import EndableAdapter, within
from workers.engines.http_calls import FAIR_S, host_of, server_key
from workers.errors import DeadlineExceeded, LexicalEngineUnavailable

QUESTIONS, WRITES = "opensearch", "opensearch-writes"  # each with a circuit of its own
OLDEST = (3, 0)  # before, scores had another factor

T = TypeVar("T")


class SearchServer:
    """One address of OpenSearch, shared by all threads of a process.

    Workers share what they learn of a server that fails: a circuit, by which the next question need
    not find it out again.
    """

    def __init__(
        self,
        url: str,
        user: str | None = None,
        password: str | None = None,
        *,
        kind: str = QUESTIONS,
        connections: int = 8,
        client: Redis | None = None,
    ) -> None:
        """
        Args:
            user, password: of the service, for calls that bring no credential of their own.
            kind: of its calls: what writes meet is not held against questions.
            connections: that are kept open.
            client: what workers share; None: every call is made.
        """
        parts = urlsplit(url)
        self._host = host_of(url)
        self._breaker = CircuitBreaker(client, server_key(kind, url))
        self._client = OpenSearch(
            hosts=[
                {
                    "host": parts.hostname,
                    "port": parts.port or (443 if parts.scheme == "https" else 80),
                    "use_ssl": parts.scheme == "https",
                    "url_prefix": parts.path.strip("/"),
                }
            ],
            http_auth=_Credential(user, password),
            verify_certs=True,
            connection_class=_Connection,
            pool_maxsize=connections,
            max_retries=1,  # a connection that lay idle may be broken; a time-out is not repeated
            retry_on_status=(),
        )

    def ask(self, call: Callable[[OpenSearch, float], T], deadline: Deadline) -> T:
        """What `call` makes of the client and the seconds it has. A cut closes its connection.

        Raises:
            DeadlineExceeded: the deadline came first, or the cut.
            LexicalEngineUnavailable: the server failed, refused, or did lately and was not asked.
        """
        seconds = deadline.remaining()
        if seconds <= 0:
            raise DeadlineExceeded("No time left for OpenSearch.")
        permit = self._breaker.enter(seconds + 1.0)
        if isinstance(permit, Open):
            raise self.failed(
                "has failed several times and is left alone for"
                f" {math.ceil(permit.retry_after_s)} s; see GET /health/ready"
            )
        is_fault: bool | None = None
        reason = ""
        try:
            answer = within(deadline, seconds, lambda: call(self._client, seconds))
            is_fault = False
        except (TimeoutError, ConnectionTimeout) as error:
            reason = str(self.failed(f"did not answer within {seconds:.2f} s"))
            is_fault = True if seconds >= FAIR_S and not deadline.is_cut else None
            raise DeadlineExceeded("OpenSearch was still searching at the deadline.") from error
        except requests.exceptions.InvalidHeader:
            # Its message, and so the log, would hold the credential.
            raise self.failed("was not asked: the credential holds a line break") from None
        except (NoConnection, SerializationError, TransportError) as error:
            if deadline.is_cut:  # whatever came of it may be the cut's doing
                raise DeadlineExceeded("The search was ended.") from error
            failure, is_fault = self._failure(error)
            reason = str(failure)
            raise failure from error
        finally:
            self._breaker.settle(permit, is_fault, reason)
        return answer

    def refusal(self, status: int) -> LexicalEngineUnavailable:
        """An error for what was answered with this HTTP status."""
        if status in (requests.codes.unauthorized, requests.codes.forbidden):
            what = (
                f"refuses the credential (HTTP {status}); correct POIMEN_OPENSEARCH_USER and"
                " POIMEN_OPENSEARCH_PASSWORD"
            )
        elif status == requests.codes.not_found:
            what = "has no index of this memory; the background worker makes it"
        elif status == requests.codes.too_many_requests:
            what = "takes no more for now (HTTP 429); ask again later"
        else:
            what = f"answered HTTP {status}; see its log"
        return self.failed(what)

    def failed(self, what: str) -> LexicalEngineUnavailable:
        """An error about this server. what: what it did; what to do next."""
        return LexicalEngineUnavailable(f"OpenSearch at {self._host} {what}.")

    def _failure(self, error: Exception) -> tuple[LexicalEngineUnavailable, bool | None]:
        """What to raise, and whether the server is at fault."""
        status = error.status_code if isinstance(error, TransportError) else None
        if isinstance(status, int):
            is_limited = status == requests.codes.too_many_requests
            is_fault = status >= requests.codes.server_error
            return self.refusal(status), None if is_limited else is_fault
        if isinstance(error, NoConnection):
            cause = error.info  # requests' own error, whose kind says more
            what = f"cannot be reached ({type(cause).__name__}); start it, or correct"
            return self.failed(f"{what} POIMEN_OPENSEARCH_URL"), True
        return self.failed("answered something that is not JSON; see POIMEN_OPENSEARCH_URL"), True


def check_version(server: SearchServer, deadline: Deadline) -> str:
    """The server's version, as one line to show.

    Raises:
        DeadlineExceeded, LexicalEngineUnavailable: as any call; it is too old, or no OpenSearch.
    """
    said = server.ask(lambda client, left: client.info(params={"request_timeout": left}), deadline)
    version = said.get("version", {}) if isinstance(said, dict) else {}
    number = str(version.get("number", ""))
    if version.get("distribution") != "opensearch":
        raise server.failed("is no OpenSearch; correct POIMEN_OPENSEARCH_URL")
    if tuple(int(part) for part in number.split(".")[:2]) < OLDEST:
        raise server.failed(f"has version {number}, which is too old: 3.0 or newer is needed")
    return f"OpenSearch {number}"


class _Connection(RequestsHttpConnection):
    """opensearch-py's connection by requests, with connections that another thread can end."""

    def __init__(self, *arguments: Any, pool_maxsize: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        adapter = EndableAdapter(pool_connections=1, pool_maxsize=pool_maxsize, max_retries=0)
        self.session.mount("http://", adapter)
        self.session.mount("https://", adapter)
        # Calls of several callers share the session; no cookie may carry one's identity to another.
        self.session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def perform_request(self, *arguments: Any, **options: Any) -> Any:
        """As it is there, but that a credential never follows a redirect."""
        return super().perform_request(*arguments, **options | {"allow_redirects": False})


class _Credential(AuthBase):
    """The service's own, where a call brings none. As `auth`, or requests would look into ~/.netrc
    for another."""

    def __init__(self, user: str | None, password: str | None) -> None:
        pair = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
        self._header = f"Basic {pair}" if user else None

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._header and "Authorization" not in request.headers:
            request.headers["Authorization"] = self._header
        return request
