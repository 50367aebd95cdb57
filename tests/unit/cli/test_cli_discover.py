"""`mem ingest --discover`: where the agents' sessions are found, and when they are stored."""

import importlib
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.cli.discover import agents_here
from tests.unit.cli.canned import INGEST_ID, CannedService, Mem, ingested, submission

INGEST = "POST /memory/ingest"
ingest_module = importlib.import_module("app.cli.ingest")  # its command has the same name
ROLLOUT = "rollout-2026-11-30T10-00-00-a.jsonl"


@pytest.fixture
def home(away: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(away))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return away


def write(path: Path, text: str = "{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def found() -> dict[str, list[str]]:
    home = Path.home()
    return {
        agent.form: [str(source.real.relative_to(home)) for source in agent.sources]
        for agent in agents_here()
    }


def test_the_three_agents_are_found_where_they_keep_their_sessions(home: Path) -> None:
    claude = [".claude/projects/-srv-a/1.jsonl", ".config/claude/projects/-srv-b/2.jsonl"]
    codex = [f".codex/archived_sessions/{ROLLOUT}", ".codex/sessions/2026/11/30/rollout-b.jsonl"]
    pi = [".pi/agent/sessions/--srv-a--/3.jsonl"]
    for path in (*claude, *codex, *pi, ".codex/history.jsonl", ".claude/settings.json"):
        write(home / path)

    assert found() == {"claude_code": claude, "codex": codex, "pi": pi}


def test_folders_that_the_agents_were_told_of_are_looked_into(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", f"{home}/one, ~/two/projects")
    monkeypatch.setenv("CODEX_HOME", str(home / "codex"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(home / "pi"))
    claude = ["one/projects/a/1.jsonl", "two/projects/b/2.jsonl"]
    for path in (*claude, f"codex/sessions/{ROLLOUT}", "pi/sessions/x/3.jsonl"):
        write(home / path)
    write(home / ".claude/projects/-srv-a/other.jsonl")

    assert found() == {
        "claude_code": claude,
        "codex": [f"codex/sessions/{ROLLOUT}"],
        "pi": ["pi/sessions/x/3.jsonl"],
    }


def test_of_a_session_that_is_there_twice_the_plain_and_active_one_is_taken(home: Path) -> None:
    active = home / ".codex/sessions/2026/11/30"
    write(active / ROLLOUT)
    write(active / f"{ROLLOUT}.zst")
    write(active / "rollout-c.jsonl.zst")
    write(home / ".codex/archived_sessions" / ROLLOUT)

    assert found()["codex"] == [
        f".codex/sessions/2026/11/30/{ROLLOUT}",
        ".codex/sessions/2026/11/30/rollout-c.jsonl.zst",
    ]


def test_sessions_reached_by_two_folders_are_taken_once(home: Path) -> None:
    write(home / ".claude/projects/a/1.jsonl")
    (home / ".config").mkdir()
    (home / ".config/claude").symlink_to(home / ".claude", target_is_directory=True)

    assert len(found()["claude_code"]) == 1


@pytest.fixture
def accepting(service: CannedService) -> CannedService:
    numbers = itertools.count()

    def accept(said: Any) -> tuple[int, dict[str, Any]]:
        job_id = f"{next(numbers):08x}{INGEST_ID[8:]}"
        files = [ingested(name, format="pi") for name, _ in said["files"]]
        service.answers[f"GET /memory/ingest/{job_id}"] = 200, submission(*files, id=job_id)
        return 202, {"id": job_id}

    service.answers[INGEST] = accept
    service.answers["GET /memory/projects"] = 200, {"projects": []}
    return service


@pytest.fixture
def sessions(home: Path) -> Path:
    newest = write(home / ".pi/agent/sessions/a/1.jsonl", "x" * 250_000)
    os.utime(newest, (1_796_032_800, 1_796_032_800))
    write(home / ".claude/projects/b/2.jsonl")
    return home


def test_without_anybody_to_ask_it_shows_what_it_would_take_and_how_to_go_on(
    accepting: CannedService, mem: Mem, sessions: Path
) -> None:
    ran = mem("ingest", "--discover")

    rows = [line.split("\t") for line in ran.stdout.splitlines()]
    assert rows[2] == [
        "pi",
        "1",
        "250000",
        "2026-11-30T10:00:00Z",
        str(sessions / ".pi/agent/sessions"),
    ]
    assert "--yes" in ran.stderr
    assert ran.exit_code == 2
    assert not accepting.said_to(INGEST)


def test_the_same_in_json_is_one_document(
    accepting: CannedService, mem: Mem, sessions: Path
) -> None:
    ran = mem("ingest", "--discover", "--format", "json")

    plan = json.loads(ran.stdout)["error"]["found"]
    assert [(agent["agent"], agent["sessions"]) for agent in plan] == [
        ("claude_code", 1),
        ("codex", 0),
        ("pi", 1),
    ]
    assert ran.exit_code == 2


def test_yes_stores_them_under_their_path_below_the_home_folder(
    accepting: CannedService, mem: Mem, sessions: Path
) -> None:
    ran = mem("ingest", "--discover", "--yes", "--format", "json")

    (said,) = accepting.said_to(INGEST)
    assert "project" not in said
    assert [name for name, _ in said["files"]] == [
        ".claude/projects/b/2.jsonl",
        ".pi/agent/sessions/a/1.jsonl",
    ]
    assert len(json.loads(ran.stdout)["files"]) == 2
    assert ran.exit_code == 0


@pytest.mark.parametrize(("reply", "sent"), [("y\n", 1), ("n\n", 0), ("\n", 0)])
def test_at_a_terminal_it_asks(
    accepting: CannedService,
    mem: Mem,
    sessions: Path,
    monkeypatch: pytest.MonkeyPatch,
    reply: str,
    sent: int,
) -> None:
    monkeypatch.setattr(ingest_module, "can_ask", lambda: True)

    ran = mem("ingest", "--discover", input=reply)

    assert "Store these 2?" in ran.stderr
    assert len(accepting.said_to(INGEST)) == sent
    assert ran.exit_code == 0


def test_an_agent_may_be_chosen(accepting: CannedService, mem: Mem, sessions: Path) -> None:
    mem("ingest", "--discover", "--yes", "--as", "pi", "-p", "poimen")

    (said,) = accepting.said_to(INGEST)
    assert (said["project"], len(said["files"])) == ("poimen", 1)


def test_no_session_at_all_is_said_with_where_it_was_looked(
    accepting: CannedService, mem: Mem, home: Path
) -> None:
    ran = mem("ingest", "--discover")

    assert ran.exit_code == 0
    assert str(home / ".pi/agent/sessions") in ran.stderr


def test_a_dry_run_reads_them_and_asks_nobody(
    accepting: CannedService, mem: Mem, sessions: Path
) -> None:
    ran = mem("ingest", "--discover", "--dry-run", "--format", "json")

    assert len(json.loads(ran.stdout)["files"]) == 2
    assert not accepting.asked
