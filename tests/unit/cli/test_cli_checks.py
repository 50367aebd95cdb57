"""`mem doctor` and `mem keys`: what they look at, and what they never show."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.client import without_password
from tests.unit.cli.canned import CannedService, Mem, problem, project
from workers.errors import ModelMismatch, StoreUnavailable

READY = "GET /health/ready"
PROJECTS = "GET /memory/projects"


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.wiring.check_models", lambda: [("MiniLM", "ab12", Path("/m.onnx"))])


@pytest.fixture
def healthy(service: CannedService) -> CannedService:
    state = {"state": "ok", "detail": "PostgreSQL 18.4"}
    service.answers[READY] = 200, {"status": "ready", "dependencies": {"database": state}}
    service.answers[PROJECTS] = 200, {"projects": [project("poimen")]}
    return service


def checks_of(mem: Mem) -> tuple[int, dict[str, dict[str, Any]]]:
    ran = mem("doctor", "--format", "json")
    return ran.exit_code, {check["name"]: check for check in json.loads(ran.stdout)["checks"]}


def test_a_healthy_service_passes_and_what_was_not_looked_at_is_skipped(
    healthy: CannedService, mem: Mem
) -> None:
    exit_code, checks = checks_of(mem)

    assert exit_code == 0
    assert checks["service"]["state"] == "ok"
    assert checks["service database"]["said"] == "PostgreSQL 18.4"
    assert checks["model MiniLM"]["said"] == "sha256 ab12  /m.onnx"
    assert checks["database"]["state"] == checks["redis"]["state"] == "skip"


def test_a_dependency_that_fails_is_told_with_a_way_to_mend_it(
    healthy: CannedService, mem: Mem
) -> None:
    state = {"state": "failed", "detail": "refused"}
    healthy.answers[READY] = 503, {"status": "not_ready", "dependencies": {"redis": state}}

    ran = mem("doctor")

    assert ran.exit_code == 5
    lines = ran.stdout.splitlines()
    place = lines.index("FAIL  service redis: refused")
    assert lines[place + 1].startswith("      mend: ")
    assert lines[-1].startswith("1 failed, ")


def test_no_service_is_a_failure_that_names_mem_up(
    mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POIMEN_URL")

    exit_code, checks = checks_of(mem)

    assert exit_code == 5
    assert "mem up" in checks["service"]["mend"]


def test_a_key_that_is_refused_is_a_failure(healthy: CannedService, mem: Mem) -> None:
    healthy.answers[PROJECTS] = 401, problem(401, "not_authenticated")

    exit_code, checks = checks_of(mem)

    assert exit_code == 5
    assert checks["api key"]["state"] == "FAIL"
    assert "no key is set" in checks["api key"]["said"]


def test_servers_and_models_that_cannot_be_used_are_failures(
    healthy: CannedService, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_database(url: str) -> str:
        raise StoreUnavailable("refused")

    def no_model() -> None:
        raise ModelMismatch("another file")

    monkeypatch.setenv("POIMEN_DATABASE_URL", "postgresql://u:secret@db/x")
    monkeypatch.setattr("app.wiring.check_database", no_database)
    monkeypatch.setattr("app.wiring.check_models", no_model)

    exit_code, checks = checks_of(mem)

    assert exit_code == 5
    assert checks["database"]["state"] == checks["models"]["state"] == "FAIL"
    assert checks["database"]["mend"]
    assert checks["models"]["mend"]


def test_secrets_are_shown_as_set_or_unset_only(
    healthy: CannedService, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POIMEN_API_KEY", "hush1")
    monkeypatch.setenv("POIMEN_REDIS_URL", "redis://:hush2@cache")
    monkeypatch.setenv("POIMEN_EMBEDDING_URL", "http://me:hush3@gpu:8080")
    monkeypatch.setattr("app.wiring.check_redis", lambda url: "Valkey 9")

    ran = mem("doctor", "--all")

    assert "hush" not in ran.output
    assert "POIMEN_API_KEY=(set)" in ran.stdout
    assert "POIMEN_DATABASE_URL=(unset)" in ran.stdout
    assert "POIMEN_EMBEDDING_URL=http://***@gpu:8080" in ran.stdout


def test_an_address_without_a_password_is_shown_as_it_is() -> None:
    assert without_password("http://gpu:8080/v1") == "http://gpu:8080/v1"


def test_settings_left_at_their_default_are_shown_when_asked_for_only(
    healthy: CannedService, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POIMEN_RERANK_DEPTH", "7")
    monkeypatch.setenv("POIMEN_WEB_THREADS", "96")

    shown, everything = mem("doctor").stdout, mem("doctor", "--all").stdout

    assert "POIMEN_RERANK_DEPTH=7\n" in shown
    assert "POIMEN_WEB_THREADS" not in shown
    assert "POIMEN_WEB_THREADS=96\n" in everything
    assert "POIMEN_RERANK_DEPTH" in json.loads(mem("doctor", "--format", "json").stdout)["settings"]


def test_a_variable_that_is_no_setting_is_a_warning_that_names_the_nearest(
    healthy: CannedService, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POIMEN_DATABSE_URL", "hush")
    monkeypatch.setenv("POIMEN_DB_PASSWORD", "hush")  # the compose file's own

    exit_code, checks = checks_of(mem)

    assert exit_code == 0
    assert checks["settings"]["state"] == "warn"
    assert checks["settings"]["said"].startswith("POIMEN_DATABSE_URL ")
    assert checks["settings"]["mend"] == "did you mean POIMEN_DATABASE_URL?"


def test_one_project_is_counted_as_one(healthy: CannedService, mem: Mem) -> None:
    _, checks = checks_of(mem)

    assert checks["api key"]["said"] == "valid; 1 project may be asked"


@pytest.fixture
def locked(away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder of another account, which root's tests cannot make."""
    monkeypatch.delenv("POIMEN_URL")
    monkeypatch.setattr("app.local.state.is_out_of_reach", lambda data_dir: True)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("query", "-A", "why?"), ("POIMEN_URL", "POIMEN_API_KEY")),
        (("doctor",), ("POIMEN_URL", "POIMEN_API_KEY")),
        (("keys", "list"), ("POIMEN_DATABASE_URL",)),
    ],
)
def test_the_service_of_another_account_is_said_to_be_one(
    mem: Mem, locked: None, arguments: tuple[str, ...], names: tuple[str, ...]
) -> None:
    ran = mem(*arguments)

    assert ran.exit_code != 0
    assert "another account's" in ran.output
    assert all(name in ran.output for name in names)


@pytest.fixture
def database(away: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = "postgresql://db/x"
    monkeypatch.setenv("POIMEN_DATABASE_URL", url)
    monkeypatch.setattr("app.wiring.check_database", lambda url: "PostgreSQL 18.4")
    return url


def test_a_new_key_is_the_only_thing_on_stdout(
    database: str, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def create(*arguments: Any) -> tuple[str, str]:
        asked.append(arguments)
        return "id1", "key1"

    monkeypatch.setattr("app.wiring.create_key", create)
    monkeypatch.setattr("app.wiring.known_projects", lambda url: {"poimen"})

    ran = mem("keys", "create", "--name", "ci", "-p", "poimen", "--read-only")
    mem("keys", "create", "--name", "me")

    assert ran.stdout == "key1\n"
    assert "id1" in ran.stderr
    assert asked == [(database, "ci", ["poimen"], False), (database, "me", None, True)]


def test_a_key_without_a_name_is_not_made(database: str, mem: Mem) -> None:
    ran = mem("keys", "create", "--name", " ")

    assert ran.exit_code == 2
    assert "--name" in ran.stderr


def test_a_key_for_a_project_that_is_not_there_is_made_with_a_warning(
    database: str, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.wiring.create_key", lambda *_: ("id1", "key1"))
    monkeypatch.setattr("app.wiring.known_projects", lambda url: {"poimen"})

    ran = mem("keys", "create", "--name", "ci", "-p", "poimen", "-p", "poimne")

    assert (ran.exit_code, ran.stdout) == (0, "key1\n")
    assert ran.stderr.splitlines()[0].startswith("warning: there is no project poimne yet")
    assert "project poimen " not in ran.stderr


def test_keys_are_listed_with_their_rights(
    database: str, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2026, 7, 21, tzinfo=UTC)
    one = {"id": "id1", "name": "ci", "can_write": False, "projects": ["poimen", "atlas"]}
    one |= {"created_at": at, "revoked_at": at}
    two = one | {"id": "id2", "can_write": True, "projects": None, "revoked_at": None}
    monkeypatch.setattr("app.wiring.list_keys", lambda url: [one, two])

    shown = mem("keys", "list")
    sent = mem("keys", "list", "--format", "json")

    assert shown.stdout.splitlines() == [
        "id1\tci\tread only\tpoimen,atlas\trevoked",
        "id2\tci\tread and write\tall projects\tvalid",
    ]
    assert json.loads(sent.stdout)["keys"][0]["created_at"] == "2026-07-21T00:00:00Z"


@pytest.mark.parametrize(("is_known", "exit_code"), [(True, 0), (False, 1)])
def test_revoking_tells_whether_there_was_such_a_key(
    database: str,
    mem: Mem,
    monkeypatch: pytest.MonkeyPatch,
    is_known: bool,
    exit_code: int,
) -> None:
    monkeypatch.setattr("app.wiring.revoke_key", lambda url, key_id: is_known)

    ran = mem("keys", "revoke", "id1")

    assert ran.exit_code == exit_code
    assert "id1" in ran.stderr


def test_a_database_that_is_away_is_told_in_three_lines(
    database: str, mem: Mem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(url: str) -> None:
        raise StoreUnavailable("Start it, or correct POIMEN_DATABASE_URL.")

    monkeypatch.setattr("app.wiring.list_keys", away)

    ran = mem("keys", "list")

    assert ran.exit_code == 1
    assert ran.stderr.splitlines() == [
        "mem: the database does not answer.",
        "  Start it, or correct POIMEN_DATABASE_URL.",
        "  store_unavailable",
    ]


def test_a_wrong_database_is_found_out_before_a_pool_tries_it_again_and_again(mem: Mem) -> None:
    mem_env = {"POIMEN_DATABASE_URL": "postgresql://u:hush@127.0.0.1:1/x"}

    ran = mem("keys", "list", env=mem_env)

    assert ran.exit_code == 1
    assert ran.stderr.splitlines() == [
        "mem: the database does not answer.",
        "  Nothing listens at this host and port (POIMEN_DATABASE_URL).",
        "  store_unavailable",
    ]


def test_without_a_database_keys_name_mem_up(mem: Mem) -> None:
    ran = mem("keys", "list")

    assert ran.exit_code == 1
    assert "mem up" in ran.stderr
