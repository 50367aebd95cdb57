"""`mem` itself: help, start-up, pipes and interrupts; and the smaller commands."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli import COMMANDS, main
from app.cli.demo import EXPECTED, PARAPHRASE, shortcoming
from tests.unit.cli.canned import CannedService, Mem, answer, hit, parent, project

ROOT = Path(__file__).parents[3]
MEM = [sys.executable, "-c", "from app.cli import main; main()"]


def test_mem_alone_is_a_short_overview(mem: Mem) -> None:
    ran = mem()

    assert ran.exit_code == 0
    assert len(ran.stdout.splitlines()) < 12
    for command in ("mem up", "mem ingest", "mem query", "mem doctor"):
        assert command in ran.stdout


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command_and_imports_none(flag: str) -> None:
    heavy = "{'flask', 'requests', 'numpy', 'pydantic', 'rich', 'celery', 'app.cli.query'}"
    code = (
        "import sys\nfrom app.cli import main\n"
        f"try: main([{flag!r}])\n"
        f"finally: assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (ran.returncode, ran.stderr) == (0, "")
    for command in COMMANDS:
        assert f"\n  {command}" in ran.stdout


@pytest.mark.parametrize(
    "command",
    [
        *([name] for name in COMMANDS),
        ["projects", "list"],
        ["projects", "add"],
        ["feedback", "add"],
        ["feedback", "report"],
        ["feedback", "export"],
        ["keys", "create"],
        ["keys", "list"],
        ["keys", "revoke"],
        *(["jobs", name] for name in ("list", "show", "wait", "stop", "cancel", "retry")),
    ],
    ids=" ".join,
)
def test_the_help_of_a_command_teaches_by_three_examples_or_more(command: list[str]) -> None:
    ran = CliRunner().invoke(main, [*command, "-h"])

    assert ran.exit_code == 0
    examples = ran.stdout.split("Examples:\n")[1].split("\n\n")[0]
    assert 3 <= len(examples.strip().splitlines()) <= 5


def test_an_unknown_command_gets_the_nearest() -> None:
    ran = CliRunner().invoke(main, ["qery"])

    assert ran.exit_code == 2
    assert "query" in ran.stderr


def test_a_reader_that_goes_away_ends_it_with_141_and_without_a_traceback(
    service: CannedService, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POIMEN_URL", service.url)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    service.answers["GET /memory/query"] = 200, answer(*[hit(text="long " * 9000)] * 20)

    with subprocess.Popen(
        [*MEM, "query", "-A", "why?"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        said = running.stderr.read()

    assert (running.returncode, said) == (141, b"")


def test_ctrl_c_exits_130(
    mem: Mem, service: CannedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.client.Client.query", interrupt)

    ran = mem("query", "-A", "why?")

    assert ran.exit_code == 130
    assert "Traceback" not in ran.stderr


def test_ctrl_c_while_the_command_line_is_being_imported_exits_130_without_a_trace() -> None:
    code = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
import app.console
class Interrupting:
    def find_spec(self, name, *_):
        if name == "app.cli":
            os.kill(os.getpid(), {int(signal.SIGINT)})
sys.meta_path.insert(0, Interrupting())
app.console.main()
"""

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT)

    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")


def run_into(output: str, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """`mem` with its stdout sent somewhere by a shell."""
    words = [sys.executable, "-m", "app.console", *arguments]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {output}', "sh", *words],
        env={**os.environ, **settings},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_without_a_trace(service: CannedService, away: Path) -> None:
    service.answers["GET /memory/query"] = 200, answer(hit())

    ran = run_into(">/dev/full", "query", "-A", "why?", POIMEN_URL=service.url)

    assert ran.returncode == 1
    assert ran.stderr.splitlines()[0].startswith("mem: the output cannot be written (")
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr


def test_a_closed_output_is_no_fault(service: CannedService, away: Path) -> None:
    service.answers["GET /memory/projects"] = 200, {"projects": [project("poimen")]}

    ran = run_into(">&-", "projects", "list", POIMEN_URL=service.url)

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("hush"), "RuntimeError"),
        (PermissionError(13, "Permission denied", "/state/key"), "/state/key cannot be used"),
        (OSError(99, "Odd"), "the system refused (Odd)"),
        (UnicodeEncodeError("utf-8", "hush", 0, 1, "no"), "an argument is not UTF-8"),
    ],
)
def test_what_nobody_expected_is_told_in_three_lines_without_its_own_words(
    mem: Mem, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("app.client.Client.list_projects", fail)

    ran = mem("projects", "list")

    assert ran.exit_code in (1, 2)
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 3
    assert "hush" not in ran.stderr


def test_a_trace_is_shown_when_asked_for_and_holds_places_and_types_only(
    mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("hu" + "sh")

    monkeypatch.setattr("app.client.Client.list_projects", fail)

    for ran in (
        mem("-v", "projects", "list"),
        mem("projects", "list", env={"POIMEN_LOG_LEVEL": "DEBUG"}),
    ):
        assert "projects.py" in ran.stderr
        assert "RuntimeError" in ran.stderr
        assert "hush" not in ran.stderr


def test_a_setting_that_cannot_be_read_is_named(mem: Mem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POIMEN_PORT", "many")

    ran = mem("query", "-A", "why?")

    assert ran.exit_code == 2
    assert "POIMEN_PORT" in ran.stderr


def test_projects_are_listed_in_columns(service: CannedService, mem: Mem) -> None:
    found = [project("poimen", "/src/a", "/src/b", title="Two\nlines")]
    service.answers["GET /memory/projects"] = 200, {"projects": found}

    shown = mem("projects", "list")
    sent = mem("projects", "list", "--format", "json")

    assert shown.stdout == "poimen\tL0:3 L1:2 L2:1\tTwo lines\t/src/a\t/src/b\n"
    assert json.loads(sent.stdout) == {"projects": found}


def test_a_project_is_added_with_the_real_path_of_its_root(
    service: CannedService, mem: Mem, away: Path
) -> None:
    (away / "real").mkdir()
    (away / "link").symlink_to(away / "real")
    service.answers["GET /memory/projects"] = 200, {"projects": []}
    service.answers["POST /memory/projects"] = 201, project("poimen", away / "real")

    ran = mem("projects", "add", "poimen", "--root", "link", "--title", "Poimen")

    assert ran.exit_code == 0
    assert service.said_to("POST /memory/projects") == [
        {"project": "poimen", "roots": [str((away / "real").resolve())], "title": "Poimen"}
    ]


@pytest.mark.parametrize(
    "other", [project("atlas", "{real}"), project("atlas", "/elsewhere", "{link}")]
)
def test_a_folder_of_another_project_is_refused(
    service: CannedService, mem: Mem, away: Path, other: dict[str, Any]
) -> None:
    (away / "real").mkdir()
    (away / "link").symlink_to(away / "real")
    places = {"{real}": str(away / "real"), "{link}": str(away / "link")}
    known = other | {"roots": [places.get(root, root) for root in other["roots"]]}
    service.answers["GET /memory/projects"] = 200, {"projects": [known]}

    ran = mem("projects", "add", "poimen", "--root", "real")

    assert ran.exit_code == 2
    assert "belongs to project atlas" in ran.stderr
    assert not service.said_to("POST /memory/projects")


def test_a_folder_may_be_given_to_its_own_project_again(
    service: CannedService, mem: Mem, away: Path
) -> None:
    service.answers["GET /memory/projects"] = 200, {"projects": [project("poimen", away)]}
    service.answers["POST /memory/projects"] = 200, project("poimen", away)

    assert mem("projects", "add", "poimen", "--root", ".").exit_code == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[{"id": 1}]', "one object a line"),
        ('{"text": "a"}', "names no project"),
        ('{"project": "p", "text": "a"}', EXPECTED),
        ("", EXPECTED),
    ],
)
def test_the_demo_refuses_a_file_before_it_starts_anything(
    mem: Mem, away: Path, monkeypatch: pytest.MonkeyPatch, content: str, said: str
) -> None:
    monkeypatch.setattr("app.local.stack.running_stack", None)
    (away / "my.jsonl").write_text(content)

    ran = mem("demo", "my.jsonl")

    assert ran.exit_code == 2
    assert said in ran.stderr
    assert "--project" not in ran.stderr


def test_the_demo_accepts_only_the_expected_note_with_its_evidence() -> None:
    assert shortcoming(answer(hit(standing_id=EXPECTED))) is None
    deep = parent("L1", "standing:x", parents=[parent("L0", "pi:a", 1)])
    assert shortcoming(answer(hit(standing_id=EXPECTED, parents=[deep]))) is None
    assert shortcoming(answer()) == "no hit"
    assert shortcoming(answer(hit(standing_id="other"))) == "the first hit is other"
    assert shortcoming(answer(hit(parents=[]))) == "it names no raw evidence"


def test_the_demos_paraphrase_shares_no_content_word_with_the_note_it_must_find() -> None:
    fixture = Path(__file__).parents[2] / "fixtures" / "memory_nodes.jsonl"
    nodes = [json.loads(line) for line in fixture.read_text().splitlines()]
    (note,) = (node["text"] for node in nodes if node.get("standing_id") == EXPECTED)
    function_words = {"what", "get", "at", "the"}

    asked = set(PARAPHRASE.lower().rstrip("?").split()) - function_words

    assert asked == {"made", "big", "uploads", "rejected", "gateway"}
    stems = {word[:5] for word in asked}
    assert not {word for word in note.lower().split() if word[:5] in stems or word[:3] in stems}
