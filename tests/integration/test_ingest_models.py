"""Files while the embedding server fails, and what that server is asked."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.callers import Caller
from tests.integration.model_stub import Answer, ModelStub, Reply, embeddings, reply
from tests.integration.service import Service, running, until
from tests.integration.uploads import (
    Files,
    begin,
    check_whole,
    claude,
    counts,
    nodes,
    take,
    take_one,
    texts,
)
from tests.unit.ingest.session_files import PICTURE, cc_user, file_of, said

PAGE = "\n\n".join(f"## Part {n}\n\n{f'reef {n} ' * 60}" for n in range(100)).encode()
SHORT = b"# One\n\nfirst\n\n# Two\n\nsecond\n"


def well(body: dict[str, Any]) -> Reply:
    return embeddings([[1.0, len(text) / 1000, 0.0, 0.5] for text in body["input"]])


def fails_from(request: int) -> Answer:
    """Well until so many requests came, then never again."""
    left = [request]

    def answer(body: dict[str, Any]) -> Reply:
        left[0] -= 1
        return well(body) if left[0] > 0 else reply({"error": "no"}, 500)

    return answer


@pytest.fixture(scope="module")
def running_service() -> Iterator[tuple[Service, ModelStub]]:
    stub = ModelStub(well)
    settings = {
        "POIMEN_EMBEDDING_URL": stub.url,
        "POIMEN_RERANK_URL": stub.url,  # nothing is prepared for the embedded one
        "POIMEN_EMBEDDING_MODEL": "lengths",
        "POIMEN_EMBEDDING_DIMENSION": "4",
        "POIMEN_INGEST_ATTEMPTS": "2",
    }
    with running(**settings) as service:
        yield service, stub
    stub.close()


@pytest.fixture
def service(running_service: tuple[Service, ModelStub]) -> Iterator[Service]:
    service, stub = running_service
    service.empty()
    stub.answer = well
    stub.requests.clear()
    yield service
    stub.free()


@pytest.fixture
def stub(running_service: tuple[Service, ModelStub]) -> ModelStub:
    return running_service[1]


def inputs(stub: ModelStub) -> list[str]:
    return [text for request in stub.requests for text in request["input"]]


def retried(service: Service, job_id: str) -> dict[str, Any]:
    response = service.post(f"/memory/ingest/{job_id}/retry", None)
    assert response.status_code == 202, response.text
    return service.ended(job_id)


def put_back(service: Service, files: Files) -> dict[str, Any]:
    """The job of these files as it is after its first attempt, which failed; it has none more."""
    job_id = begin(service, files, project="p")

    def look() -> dict[str, Any] | None:
        job: dict[str, Any] = service.get(f"/memory/ingest/{job_id}").json()
        return job if job["error"] else None

    job = until(look)
    assert (job["status"], job["attempts"]) == ("queued", 1)
    cancel(service, job_id)
    return job


def cancel(service: Service, job_id: str) -> dict[str, Any]:
    response = Caller(service, service.key).send("DELETE", f"/memory/ingest/{job_id}")
    assert response.status_code == 200, response.text
    job: dict[str, Any] = response.json()
    return job


def test_a_document_that_cannot_be_embedded_to_its_end_is_not_there_at_all(
    service: Service, stub: ModelStub
) -> None:
    stub.answer = fails_from(3)

    job = take(service, {"reef.md": PAGE, "picture.md": b"\x89PNG\r\n\x1a\n\0\0"}, project="p")

    assert (job["status"], job["attempts"]) == ("failed", 2)
    assert job["error"]["code"] == "embedding_service_unavailable"
    assert [f["status"] for f in job["files"]] == ["failed", "failed"]
    assert nodes(service) == []
    stub.answer = well
    job = retried(service, job["id"])
    assert (job["status"], job["attempts"]) == ("partial", 1)
    by_name = {f["name"]: f for f in job["files"]}
    assert by_name["reef.md"]["status"] == "completed"
    assert by_name["reef.md"]["stored"] == len(nodes(service)) > 100
    again = service.post(f"/memory/ingest/{job['id']}/retry", None)
    assert (again.status_code, again.json()["error"]) == (409, "nothing_to_retry")
    with service.connect() as connection:
        kept = connection.execute("SELECT count(*) FROM ingest_file WHERE data IS NOT NULL")
        assert kept.fetchone() == (0,)
    check_whole(service)


def test_a_new_version_that_cannot_be_embedded_leaves_the_old_one_whole(
    service: Service, stub: ModelStub
) -> None:
    take_one(service, PAGE, "reef.md")
    before = nodes(service)
    stub.answer = fails_from(2)

    job = put_back(service, {"reef.md": PAGE.replace(b"reef", b"cliff")})

    assert job["error"]["code"] == "embedding_service_unavailable"
    assert nodes(service) == before


def test_a_session_keeps_what_it_has_and_goes_on_where_it_was(
    service: Service, stub: ModelStub
) -> None:
    turns = [f"turn {n} of many" for n in range(300)]
    stub.answer = fails_from(6)

    put_back(service, {"a.jsonl": claude(turns)})

    assert texts(service) == turns[:128]
    stub.answer = well
    stub.requests.clear()
    report = take_one(service, claude(turns))
    assert counts(report) == {"received": 300, "stored": 172, "unchanged": 128}
    assert texts(service) == turns
    assert len(inputs(stub)) == 172
    check_whole(service)


def test_a_server_that_is_back_soon_costs_no_more_than_a_pause(
    service: Service, stub: ModelStub
) -> None:
    down = [1]

    def answer(body: dict[str, Any]) -> Reply:
        if down[0] > 0:
            down[0] -= 1
            return reply({"error": "starting"}, 503, Retry_After="1")
        return well(body)

    stub.answer = answer

    job = take(service, {"a.md": SHORT, "b.md": SHORT}, project="p")

    assert (job["status"], job["error"]) == ("completed", None)


def test_unchanged_content_is_not_embedded_again(service: Service, stub: ModelStub) -> None:
    take(service, {"a.md": SHORT, "a.jsonl": claude(["One?", "Two."])}, project="p")
    stub.requests.clear()

    new = SHORT.replace(b"second", b"third")
    take(service, {"a.md": new, "a.jsonl": claude(["One?", "Two.", "Three?"])}, project="p")

    assert sorted(inputs(stub)) == sorted([new.decode(), "# Two\n\nthird", "Three?"])


def test_nothing_blank_and_no_picture_is_embedded(service: Service, stub: ModelStub) -> None:
    image = {"type": "image", "source": {"type": "base64", "data": PICTURE}}
    lines = [
        cc_user(0, None, [image, said("the osprey on the pole")]),
        cc_user(1, 0, ""),
        cc_user(2, 1, [said(" \n")]),
        cc_user(3, 2, []),
        cc_user(4, 3, [image]),
    ]
    files = {
        "a.jsonl": file_of(lines),
        "blank.md": b"# Empty one\n\n# Empty two\n\n" + b"\n" * 500 + b"# Full\n\ntext\n",
        "nothing.txt": b" \n \n",
        "empty.md": b"",
    }

    job = take(service, files, project="p")

    assert job["status"] == "completed"
    assert all(text.strip() for text in inputs(stub))
    assert not any(PICTURE[:40] in text for text in inputs(stub))
    assert texts(service, source="claude%") == ["the osprey on the pole"]


def test_a_file_that_ends_its_process_keeps_no_other_file_waiting(
    service: Service, stub: ModelStub
) -> None:
    files = {"poison.md": b"# Poison\n\npoison\n", "good.md": SHORT, "fine.md": SHORT}
    killed: list[int] = []

    def answer(body: dict[str, Any]) -> Reply:
        if any("poison" in text for text in body["input"]):
            with service.connect() as connection:
                query = "SELECT claimed_pid FROM ingest_job WHERE status = 'running'"
                for (pid,) in connection.execute(query).fetchall():
                    killed.append(pid)
                    os.kill(pid, signal.SIGKILL)
        return well(body)

    stub.answer = answer

    job = service.ended(begin(service, files, project="p"), within_s=90)

    assert (job["status"], job["attempts"], len(killed)) == ("partial", 2, 2)
    assert job["error"]["code"] == "attempts_exhausted"
    assert [(f["name"], f["status"]) for f in job["files"]] == [
        ("poison.md", "failed"),
        ("good.md", "completed"),
        ("fine.md", "completed"),
    ]
    assert "given up" in job["files"][0]["reason"]
    stub.answer = well
    until(lambda: service.get("/health/ready").status_code == 200, within_s=40)
    assert retried(service, job["id"])["status"] == "completed"
    check_whole(service)


def test_the_content_of_a_cancelled_file_is_not_kept(service: Service, stub: ModelStub) -> None:
    with stub.held():
        job_id = begin(service, {"a.md": SHORT, "b.md": SHORT}, project="p")
        until(lambda: stub.requests)
        response = service.post(f"/memory/ingest/{job_id}/retry", None)
        assert response.status_code == 409
        cancelled = cancel(service, job_id)
    last = take(service, {"c.md": SHORT}, project="p")

    assert cancelled["status"] == "cancelled"
    assert [f["status"] for f in cancelled["files"]] == ["failed", "failed"]
    assert last["status"] == "completed"
    assert {n["source"] for n in nodes(service)} == {"c.md"}
    with service.connect() as connection:
        kept = connection.execute("SELECT count(*) FROM ingest_file WHERE data IS NOT NULL")
        assert kept.fetchone() == (0,)
