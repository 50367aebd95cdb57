"""The HTTP client of the service: what the command line speaks through."""

import ipaddress
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

import requests
from urllib3.exceptions import ProtocolError

if TYPE_CHECKING:
    from config.settings import Settings

CONNECT_S = 3.0
READ_S = 30.0  # for everything but a query, whose own timeout decides
GRACE_S = 5.0  # a query's answer may travel this long past its timeout
JOB_READ_S = 10.0  # jobs are answered at once, or when the wait that was asked for is over
LONGEST_JOB_WAIT_S = 25  # that one look at a job may last

UPLOAD_READ_S = 60.0  # files are stored before they are accepted
EXPORT_READ_S = 60.0  # from one part of an export to the next

SUBMIT_ATTEMPTS, SUBMIT_PATIENCE_S = 5, 30.0
LOST_ANSWER_PAUSE_S = 1.0
TRY_LATER = (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
JOBS = "/memory/query/jobs"
FEEDBACK = "/memory/query/feedback"
INGEST = "/memory/ingest"
JSON_LINES = "application/x-ndjson"
_EXPORT_PIECE = 2**20  # bytes

Body = dict[str, Any]
File = tuple[str, bytes]
"""A file that is handed over: its name and its content."""


class ClientError(Exception):
    """The service answered, and the answer is a problem."""

    def __init__(self, problem: Body, status: int, retry_after_s: float | None = None) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        self.problem = problem
        self.status = status
        self._retry_after_s = retry_after_s

    @property
    def retry_after_s(self) -> float | None:
        """After how long the same request may succeed; None: not by waiting."""
        return self._retry_after_s if self.status in TRY_LATER else None


class Unreachable(Exception):
    """Nothing at this address answers, or not in time."""

    def __init__(
        self, url: str, reason: str = "does not answer", *, was_asked: bool = False
    ) -> None:
        super().__init__(f"{url} {reason}")
        self.url = url
        self.reason = reason
        self.was_asked = was_asked  # it may have done what it was asked; only its answer is lost


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
        semantic_weight: float | None = None,
        filters: Mapping[str, Any] | None = None,
        facets: bool | None = None,
        explain: bool = False,
        context_chunks: int | None = None,
        max_tokens: int | None = None,
    ) -> Body:
        """Ask a question of the named projects, or of every permitted one if none is named.

        context_chunks: have each result between so many neighbours on each side; None: alone.
        max_tokens: of all texts of results in context; None: no limit.
        """
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
        if semantic_weight is not None:
            parameters["semantic_weight"] = f"{semantic_weight:f}"
        if filters:
            parameters["filters"] = json.dumps(filters)
        if facets is not None:
            parameters["facets"] = "true" if facets else "false"
        if explain:
            parameters["explain"] = "true"
        path = "/memory/query"
        if context_chunks is not None:
            path = "/memory/query/with-context"
            parameters["context_chunks"] = str(context_chunks)
            if max_tokens is not None:
                parameters["max_tokens"] = str(max_tokens)
        return self._ask("GET", path, parameters=parameters, read_s=timeout_seconds + GRACE_S)

    def give_feedback(
        self,
        query_id: str,
        result_id: str,
        *,
        relevant: bool | None = None,
        rating: int | None = None,
        feedback_text: str | None = None,
        query_text: str | None = None,
    ) -> Body:
        """Say how good a result of an answer is; said again, it takes the place of what was said.

        query_text: the question, for when the answer is not known there any more.
        """
        said = {
            "query_id": query_id,
            "result_id": result_id,
            "relevant": relevant,
            "rating": rating,
            "feedback_text": feedback_text,
            "query_text": query_text,
        }
        body = {name: value for name, value in said.items() if value is not None}
        return self._ask("POST", FEEDBACK, body=body)

    def list_doubtful(
        self,
        *,
        project: str | None = None,
        about: str | None = None,
        keys: int = 2,
        page_size: int = 100,
    ) -> Iterator[Body]:
        """Results called irrelevant by so many keys, and those that are gone; newest first."""
        parameters = {"limit": str(page_size), "keys": str(keys)}
        parameters |= {} if project is None else {"project": project}
        parameters |= {} if about is None else {"about": about}
        yield from self._pages(FEEDBACK, "results", parameters)

    def list_judgements(
        self, *, project: str | None = None, page_size: int = 100
    ) -> Iterator[Body]:
        """What was said of results that are still there, one by one; newest first."""
        parameters = {"limit": str(page_size)}
        parameters |= {} if project is None else {"project": project}
        yield from self._pages(f"{FEEDBACK}/judgements", "judgements", parameters)

    def submit_job(
        self,
        text: str,
        *,
        projects: Sequence[str] = (),
        levels: Sequence[str] = (),
        limit: int = 5,
        timeout_seconds: int = 60,
        method: str = "auto",
        semantic_weight: float | None = None,
        filters: Mapping[str, Any] | None = None,
        facets: bool | None = None,
        explain: bool = False,
    ) -> Body:
        """Have a question answered in the background; the job's document names its id.

        A service that asks to come back later is asked again for up to SUBMIT_PATIENCE_S, and so
        is one whose answer was lost: it knows the submission again and does not do it twice.
        """
        body: Body = {
            "query": text,
            "limit": limit,
            "timeout_seconds": timeout_seconds,
            "method": method,
            "explain": explain,
        }
        if projects:
            body["projects"] = list(projects)
        if levels:
            body["level"] = list(levels)
        if semantic_weight is not None:
            body["semantic_weight"] = semantic_weight
        if filters:
            body["filters"] = dict(filters)
        if facets is not None:
            body["facets"] = facets
        return self._ask_once("POST", JOBS, body=body)

    def show_job(self, job_id: str, *, wait_seconds: int = 0, since: int | None = None) -> Body:
        """A job's document, with what has been found so far.

        `wait_seconds`: wait this long for the job's end, or for a revision later than `since`.
        """
        wait_seconds = min(wait_seconds, LONGEST_JOB_WAIT_S)
        parameters: dict[str, str] = {}
        if wait_seconds:
            parameters["wait_seconds"] = str(wait_seconds)
        if since is not None:
            parameters["since"] = str(since)
        return self._ask(
            "GET", _job(job_id), parameters=parameters, read_s=wait_seconds + JOB_READ_S
        )

    def list_jobs(self, *, status: str | None = None, page_size: int = 100) -> Iterator[Body]:
        """One's own jobs, newest first; pages are fetched as they are needed."""
        yield from self._pages(JOBS, "jobs", _page_of(status, page_size))

    def stop_job(self, job_id: str) -> Body:
        """End a job now and keep what it found; an ended one stays as it is."""
        return self._ask("POST", f"{_job(job_id)}/stop", read_s=JOB_READ_S)

    def cancel_job(self, job_id: str) -> Body:
        """End a job now and keep nothing; an ended one stays as it is."""
        return self._ask(
            "DELETE", _job(job_id), parameters={"if_running": "true"}, read_s=JOB_READ_S
        )

    def remove_job(self, job_id: str) -> None:
        """Remove a job with what it found; if it still runs, cancel it."""
        self._ask("DELETE", _job(job_id), read_s=JOB_READ_S)

    def list_projects(self) -> list[Body]:
        """Every permitted project, with its root folders and node counts."""
        found: list[Body] = self._ask("GET", "/memory/projects")["projects"]
        return found

    def add_project(
        self,
        project: str,
        *,
        title: str | None = None,
        roots: Sequence[str] = (),
        semantic_weight: float | None = None,
    ) -> Body:
        """Create a project, or add what is new about one that is there."""
        body: Body = {"project": project, "roots": list(roots)}
        if title is not None:
            body["title"] = title
        if semantic_weight is not None:
            body["semantic_weight"] = semantic_weight
        return self._ask("POST", "/memory/projects", body=body)

    def submit_ingest(
        self, nodes: Sequence[Mapping[str, Any]], *, project: str | None = None
    ) -> Body:
        """Hand nodes over for storing; `project` holds for those that name none themselves.

        What was handed over before is taken in again, and then found to be unchanged. Patience is
        that of `submit_job`.
        """
        body: Body = {"format": "nodes", "nodes": list(nodes)}
        if project is not None:
            body["project"] = project
        return self._ask_once("POST", INGEST, body=body, read_s=UPLOAD_READ_S)

    def submit_files(
        self, files: Sequence[File], *, form: str = "auto", project: str | None = None
    ) -> Body:
        """Hand files over for storing; without a project, sessions go by the folder they worked in.

        Otherwise as `submit_ingest`.
        """
        fields = {"format": form} | ({} if project is None else {"project": project})
        parts = [("files", file) for file in files]
        return self._ask_once("POST", INGEST, data=fields, files=parts, read_s=UPLOAD_READ_S)

    def show_ingest(self, job_id: str) -> Body:
        """The state of one ingest job."""
        return self._ask("GET", _ingest_job(job_id))

    def list_ingest(self, *, status: str | None = None, page_size: int = 100) -> Iterator[Body]:
        """One's own ingest jobs, newest first; pages are fetched as they are needed."""
        yield from self._pages(INGEST, "jobs", _page_of(status, page_size))

    def cancel_ingest(self, job_id: str) -> Body:
        """End an ingest job now; what it has stored stays, and so does a job that had ended."""
        return self._ask("DELETE", _ingest_job(job_id))

    def retry_ingest(self, job_id: str) -> Body:
        """Try again what failed of an ingest job for a reason that may have passed."""
        return self._ask("POST", f"{_ingest_job(job_id)}/retry")

    def list_sources(self, project: str) -> Iterator[Body]:
        """The sessions and documents of a project, by name; pages are fetched as needed."""
        parameters: dict[str, str] = {}
        while True:
            page = self._ask("GET", f"{_project(project)}/sources", parameters=parameters)
            yield from page["sources"]
            if not page.get("next_after"):
                return
            parameters = {"after": page["next_after"]}

    def list_nodes(self, project: str, prefix: str) -> Body:
        """The `nodes` whose sha256 begins so, and whether there are more of them."""
        path = f"/memory/nodes/{quote(project, safe='')}"
        return self._ask("GET", path, parameters={"prefix": prefix})

    def forget_node(self, project: str, sha256: str) -> int:
        """Forget a node and the notes that rest on it alone; returns how many nodes went."""
        path = f"/memory/nodes/{quote(project, safe='')}/{quote(sha256, safe='')}"
        return self._forget(path)

    def forget_source(self, project: str, source: str) -> int:
        """Forget what a session or document brought; returns how many nodes went."""
        return self._forget(f"{_project(project)}/sources", {"source": source})

    def forget_project(self, project: str) -> int:
        """Forget a project with everything in it; returns how many nodes went."""
        return self._forget(_project(project))

    def export(self, project: str) -> Iterator[bytes]:
        """The lines of a project's export as they come, each with its line end.

        Whether the last one says that the export is whole is for the caller to see.
        """
        path = f"{_project(project)}/export"
        with self._send("GET", path, read_s=EXPORT_READ_S, stream=True) as response:
            if not response.ok:
                _read(response, ())
            rest = b""
            try:
                for piece in response.iter_content(_EXPORT_PIECE):
                    lines = (rest + piece).splitlines(keepends=True)
                    rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
                    yield from lines
            except requests.RequestException as error:
                raise Unreachable(self.url, "broke off in the midst of it") from error
            if rest:
                yield rest

    def import_lines(self, project: str, data: bytes) -> Body:
        """Hand the lines of an export over for storing; patience is that of `submit_job`."""
        path = f"{_project(project)}/import"
        return self._ask_once("POST", path, data=data, kind=JSON_LINES, read_s=UPLOAD_READ_S)

    def ready(self) -> Body:
        """The state of each dependency, whether or not the service calls itself ready."""
        return self._ask("GET", "/health/ready", accepted=(503,))

    def _pages(self, path: str, name: str, parameters: Mapping[str, str]) -> Iterator[Body]:
        """What is listed under this name, page by page."""
        cursor: dict[str, str] = {}
        while True:
            page = self._ask("GET", path, parameters={**parameters, **cursor}, read_s=JOB_READ_S)
            yield from page[name]
            if not page.get("next_cursor"):
                return
            cursor = {"cursor": page["next_cursor"]}

    def _forget(self, path: str, parameters: Mapping[str, str] | None = None) -> int:
        gone: int = self._ask("DELETE", path, parameters=parameters)["nodes"]
        return gone

    def _ask_once(
        self,
        verb: str,
        path: str,
        *,
        read_s: float = JOB_READ_S,
        kind: str | None = None,
        **sent: Any,
    ) -> Body:
        """Ask until there is an answer, for something that must not happen twice.

        kind: the media type of `data`.
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        headers |= {} if kind is None else {"Content-Type": kind}
        give_up_at = time.monotonic() + SUBMIT_PATIENCE_S
        attempts_left, is_lost = SUBMIT_ATTEMPTS, False
        while True:
            attempts_left -= 1
            try:
                return self._ask(verb, path, headers=headers, read_s=read_s, **sent)
            except ClientError as error:
                failure: Exception = error
                pause_s = error.retry_after_s
            except Unreachable as error:
                # One that was never there is told at once; one that went away may come back.
                failure = error
                is_lost = is_lost or error.was_asked
                pause_s = LOST_ANSWER_PAUSE_S if is_lost else None
            if not attempts_left or pause_s is None or time.monotonic() + pause_s > give_up_at:
                raise failure
            time.sleep(pause_s)

    def _ask(self, verb: str, path: str, *, accepted: tuple[int, ...] = (), **sent: Any) -> Body:
        return _read(self._send(verb, path, **sent), accepted)

    def _send(
        self,
        verb: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: Body | None = None,
        data: Mapping[str, str] | bytes | None = None,
        files: Sequence[tuple[str, File]] | None = None,
        headers: Mapping[str, str] | None = None,
        read_s: float = READ_S,
        stream: bool = False,
    ) -> requests.Response:
        try:
            return self._session.request(
                verb,
                self.url + path,
                params=parameters,
                json=body,
                data=data,
                files=files,
                headers=headers,
                timeout=(CONNECT_S, read_s),
                stream=stream,
            )
        except requests.ReadTimeout as error:
            reason = f"did not answer within {read_s:g} s"
            raise Unreachable(self.url, reason, was_asked=True) from error
        except requests.RequestException as error:
            raise Unreachable(self.url, was_asked=_was_asked(error)) from error


def _page_of(status: str | None, size: int) -> dict[str, str]:
    return {"limit": str(size)} | ({} if status is None else {"status": status})


class _Bearer(requests.auth.AuthBase):
    def __init__(self, api_key: str | None) -> None:
        self._api_key = api_key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._api_key is not None:
            request.headers["Authorization"] = f"Bearer {self._api_key}"
        return request


def _was_asked(error: requests.RequestException) -> bool:
    """Whether a connection broke that had been made, so that the request may have arrived."""
    return bool(error.args) and isinstance(error.args[0], ProtocolError)


def _job(job_id: str) -> str:
    return f"{JOBS}/{quote(job_id, safe='')}"


def _ingest_job(job_id: str) -> str:
    return f"{INGEST}/{quote(job_id, safe='')}"


def _project(project: str) -> str:
    return f"/memory/projects/{quote(project, safe='')}"


def _read(response: requests.Response, accepted: tuple[int, ...]) -> Body:
    """The JSON object of an answer; empty where the answer is to have no content.

    Raises:
        ClientError: the answer is a problem, or no JSON object at all (a proxy's page, say).
    """
    if response.status_code == HTTPStatus.NO_CONTENT:
        return {}
    try:
        body = response.json()
    except requests.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise ClientError(_not_ours(response), response.status_code)
    is_problem = "problem+json" in response.headers.get("Content-Type", "")
    if response.ok or (response.status_code in accepted and not is_problem):
        return body
    raise ClientError(body, response.status_code, _retry_after_s(response))


def _retry_after_s(response: requests.Response) -> float | None:
    """What Retry-After says, when it says seconds as this service does."""
    said = response.headers.get("Retry-After", "")
    return float(said) if said.isascii() and said.isdigit() else None


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
