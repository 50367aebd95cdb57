"""The HTTP client of the service: what the command line speaks through."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import requests

if TYPE_CHECKING:
    from config.settings import Settings

CONNECT_S = 3.0
READ_S = 30.0  # for everything but a query, whose own timeout decides
GRACE_S = 5.0  # a query's answer may travel this long past its timeout

Body = dict[str, Any]


class ClientError(Exception):
    """The service answered, and the answer is a problem."""

    def __init__(self, problem: Body, status: int) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        self.problem = problem
        self.status = status


class Unreachable(Exception):
    """Nothing at this address answers, or not in time."""

    def __init__(self, url: str, reason: str = "does not answer") -> None:
        super().__init__(f"{url} {reason}")
        self.url = url
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Service:
    """Where the service is, what to present there, and who said so."""

    url: str
    api_key: str | None
    found_in: str


def find_service(settings: "Settings") -> Service | None:
    """The service the settings name, else the one `mem up` left a state file of, else None."""
    given = settings.api_key.get_secret_value() if settings.api_key else None
    if settings.url:
        return Service(settings.url, given, "POIMEN_URL")
    # Only the embedded stack knows the state file's shape, and it is not needed with a URL.
    from app.local.state import read_state

    state = read_state(settings.data_dir)
    if state is None:
        return None
    return Service(
        state.url, given or _read_key(state.key_file), str(settings.data_dir / "state.json")
    )


def _read_key(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError):
        return None  # another account's; the service will say that a key is missing


class Client:
    """One session with the service at `url`. Every method may raise ClientError or Unreachable."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self.url = url.rstrip("/")
        self._session = requests.Session()
        # A proxy of the environment cannot reach this machine's own loopback address.
        self._session.trust_env = not _is_loopback(self.url)
        # Set as `auth`, not as a header: requests would let a ~/.netrc entry replace a header.
        self._session.auth = _Bearer(api_key)

    def query(
        self,
        text: str,
        *,
        projects: Sequence[str] = (),
        levels: Sequence[str] = (),
        limit: int = 5,
        timeout_seconds: int = 5,
        method: str = "auto",
        explain: bool = False,
    ) -> Body:
        """Ask a question of the named projects, or of every permitted one if none is named."""
        parameters: dict[str, str] = {
            "query": text,
            "limit": str(limit),
            "timeout_seconds": str(timeout_seconds),
            "method": method,
        }
        if projects:
            parameters["project" if len(projects) == 1 else "projects"] = ",".join(projects)
        if levels:
            parameters["level"] = ",".join(levels)
        if explain:
            parameters["explain"] = "true"
        return self._ask(
            "GET", "/memory/query", parameters=parameters, read_s=timeout_seconds + GRACE_S
        )

    def list_projects(self) -> list[Body]:
        """Every permitted project, with its root folders and node counts."""
        found: list[Body] = self._ask("GET", "/memory/projects")["projects"]
        return found

    def add_project(
        self, project: str, *, title: str | None = None, roots: Sequence[str] = ()
    ) -> Body:
        """Create a project, or add roots to one that is there."""
        body: Body = {"project": project, "roots": list(roots)}
        if title is not None:
            body["title"] = title
        return self._ask("POST", "/memory/projects", body=body)

    def submit_ingest(
        self, nodes: Sequence[Mapping[str, Any]], *, project: str | None = None
    ) -> Body:
        """Hand nodes over for storing; `project` holds for those that name none themselves."""
        body: Body = {"format": "nodes", "nodes": list(nodes)}
        if project is not None:
            body["project"] = project
        return self._ask("POST", "/memory/ingest", body=body)

    def show_ingest(self, job_id: str) -> Body:
        """The state of one ingest job."""
        return self._ask("GET", f"/memory/ingest/{job_id}")

    def ready(self) -> Body:
        """The state of each dependency, whether or not the service calls itself ready."""
        return self._ask("GET", "/health/ready", accepted=(503,))

    def _ask(
        self,
        verb: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: Body | None = None,
        read_s: float = READ_S,
        accepted: tuple[int, ...] = (),
    ) -> Body:
        try:
            response = self._session.request(
                verb,
                self.url + path,
                params=parameters,
                json=body,
                timeout=(CONNECT_S, read_s),
            )
        except requests.ReadTimeout as error:
            raise Unreachable(self.url, f"did not answer within {read_s:g} s") from error
        except requests.RequestException as error:
            raise Unreachable(self.url) from error
        return _read(response, accepted)


class _Bearer(requests.auth.AuthBase):
    def __init__(self, api_key: str | None) -> None:
        self._api_key = api_key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._api_key is not None:
            request.headers["Authorization"] = f"Bearer {self._api_key}"
        return request


def _read(response: requests.Response, accepted: tuple[int, ...]) -> Body:
    """The JSON object of an answer.

    Raises:
        ClientError: the answer is a problem, or no JSON object at all (a proxy's page, say).
    """
    try:
        body = response.json()
    except requests.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise ClientError(_not_ours(response), response.status_code)
    is_problem = "problem+json" in response.headers.get("Content-Type", "")
    if response.ok or (response.status_code in accepted and not is_problem):
        return body
    raise ClientError(body, response.status_code)


def _not_ours(response: requests.Response) -> Body:
    address = without_password(response.url.split("?")[0])
    detail = f"Is {address} this service's address? Check POIMEN_URL."
    if response.status_code == HTTPStatus.REQUEST_URI_TOO_LONG:
        detail = f"What answers at {address} takes no question of this length: shorten it."
    elif response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        detail = f"What answers at {address} is not the service, or cannot reach it. {detail}"
    return {
        "type": "about:blank",
        "title": f"HTTP {response.status_code} without a JSON answer",
        "status": response.status_code,
        "detail": detail,
        "error": "unexpected_answer",
        "request_id": response.headers.get("X-Request-Id"),
    }


def without_password(url: str) -> str:
    """An address as it may be shown."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"***@{host}"))


def is_private(url: str) -> bool:
    """Whether nobody on the way can read what is sent: by encryption, or for want of a way."""
    return urlsplit(url).scheme == "https" or _is_loopback(url)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
