"""The HTTP client's jobs: what is sent, and what a submission does when the service is away."""

from collections.abc import Iterator

import pytest

from app.client import Client, ClientError, Unreachable
from tests.unit.cli.canned import JOB_ID, Answer, CannedService, job, problem

SUBMIT = "POST /memory/query/jobs"
LIST = "GET /memory/query/jobs"
JOB = f"GET /memory/query/jobs/{JOB_ID}"


@pytest.fixture
def service() -> Iterator[CannedService]:
    canned = CannedService()
    yield canned
    canned.stop()


@pytest.fixture
def client(service: CannedService) -> Client:
    return Client(service.url, "pk_1")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was paused for, without the pausing."""
    found: list[float] = []
    monkeypatch.setattr("app.client.time.sleep", found.append)
    return found


def in_turn(service: CannedService, route: str, *answers: Answer) -> None:
    turns = iter(answers)
    service.answers[route] = lambda said: next(turns)


def keys(service: CannedService) -> list[str]:
    return [headers["Idempotency-Key"] for headers in service.headers]


def test_a_submission_carries_all_that_was_asked_and_a_key_of_its_own(
    service: CannedService, client: Client
) -> None:
    service.answers[SUBMIT] = 202, job("queued")

    accepted = client.submit_job(
        "why?",
        projects=["poimen", "atlas"],
        levels=["L1"],
        limit=7,
        timeout_seconds=300,
        method="semantic",
        explain=True,
    )
    client.submit_job("why?")

    assert accepted["id"] == JOB_ID
    assert service.said_to(SUBMIT)[0] == {
        "query": "why?",
        "projects": ["poimen", "atlas"],
        "level": ["L1"],
        "limit": 7,
        "timeout_seconds": 300,
        "method": "semantic",
        "explain": True,
    }
    assert "projects" not in service.said_to(SUBMIT)[1]
    assert len(set(keys(service))) == 2


@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "too_many_jobs"), (503, "overloaded"), (409, "idempotency_in_progress")],
)
def test_a_service_that_says_when_is_asked_again_then_with_the_same_key(
    service: CannedService, client: Client, pauses: list[float], status: int, code: str
) -> None:
    busy: Answer = status, problem(status, code), {"Retry-After": "3"}
    in_turn(service, SUBMIT, busy, busy, (202, job("queued")))

    assert client.submit_job("why?")["id"] == JOB_ID
    assert pauses == [3.0, 3.0]
    assert len(keys(service)) == 3
    assert len(set(keys(service))) == 1


def test_a_service_that_stays_busy_is_given_up(
    service: CannedService, client: Client, pauses: list[float]
) -> None:
    service.answers[SUBMIT] = 503, problem(503, "overloaded"), {"Retry-After": "1"}

    with pytest.raises(ClientError) as caught:
        client.submit_job("why?")

    assert caught.value.problem["error"] == "overloaded"
    assert len(service.asked) == len(pauses) + 1 == 5


@pytest.mark.parametrize(
    "answer",
    [
        (429, problem(429, "too_many_jobs"), {"Retry-After": "3600"}),
        (503, problem(503, "queue_unavailable")),
        (503, problem(503, "queue_unavailable"), {"Retry-After": "soon"}),
        (422, problem(422, "idempotency_conflict"), {"Retry-After": "1"}),
    ],
)
def test_what_waiting_does_not_mend_soon_is_told_at_once(
    service: CannedService, client: Client, pauses: list[float], answer: Answer
) -> None:
    service.answers[SUBMIT] = answer

    with pytest.raises(ClientError):
        client.submit_job("why?")

    assert (len(service.asked), pauses) == (1, [])


def test_a_lost_answer_is_asked_for_again_with_the_same_key(
    service: CannedService, client: Client, pauses: list[float]
) -> None:
    in_turn(service, SUBMIT, (0, None), (202, job("queued")))

    assert client.submit_job("why?")["id"] == JOB_ID
    assert len(pauses) == 1
    assert len(set(keys(service))) == 1


def test_a_service_that_went_away_with_the_answer_is_given_time_to_come_back(
    service: CannedService, client: Client, pauses: list[float]
) -> None:
    def go_away(said: object) -> Answer:
        service.stop()
        return 0, None

    service.answers[SUBMIT] = go_away

    with pytest.raises(Unreachable):
        client.submit_job("why?")

    assert len(service.asked) == 1
    assert len(pauses) == 4


def test_a_service_that_never_was_there_is_told_at_once(pauses: list[float]) -> None:
    with pytest.raises(Unreachable):
        Client("http://127.0.0.1:1", None).submit_job("why?")

    assert pauses == []


def test_a_look_may_wait_for_a_later_revision(service: CannedService, client: Client) -> None:
    service.answers[JOB] = 200, job("running")

    client.show_job(JOB_ID)
    client.show_job(JOB_ID, wait_seconds=60, since=4)

    assert service.said_to(JOB) == [{}, {"wait_seconds": "25", "since": "4"}]


def test_jobs_are_listed_over_all_pages_and_no_page_is_fetched_early(
    service: CannedService, client: Client
) -> None:
    in_turn(
        service,
        LIST,
        (200, {"jobs": [{"id": "a"}, {"id": "b"}], "next_cursor": "x+/="}),
        (200, {"jobs": [], "next_cursor": "y"}),
        (200, {"jobs": [{"id": "c"}], "next_cursor": None}),
    )

    jobs = client.list_jobs(status="ended", page_size=2)
    first = next(jobs)

    assert len(service.asked) == 1
    assert [found["id"] for found in (first, *jobs)] == ["a", "b", "c"]
    asked = {"limit": "2", "status": "ended"}
    assert service.said_to(LIST) == [asked, asked | {"cursor": "x+/="}, asked | {"cursor": "y"}]


def test_stopping_cancelling_and_removing_are_three_requests(
    service: CannedService, client: Client
) -> None:
    stop, delete = f"{SUBMIT}/{JOB_ID}/stop", f"DELETE /memory/query/jobs/{JOB_ID}"
    service.answers[stop] = 200, job("partial")
    service.answers[delete] = lambda said: (200, job("cancelled")) if said else (204, "")

    assert client.stop_job(JOB_ID)["status"] == "partial"
    assert client.cancel_job(JOB_ID)["status"] == "cancelled"
    client.remove_job(JOB_ID)

    assert service.said_to(stop) == [None]
    assert service.said_to(delete) == [{"if_running": "true"}, {}]


def test_an_id_stays_one_part_of_the_address(service: CannedService, client: Client) -> None:
    with pytest.raises(ClientError):
        client.show_job("a/../b?c#d")

    assert service.asked == [("GET /memory/query/jobs/a%2F..%2Fb%3Fc%23d", {})]
