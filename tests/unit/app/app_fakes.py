"""A front door whose database, queue and workers are values in this process."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from flask.testing import FlaskClient

from app.admission import Seats
from app.context_service import ContextService
from app.factory import create_app
from app.feedback_service import FeedbackService
from app.ingest_service import IngestService
from app.job_service import JobService
from app.record_service import RecordService
from app.service import Service
from app.wiring import FrontDoor
from tests.unit.core.job_fakes import World
from workers.deadline import Deadline
from workers.errors import IngestNotFound, PoimenError, QueueUnavailable
from workers.model import (
    Answer,
    Context,
    Feedback,
    Frozen,
    Level,
    NodeKey,
    Opened,
    Outcome,
    Principal,
    ProjectName,
    Query,
    Sending,
    Served,
    Silence,
)
from workers.pipeline.context import arrange
from workers.pipeline.merge import finalize, fold
from workers.ports import Accepted, IngestSubmission
from workers.store.ingest_jobs import PostgresIngestJobs
from workers.store.keys import PostgresKeys
from workers.store.models import PostgresModels
from workers.store.projects import PostgresProjects

EVERYTHING = Principal("all", "everything", True, None)
READER = Principal("reader", "reader", False, None)
POIMEN_ONLY = Principal("poimen", "poimen only", True, frozenset({"poimen"}))
KEYS = {"pmk_all": EVERYTHING, "pmk_reader": READER, "pmk_poimen": POIMEN_ONLY}
CREATED = datetime(2026, 7, 21, 9, 0, tzinfo=UTC)


@dataclass
class FakeProjects:
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def find_projects(
        self,
        principal: Principal,
        levels: Sequence[Level],
        deadline: Deadline,
        among: Sequence[ProjectName] | None = None,
    ) -> dict[ProjectName, int]:
        reached = {name for name in self.rows if principal.may_reach(name)}
        found = sorted(reached if among is None else reached.intersection(among))
        return {name: sum(self.rows[name][level.lower()] for level in levels) for name in found}

    def list_projects(
        self, principal: Principal, deadline: Deadline, only: ProjectName | None = None
    ) -> list[dict[str, Any]]:
        names = [only] if only else self.find_projects(principal, (), deadline)
        return [self.rows[name] for name in names]

    def save_project(
        self,
        project: ProjectName,
        title: str | None,
        roots: Sequence[str],
        semantic_weight: float | None = None,
    ) -> None:
        self.rows[project] = {
            "project": project,
            "title": title,
            "roots": list(roots),
            "semantic_weight": semantic_weight,
            "created_at": CREATED,
            "l0": 0,
            "l1": 0,
            "l2": 0,
        }


@dataclass
class FakeJobs:
    saved: dict[UUID, Mapping[str, Any]] = field(default_factory=dict)

    def submit(self, submission: IngestSubmission) -> Accepted:
        self.saved[submission.id] = submission.payload or {"files": submission.files}
        return Accepted(submission.id)

    def list_jobs(
        self,
        principal: Principal,
        statuses: Sequence[str] | None,
        before: tuple[datetime, str] | None,
        limit: int,
    ) -> list[dict[str, Any]]:
        return [self.load_job(job_id, principal) for job_id in self.saved][:limit]

    def cancel(self, job_id: UUID, principal: Principal) -> bool:
        return job_id in self.saved

    def retry_ended(self, job_id: UUID, principal: Principal) -> bool:
        return False

    def load_job(self, job_id: UUID, principal: Principal) -> dict[str, Any]:
        if job_id not in self.saved:
            raise IngestNotFound(f"No ingest job {job_id}.")
        return {
            "id": job_id,
            "status": "queued",
            "project": None,
            "format": "nodes",
            "attempts": 0,
            "error_code": None,
            "error_message": None,
            "progress_done": 0,
            "progress_total": 1,
            "files": [],
            "stage": None,
            "created_at": CREATED,
            "started_at": None,
            "heartbeat_at": None,
            "finished_at": None,
        }


class FakeKeys:
    def find_principal(self, key: str, deadline: Deadline) -> Principal | None:
        return KEYS.get(key)


class Queries:
    """Queries' state, and the workers that answer as soon as a search is sent."""

    def __init__(self, answer: Callable[[ProjectName], Outcome | None]) -> None:
        self.answer = answer
        self.is_queue_down = False
        self.is_forgetful = False
        self.waiting = 0
        self.sent: list[tuple[str, list[ProjectName], Query, float]] = []
        self.ingested: list[str] = []
        self.waited: list[float] = []
        self._asked: dict[str, tuple[tuple[ProjectName, ...], int]] = {}
        self._answers: dict[str, Answer] = {}

    def open(
        self,
        query_id: str,
        projects: Sequence[ProjectName],
        documents: Sequence[int],
        limit: int,
        timeout_s: float,
    ) -> Opened:
        self._asked[query_id] = (tuple(projects), limit)
        return Opened(self.waiting, 0.0)

    def wait(self, query_id: str, seconds: float) -> None:
        self.waited.append(seconds)

    def search_one(self, query: Query, project: ProjectName, sending: Sending) -> None:
        self._send("one", query, [project], sending.left_s)

    def search_all(self, query: Query, projects: Sequence[ProjectName], sending: Sending) -> None:
        self._send("all", query, list(projects), sending.left_s)

    def ingest(self, job_id: str) -> None:
        if self.is_queue_down:
            raise QueueUnavailable("no broker")
        self.ingested.append(job_id)

    def _send(self, how: str, query: Query, projects: list[ProjectName], left_s: float) -> None:
        if self.is_queue_down:
            raise QueueUnavailable("no broker")
        self.sent.append((how, projects, query, left_s))

    def freeze(self, query_id: str, by: str, silence: Silence) -> Frozen | Answer | None:
        if self.is_forgetful:
            return None
        if query_id in self._answers:
            return self._answers[query_id]
        projects, limit = self._asked[query_id]
        outcomes = {name: outcome for name in projects if (outcome := self.answer(name))}
        return Frozen(projects, limit, by, outcomes, silence)

    def publish(self, query_id: str, answer: Answer) -> Answer:
        return self._answers.setdefault(query_id, answer)


@dataclass
class FakeContexts:
    """What stands beside hits, by their sha256; `error` is what reading it raises."""

    known: dict[str, Context] = field(default_factory=dict)
    error: PoimenError | None = None
    asked: list[tuple[list[NodeKey], int]] = field(default_factory=list)

    def load_contexts(
        self, hits: Sequence[NodeKey], count: int, deadline: Deadline
    ) -> dict[NodeKey, Context]:
        self.asked.append((list(hits), count))
        if self.error is not None:
            raise self.error
        return {key: self.known.get(key[1], Context()) for key in hits}


@dataclass
class FakeServed:
    """What is remembered of answers; `is_away`: Redis does not answer."""

    known: dict[str, Served] = field(default_factory=dict)
    is_away: bool = False

    def save(self, query_id: str, served: Served) -> None:
        self._check()
        self.known[query_id] = served

    def find(self, query_id: str) -> Served | None:
        self._check()
        return self.known.get(query_id)

    def _check(self) -> None:
        if self.is_away:
            raise QueueUnavailable("Redis does not answer")


@dataclass
class FakeFeedback:
    """The last word of each key; `nodes`: where each node is; `rows`: what is to be reported."""

    kept: dict[tuple[str, str, str], Feedback] = field(default_factory=dict)
    nodes: dict[str, ProjectName] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def save(self, feedback: Feedback) -> bool:
        self.kept[feedback.key_id, feedback.query_id, feedback.result_id] = feedback
        return feedback.hit is not None

    def find_project(self, node: str, among: Collection[ProjectName] | None) -> ProjectName | None:
        project = self.nodes.get(node)
        return project if among is None or project in among else None

    def report(self, principal: Principal, **asked: Any) -> list[dict[str, Any]]:
        self.asked.append(asked)
        return self.rows[: asked["limit"]]

    judgements = report


@dataclass
class Door:
    """The application over fakes, and the fakes."""

    projects: FakeProjects
    jobs: FakeJobs
    queries: Queries
    client: FlaskClient
    service: Service
    job_service: JobService
    world: World  # of submitted queries
    contexts: FakeContexts
    served: FakeServed
    feedback: FakeFeedback

    def get(self, path: str, key: str | None = "pmk_all", **options: Any) -> Any:
        return self.client.get(path, headers=credential(key) | options.pop("headers", {}))

    def post(self, path: str, body: Any, key: str | None = "pmk_all") -> Any:
        return self.client.post(path, json=body, headers=credential(key))


def credential(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def make_door(answer: Callable[[ProjectName], Outcome | None], *projects: ProjectName) -> Door:
    known, jobs, queries, world = FakeProjects(), FakeJobs(), Queries(answer), World()
    contexts, served, feedback = FakeContexts(), FakeServed(), FakeFeedback()
    for project in projects:
        known.save_project(project, None, [])
    service = Service(
        projects=known,
        states=queries,
        finalize=lambda query_id, by: finalize(queries, query_id, by),
        searches=queries,
        expected_wait_s=lambda waiting: 0.1 * waiting,
        served=served,
    )
    job_service = JobService(
        projects=known,
        store=world.store,
        states=world.states,
        jobs=world.jobs,
        clock=world.time,
        pause=world.time.advance,
    )
    front = FrontDoor(
        service=service,
        context_service=ContextService(service.ask, contexts, fold, arrange),
        feedback_service=FeedbackService(
            known, served, world.store, feedback, masked=lambda text: text.replace("hunter2", "***")
        ),
        job_service=job_service,
        ingest_service=IngestService(jobs, queries.ingest),
        record_service=cast(RecordService, None),
        queries=Seats(4),
        waits=Seats(1),
        streams=Seats(1),
        keys=cast(PostgresKeys, FakeKeys()),
        database_url="postgresql://user:secret@127.0.0.1:1/none",
        redis_url="redis://:secret@127.0.0.1:1/0",
        max_body_bytes=10_000,
        max_nodes=100_000,
        jobs=cast(PostgresIngestJobs, jobs),
        projects=cast(PostgresProjects, None),
        models=cast(PostgresModels, None),
    )
    client = create_app(front).test_client()
    return Door(
        projects=known,
        jobs=jobs,
        queries=queries,
        client=client,
        service=service,
        job_service=job_service,
        world=world,
        contexts=contexts,
        served=served,
        feedback=feedback,
    )
