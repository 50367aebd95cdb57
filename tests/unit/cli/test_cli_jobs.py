"""`mem query --async` and `mem jobs`: what is asked, what is shown, and with which exit code."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from app.cli.jobs import table
from app.cli.render import Look
from app.cli.watch import ROWS, Lines, Picture
from tests.unit.cli.canned import (
    JOB_ID,
    Answer,
    CannedService,
    Mem,
    answer,
    hit,
    job,
    part,
    problem,
    project,
)

JOBS = "/memory/query/jobs"
SUBMIT, LIST = f"POST {JOBS}", f"GET {JOBS}"
JOB, STOP, DELETE = f"GET {JOBS}/{JOB_ID}", f"{SUBMIT}/{JOB_ID}/stop", f"DELETE {JOBS}/{JOB_ID}"
ROOT = Path(__file__).parents[3]


def in_turn(service: CannedService, route: str, *answers: Answer) -> None:
    """The last of them stays."""
    left = list(answers)
    service.answers[route] = lambda said: left.pop(0) if len(left) > 1 else left[0]


def running(*hits: dict[str, Any], **members: Any) -> dict[str, Any]:
    parts = (part("poimen"), part("atlas", "running", took_ms=None))
    return job("running", *hits, **{"parts": parts, "degraded": True} | members)


# mem query --async


def test_a_question_asked_as_a_job_prints_its_id_and_how_to_follow_it(
    service: CannedService, mem: Mem
) -> None:
    service.answers[SUBMIT] = 202, job("queued")

    ran = mem("query", "-A", "--async", "why?")

    assert (ran.exit_code, ran.stdout) == (0, f"{JOB_ID}\n")
    assert ran.stderr == f"Follow it:  mem jobs wait {JOB_ID}\n"
    assert service.said_to(SUBMIT) == [
        {
            "query": "why?",
            "level": ["L1", "L2"],
            "limit": 5,
            "timeout_seconds": 60,
            "method": "auto",
            "explain": False,
        }
    ]


def test_every_option_of_a_question_reaches_the_job(service: CannedService, mem: Mem) -> None:
    service.answers[SUBMIT] = 202, job("queued")
    options = ("--levels", "L0", "-k", "7", "--method", "semantic", "--timeout", "600", "--explain")

    ran = mem("query", "--async", "-p", "poimen", *options, "--format", "json", "why?")

    assert json.loads(ran.stdout) == job("queued")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert service.said_to(SUBMIT) == [
        {
            "query": "why?",
            "projects": ["poimen"],
            "level": ["L0"],
            "limit": 7,
            "timeout_seconds": 600,
            "method": "semantic",
            "explain": True,
        }
    ]


@pytest.mark.parametrize(
    "options", [("--timeout", "31"), ("--async", "--timeout", "601"), ("--timeout", "0")]
)
def test_a_timeout_that_cannot_be_had_is_a_usage_error(
    service: CannedService, mem: Mem, options: tuple[str, ...]
) -> None:
    ran = mem("query", "-A", *options, "why?")

    assert (ran.exit_code, service.asked) == (2, [])


def test_a_long_timeout_names_the_option_that_allows_it(mem: Mem) -> None:
    assert "--async" in mem("query", "-A", "--timeout", "60", "why?").stderr


def test_a_job_of_an_unknown_project_gets_the_nearest_name(
    service: CannedService, mem: Mem
) -> None:
    service.answers[SUBMIT] = 404, problem(404, "project_not_found")
    service.answers["GET /memory/projects"] = 200, {"projects": [project("poimen")]}

    ran = mem("query", "--async", "-p", "poimne", "why?")

    assert ran.exit_code == 2
    assert "Did you mean poimen?" in ran.stderr


# mem jobs wait


def test_waiting_long_polls_for_each_revision_and_shows_the_answer_as_a_query_does(
    service: CannedService, mem: Mem
) -> None:
    service.answers["GET /memory/query"] = 200, answer(hit())
    in_turn(
        service,
        JOB,
        (200, job("queued", revision=1)),
        (200, running(revision=4)),
        (200, job("completed", hit(), revision=9)),
    )

    waited, asked = mem("jobs", "wait", JOB_ID), mem("query", "-p", "poimen", "why?")

    assert (waited.exit_code, waited.stdout) == (0, asked.stdout)
    assert waited.stderr == asked.stderr
    assert service.said_to(JOB) == [
        {},
        {"wait_seconds": "20", "since": "1"},
        {"wait_seconds": "20", "since": "4"},
    ]


@pytest.mark.parametrize(
    ("document", "exit_code"),
    [
        (job("completed"), 0),
        (job("completed", degraded=True), 3),
        (job("partial"), 3),
        (job("failed", error=problem(504, "deadline_exceeded")), 1),
        (job("cancelled"), 1),
        (running(), 124),
    ],
)
def test_the_exit_code_is_by_how_the_job_ended(
    service: CannedService, mem: Mem, document: dict[str, Any], exit_code: int
) -> None:
    service.answers[JOB] = service.answers[STOP] = 200, document

    for command in (("wait", JOB_ID, "--timeout", "0"), ("show", JOB_ID), ("stop", JOB_ID)):
        ran, sent = mem("jobs", *command), mem("jobs", *command, "--format", "json")
        assert ran.exit_code == sent.exit_code == exit_code
        assert json.loads(sent.stdout) == document
        assert sent.stderr == ""


def test_a_partial_job_says_what_is_missing_and_how_to_ask_for_it_with_more_time(
    service: CannedService, mem: Mem
) -> None:
    parts = (part("poimen"), part("atlas", "cancelled", reason="stopped_by_user"))
    service.answers[STOP] = 200, job("partial", hit(), parts=parts)

    ran = mem("jobs", "stop", JOB_ID)

    assert ran.exit_code == 3
    assert ran.stdout.startswith("0.94  L1 note")
    assert ran.stderr.splitlines() == [
        "1 hit from 1 of 2 projects in 0.1 s. INCOMPLETE: atlas cancelled (stopped_by_user).",
        "Ask it again:  mem query --async -p atlas --timeout 120 'why?'",
    ]


def test_more_time_is_never_more_than_a_job_may_have(service: CannedService, mem: Mem) -> None:
    late = part("atlas", "timed_out")
    service.answers[JOB] = 200, job("partial", parts=(late,), deadline_at="2026-08-03T10:08:00Z")

    assert "-p atlas --timeout 600 " in mem("jobs", "show", JOB_ID).stderr


def test_a_failed_job_is_told_in_three_lines(service: CannedService, mem: Mem) -> None:
    parts = (part("poimen", "failed", reason="store_unavailable"),)
    error = problem(503, "all_projects_failed", title="No project answered")
    service.answers[JOB] = 200, job("failed", parts=parts, error=error)

    ran = mem("jobs", "wait", JOB_ID)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[-3:] == [
        f"mem: job {JOB_ID} failed: No project answered.",
        "  Do the next thing.",
        "  all_projects_failed, request 7f3a91",
    ]


def test_a_wait_that_is_over_shows_what_was_found_so_far_and_exits_124(
    service: CannedService, mem: Mem
) -> None:
    service.answers[JOB] = 200, running(hit())

    ran = mem("jobs", "wait", JOB_ID, "--timeout", "1")

    assert ran.exit_code == 124
    assert ran.stdout.startswith("0.94  L1 note")
    assert ran.stderr.splitlines() == [
        "1 hit so far from 1 of 2 projects. STILL RUNNING: atlas.",
        f"Follow it:                        mem jobs wait {JOB_ID}",
        f"End it and keep what it found:    mem jobs stop {JOB_ID}",
        f"End it and keep nothing:          mem jobs cancel {JOB_ID}",
    ]
    assert {said.get("wait_seconds") for said in service.said_to(JOB)} <= {None, "1"}


def test_a_service_that_answers_at_once_without_news_is_not_asked_in_a_loop(
    service: CannedService, mem: Mem
) -> None:
    service.answers[JOB] = 200, running(poll_after_ms=400)

    mem("jobs", "wait", JOB_ID, "--timeout", "2")

    assert 3 <= len(service.said_to(JOB)) <= 7


@pytest.mark.parametrize(
    "trouble",
    [(0, None), (503, problem(503, "overloaded"), {"Retry-After": "0"})],
    ids=["gone", "busy"],
)
def test_a_service_that_is_away_for_a_moment_is_asked_again(
    service: CannedService, mem: Mem, monkeypatch: pytest.MonkeyPatch, trouble: Answer
) -> None:
    monkeypatch.setattr("app.cli.watch.TRY_AGAIN_S", 0.01)
    in_turn(service, JOB, (200, running()), trouble, trouble, (200, job("completed", hit())))

    ran = mem("jobs", "wait", JOB_ID)

    assert ran.exit_code == 0
    assert ran.stdout.startswith("0.94  L1 note")
    assert ran.stderr.splitlines()[0].startswith("the service ")
    assert ran.stderr.count("; trying again\n") == 1
    waits = [said.get("wait_seconds") for said in service.said_to(JOB)]
    assert waits == [None, "20", None, None]


def test_a_service_that_stays_away_is_told_together_with_how_to_go_on(
    service: CannedService, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.watch.PATIENCE_S", 0.2)
    monkeypatch.setattr("app.cli.watch.TRY_AGAIN_S", 0.05)
    in_turn(service, JOB, (200, running()), (0, None))

    ran = mem("jobs", "wait", JOB_ID, "--timeout", "10")

    assert ran.exit_code == 1
    assert 3 <= len(service.said_to(JOB)) <= 7
    assert f"mem jobs wait {JOB_ID}" in ran.stderr
    assert "service_unreachable" in ran.stderr


MEM = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
MEM += "from app.console import main; main()"


def mem_process(service: CannedService, *arguments: str, stderr: int) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "POIMEN_URL": service.url, "TERM": "xterm", "COLUMNS": "100"}
    return subprocess.Popen(
        [sys.executable, "-c", MEM, *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        cwd=ROOT,
    )


def test_ctrl_c_ends_the_wait_only_and_says_how_to_end_the_job(
    service: CannedService, away: Path
) -> None:
    is_polled, may_end = threading.Event(), threading.Event()

    def slowly(said: Any) -> Answer:
        if said:
            is_polled.set()
            may_end.wait(20)
        return 200, running()

    service.answers[JOB] = slowly
    with mem_process(service, "jobs", "wait", JOB_ID, stderr=subprocess.PIPE) as waiting:
        assert is_polled.wait(20)
        waiting.send_signal(signal.SIGINT)
        said, told = waiting.communicate(timeout=20)
    may_end.set()

    assert (waiting.returncode, said) == (130, b"")
    assert told.decode().splitlines() == [
        f"Stopped watching; job {JOB_ID} goes on.",
        f"Follow it:                        mem jobs wait {JOB_ID}",
        f"End it and keep what it found:    mem jobs stop {JOB_ID}",
        f"End it and keep nothing:          mem jobs cancel {JOB_ID}",
        "",
    ]
    assert {route for route, _ in service.asked} == {JOB}


def test_on_a_terminal_progress_is_live_on_stderr_and_the_answer_alone_on_stdout(
    service: CannedService, away: Path
) -> None:
    parts = tuple(part(f"p{number}", "running", took_ms=None) for number in range(200))
    in_turn(
        service,
        JOB,
        (200, running(hit(), parts=parts)),
        (200, running(hit(), parts=parts, revision=2)),
        (200, running(hit(), parts=parts, revision=3)),
        (200, job("completed", hit())),
    )
    ours, theirs = pty.openpty()

    with mem_process(service, "jobs", "wait", JOB_ID, stderr=theirs) as waiting:
        os.close(theirs)
        said, _ = waiting.communicate(timeout=20)
    told = read_all(ours)

    assert waiting.returncode == 0
    assert said.decode().startswith("0.94  L1 note")
    assert b"\x1b" not in said
    assert "0 of 200 projects" in told
    assert "and 192 more" in told
    assert told.endswith("\x1b[2K1 hit from 1 of 1 project in 0.1 s.\r\n")  # the picture is gone


def read_all(terminal: int) -> str:
    found = b""
    try:
        while read := os.read(terminal, 65_536):
            found += read
    except OSError:  # how Linux ends a terminal that nobody holds any more
        pass
    finally:
        os.close(terminal)
    return found.decode()


# What is drawn meanwhile


def drawn(document: dict[str, Any], width: int = 100, height: int = 24) -> list[str]:
    paper = io.StringIO()
    console = Console(file=paper, width=width, height=height, color_system=None)
    picture = Picture(console)
    picture.show(document)
    console.print(picture.draw())
    return paper.getvalue().splitlines()


def test_the_picture_names_each_project_with_what_became_of_it() -> None:
    parts = (
        part("core"),
        part("ledger", "running", took_ms=0.0),
        part("atlas", "timed_out", took_ms=None, reason="recall_timeout"),
    )

    lines = drawn(running(hit(), parts=parts, latency_ms=4200, query="why?\x1b[2J"))

    assert lines[0] == f"{JOB_ID}  running  4.2 s of 60 s  1 hit"
    assert lines[1] == "why?\\x1b[2J"
    assert lines[2].endswith("2 of 3 projects  1 timed out, 1 running")
    assert [line.split() for line in lines[3:6]] == [
        ["atlas", "timed", "out", "recall_timeout"],
        ["ledger", "running"],
        ["core", "successful", "81", "ms"],
    ]
    assert lines[6] == "best  0.94  poimen/3f9a2c1e40b7  infra-root-causes"
    assert lines[7] == "Ctrl-C stops watching, the job goes on"


@pytest.mark.parametrize(("width", "height"), [(200, 60), (80, 24), (40, 12), (20, 8), (10, 3)])
def test_two_hundred_projects_do_not_flood_the_terminal(width: int, height: int) -> None:
    parts = tuple(part(f"project-{n}-{'x' * 60}", "running") for n in range(199))
    late = part("late", "timed_out", reason="recall_timeout")

    lines = drawn(running(hit(), parts=(*parts, late), query="why? " * 99), width, height)

    assert len(lines) <= max(7, min(height - 1, ROWS + 7))
    assert all(len(line) <= width for line in lines)
    if height > 10:
        assert lines[3].startswith("  late")


def test_a_service_that_does_not_answer_is_said_in_the_picture_until_it_does() -> None:
    paper = io.StringIO()
    console = Console(file=paper, width=80, color_system=None)
    picture = Picture(console)

    picture.show(running())
    picture.tell_trouble("the service does not answer")
    console.print(picture.draw())
    picture.show(running())
    console.print(picture.draw())

    assert paper.getvalue().count("the service does not answer; trying again\n") == 1


def test_the_clock_of_the_picture_runs_on_between_two_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("app.cli.watch.time", clock)
    paper = io.StringIO()
    console = Console(file=paper, width=80, color_system=None)
    picture = Picture(console)

    picture.show(running(latency_ms=4200))
    now += 1.5
    console.print(picture.draw())

    assert "  5.7 s of 60 s  " in paper.getvalue()


def test_without_a_terminal_a_line_is_told_when_something_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.cli.watch.PLAIN_LINE_S", 0.0)
    lines = Lines()

    for document in (running(), running(revision=2), running(hit(), revision=3)):
        lines.show(document)

    assert capsys.readouterr().err.splitlines() == [
        f"{JOB_ID}: running, 1 of 2 projects, 0 hits",
        f"{JOB_ID}: running, 1 of 2 projects, 1 hit",
    ]


# mem jobs show, list, stop, cancel


def test_show_tells_the_state_and_what_was_found_so_far(service: CannedService, mem: Mem) -> None:
    service.answers[JOB] = 200, running(hit(), query="why\n\x1b[31m?")

    ran = mem("jobs", "show", JOB_ID)

    assert ran.exit_code == 124
    assert ran.stdout.splitlines()[:4] == [
        f"{JOB_ID}  running  1 of 2 projects",
        "  why \\x1b[31m?",
        "",
        "0.94  L1 note  infra-root-causes  poimen/3f9a2c1e40b7  2026-07-21T10:30:00Z",
    ]
    assert "1 hit so far" in ran.stderr


def test_show_tells_until_when_an_answer_is_kept(service: CannedService, mem: Mem) -> None:
    service.answers[JOB] = 200, job("completed", hit())

    ran = mem("jobs", "show", JOB_ID)

    assert ran.stdout.splitlines()[0] == (
        f"{JOB_ID}  completed  1 of 1 project  kept until 2026-08-04T10:00:01Z"
    )


def summary(number: int = 0, **members: Any) -> dict[str, Any]:
    said = {
        "id": f"{number:032x}",
        "status": "running",
        "submitted_at": "2026-08-03T10:00:00Z",
        "progress": {"done": 3, "total": 10},
        "query": "why?",
    }
    return said | members


def test_in_a_pipe_jobs_are_listed_whole_in_columns(service: CannedService, mem: Mem) -> None:
    found = [summary(1, query="why\t\x1b[2J" + "y" * 300), summary(2, status="partial")]
    service.answers[LIST] = 200, {"jobs": found, "next_cursor": None}

    shown, sent = mem("jobs", "list"), mem("jobs", "list", "--format", "json")

    assert shown.stdout.splitlines() == [
        f"{1:032x}\trunning\t2026-08-03T10:00:00Z\t3 of 10\twhy \\x1b[2J{'y' * 300}",
        f"{2:032x}\tpartial\t2026-08-03T10:00:00Z\t3 of 10\twhy?",
    ]
    assert json.loads(sent.stdout) == {"jobs": found}
    assert (shown.stderr, sent.stderr) == ("", "")


def test_on_a_terminal_jobs_are_listed_with_age_and_as_much_question_as_fits() -> None:
    now = datetime.now(UTC)
    ages = {
        "4 s": timedelta(seconds=4),
        "3 min": timedelta(seconds=200),
        "2 h": timedelta(hours=2.5),
        "6 d": timedelta(days=6.9),
        "0 s": timedelta(seconds=-30),  # their clock is ahead of ours
    }
    found = [
        summary(n, query="why\x1b? " * 60, submitted_at=(now - age).isoformat())
        for n, age in enumerate(ages.values())
    ]

    wide, narrow = (list(table(found, Look(False, width))) for width in (100, 40))

    assert wide[0].split() == ["ID", "STATUS", "AGE", "PROJECTS", "QUESTION"]
    for line, age in zip(wide[1:], ages, strict=True):
        assert f"  running  {age} " in line
        assert "why\\x1b?" in line
        assert line.endswith("...")
        assert len(line) <= 100
    assert len(narrow) == 2 * len(wide)
    assert all(len(line) <= 40 for line in narrow[3::2])


def test_the_newest_jobs_are_listed_and_all_of_them_when_asked_for(
    service: CannedService, mem: Mem
) -> None:
    every = [summary(number) for number in range(150)]

    def page(said: dict[str, str]) -> Answer:
        start = int(said.get("cursor", 0))
        end = start + int(said["limit"])
        return 200, {"jobs": every[start:end], "next_cursor": str(end) if end < 150 else None}

    service.answers[LIST] = page

    few, everything = mem("jobs", "list"), mem("jobs", "list", "--all")

    assert len(few.stdout.splitlines()) == 20
    assert few.stderr == "Older ones:  mem jobs list --all\n"
    assert len(everything.stdout.splitlines()) == 150
    assert everything.stderr == ""
    assert [said["limit"] for said in service.said_to(LIST)] == ["21", "100", "100"]


def test_jobs_are_listed_by_status(service: CannedService, mem: Mem) -> None:
    service.answers[LIST] = 200, {"jobs": [], "next_cursor": None}

    ran = mem("jobs", "list", "--status", "ended")

    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr.startswith("No job is ended. ")
    assert service.said_to(LIST)[0]["status"] == "ended"
    assert mem("jobs", "list", "--status", "gone").exit_code == 2


def test_a_cancelled_job_keeps_nothing(service: CannedService, mem: Mem) -> None:
    service.answers[DELETE] = 200, job("cancelled")

    ran = mem("jobs", "cancel", JOB_ID)

    assert ran.exit_code == 0
    assert ran.stdout == f"Job {JOB_ID} is cancelled; nothing of it was kept.\n"
    assert service.said_to(DELETE) == [{"if_running": "true"}]
    assert json.loads(mem("jobs", "cancel", JOB_ID, "--format", "json").stdout) == job("cancelled")


def test_cancelling_a_job_that_had_ended_says_so_and_leaves_it(
    service: CannedService, mem: Mem
) -> None:
    service.answers[DELETE] = 200, job("partial", hit())

    ran = mem("jobs", "cancel", JOB_ID)

    assert ran.exit_code == 0
    assert ran.stdout == f"Job {JOB_ID} had already ended (partial) and stays as it is.\n"
    assert f"mem jobs show {JOB_ID}" in ran.stderr


@pytest.mark.parametrize("command", ["show", "wait", "stop", "cancel"])
@pytest.mark.parametrize(
    ("status", "code", "exit_code", "said"),
    [
        (404, "job_not_found", 2, "there is no job"),
        (410, "job_expired", 1, "has expired or was removed"),
        (401, "not_authenticated", 4, "POIMEN_API_KEY"),
        (503, "store_unavailable", 1, "Do the next thing."),
    ],
)
def test_a_job_that_cannot_be_had_is_told_with_what_to_do(
    service: CannedService,
    mem: Mem,
    command: str,
    status: int,
    code: str,
    exit_code: int,
    said: str,
) -> None:
    for route in (JOB, STOP, DELETE):
        service.answers[route] = status, problem(status, code)

    ran = mem("jobs", command, JOB_ID, "--format", "json")

    assert ran.exit_code == exit_code
    assert said in ran.stderr
    assert ("mem jobs list" in ran.stderr) is code.startswith("job_")
    assert json.loads(ran.stdout) == {"error": problem(status, code)}


@pytest.mark.parametrize("wrong", ["", "abc", "../projects", "g" * 32, JOB_ID + "0"])
def test_what_is_no_id_is_not_asked_for(service: CannedService, mem: Mem, wrong: str) -> None:
    ran = mem("jobs", "show", wrong)

    assert (ran.exit_code, service.asked) == (2, [])
    assert "mem jobs list" in ran.stderr


def test_an_id_is_taken_as_it_was_copied(service: CannedService, mem: Mem) -> None:
    service.answers[JOB] = 200, job("completed")

    assert mem("jobs", "show", f" {JOB_ID.upper()}\n").exit_code == 0
