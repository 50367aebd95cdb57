"""`mem jobs` of submissions of files: listed, followed, cancelled, tried again."""

import json
from typing import Any

import pytest

from app.cli import jobs as jobs_module
from tests.unit.cli.canned import (
    INGEST_ID,
    JOB_ID,
    CannedService,
    Mem,
    ingested,
    problem,
    submission,
)

LIST = "GET /memory/ingest"
JOB = f"{LIST}/{INGEST_ID}"
DELETE = f"DELETE /memory/ingest/{INGEST_ID}"
RETRY = f"POST /memory/ingest/{INGEST_ID}/retry"


def running(*files: dict[str, Any]) -> dict[str, Any]:
    files = files or (ingested("a.md"), {"name": "b.md", "status": "queued"})
    stage, progress = "embedding b.md: 64 of 120", {"done": 1, "total": 2}
    return submission(*files, status="running", stage=stage, progress=progress)


def test_submissions_are_listed_one_a_line(service: CannedService, mem: Mem) -> None:
    jobs = [submission(status="failed", progress={"done": 3, "total": 4}, project=None)]
    service.answers[LIST] = 200, {"jobs": jobs, "next_cursor": None}

    ran = mem("jobs", "list", "--ingest", "--status", "failed")

    assert ran.stdout == f"{INGEST_ID}\tfailed\t2026-08-03T10:00:00Z\t3 of 4\t-\n"
    assert service.said_to(LIST)[0]["status"] == "failed"


@pytest.mark.parametrize(
    "words", [("--ingest", "--status", "running"), ("--status", "open"), ("--status", "x")]
)
def test_a_status_of_the_other_kind_is_a_usage_error(mem: Mem, words: tuple[str, ...]) -> None:
    assert mem("jobs", "list", *words).exit_code == 2


def test_a_submission_is_shown_with_what_it_has_stored_so_far(
    service: CannedService, mem: Mem
) -> None:
    service.answers[JOB] = 200, running()

    ran = mem("jobs", "show", INGEST_ID)

    assert ran.stdout.splitlines() == [
        f"{INGEST_ID}  running  1 of 2 done  embedding b.md: 64 of 120",
        "a.md\tcompleted\tmarkdown\t2\t2\t0\t0\t0\t0\t0",
    ]
    assert ran.exit_code == 124


def test_a_submission_is_waited_for(
    service: CannedService, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "LOOK_AGAIN_S", 0.01)
    states = iter([running(), running()])
    service.answers[JOB] = lambda _: (200, next(states, submission(ingested("a.md"))))

    ran = mem("jobs", "wait", INGEST_ID, "--format", "json")

    assert json.loads(ran.stdout)["status"] == "completed"
    assert ran.exit_code == 0


def test_waiting_ends_with_the_timeout_and_the_submission_goes_on(
    service: CannedService, mem: Mem
) -> None:
    service.answers[JOB] = 200, running()

    assert mem("jobs", "wait", INGEST_ID, "--timeout", "0").exit_code == 124


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (submission(ingested("a.md")), 0),
        (submission(ingested("a.md", skipped_count=1), status="partial"), 3),
        (submission(ingested("a.md", status="failed", reason="not text"), status="partial"), 1),
        (submission(status="failed", error={"code": "x", "message": "given up"}), 1),
        (submission(ingested("a.md"), status="cancelled"), 1),
    ],
)
def test_a_submission_exits_by_its_end(
    service: CannedService, mem: Mem, job: dict[str, Any], code: int
) -> None:
    service.answers[JOB] = 200, job

    assert mem("jobs", "wait", INGEST_ID).exit_code == code


def test_a_submission_is_cancelled(service: CannedService, mem: Mem) -> None:
    service.answers[DELETE] = 200, submission(status="cancelled")

    ran = mem("jobs", "cancel", INGEST_ID)

    assert "what it has stored stays" in ran.stdout
    assert ran.exit_code == 0


def test_a_submission_is_tried_again(service: CannedService, mem: Mem) -> None:
    service.answers[RETRY] = 202, submission(status="queued")

    ran = mem("jobs", "retry", INGEST_ID)

    assert ran.exit_code == 0
    assert f"mem jobs wait {INGEST_ID}" in ran.stderr


def test_what_cannot_go_better_a_second_time_is_said(service: CannedService, mem: Mem) -> None:
    service.answers[RETRY] = 409, problem(409, "nothing_to_retry")

    ran = mem("jobs", "retry", INGEST_ID)

    assert ran.exit_code == 1
    assert f"mem jobs show {INGEST_ID}" in ran.stderr


def test_an_unknown_submission_is_told_with_where_to_look(service: CannedService, mem: Mem) -> None:
    service.answers[JOB] = 404, problem(404, "ingest_not_found")

    ran = mem("jobs", "show", INGEST_ID)

    assert ran.exit_code == 2
    assert "mem jobs list --ingest" in ran.stderr


@pytest.mark.parametrize(("word", "job_id"), [("stop", INGEST_ID), ("retry", JOB_ID)])
def test_what_only_the_other_kind_can_is_told(
    service: CannedService, mem: Mem, word: str, job_id: str
) -> None:
    ran = mem("jobs", word, job_id)

    assert ran.exit_code == 2
    assert not service.asked
