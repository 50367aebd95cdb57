"""On PostgreSQL and Valkey of one's own: here, a second database beside the session's."""

import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from app.local.postgres import ADMIN
from tests.integration.service import (
    MEM,
    Service,
    clean_environment,
    fixture_nodes,
    running,
    state_dir,
)


def migrate(database_url: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(MEM), "migrate"],
        env=clean_environment() | {"POIMEN_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=60,
    )


def as_administrator(service: Service, database: str, *statements: str) -> None:
    password = (service.data_dir / "postgres" / "admin.password").read_text().strip()
    with psycopg.connect(
        service.database_url, user=ADMIN, password=password, dbname=database, autocommit=True
    ) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture
def own_database(session_service: Service) -> Iterator[str]:
    """An empty database without the extension, owned by an ordinary role."""
    drop = "DROP DATABASE IF EXISTS own WITH (FORCE)"
    as_administrator(session_service, "postgres", drop, "CREATE DATABASE own OWNER poimen")
    yield session_service.database_url.replace("/poimen?", "/own?")
    as_administrator(session_service, "postgres", drop)


def test_a_database_without_the_extension_is_refused_and_told_who_can_create_it(
    own_database: str,
) -> None:
    done = migrate(own_database)

    assert done.returncode == 1
    assert "CREATE EXTENSION vector" in done.stderr
    assert "Traceback" not in done.stderr


def test_migrating_twice_is_harmless(session_service: Service, own_database: str) -> None:
    as_administrator(session_service, "own", "CREATE EXTENSION vector")

    first, second = migrate(own_database), migrate(own_database)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "up to date" in second.stderr


def test_the_service_runs_on_servers_of_one_s_own_and_starts_none(
    session_service: Service, own_database: str
) -> None:
    as_administrator(session_service, "own", "CREATE EXTENSION vector")
    own_redis = session_service.redis_url.replace("db=0", "db=1")

    with running(POIMEN_DATABASE_URL=own_database, POIMEN_REDIS_URL=own_redis) as service:
        assert (service.pids["postgres"], service.pids["valkey"]) == (0, 0)
        assert (service.database_url, service.redis_url) == (own_database, own_redis)
        assert service.ingest(fixture_nodes())["status"] == "completed"
        answer = service.ask("why did requests over 10KB fail?")
        assert answer["results"][0]["standing_id"] == "infra-root-causes"
        assert answer["federation"]["finalized_by"] == "callback"
        with service.redis() as redis:
            assert redis.keys("poimen:*")


def test_a_database_that_does_not_answer_is_a_clear_refusal(session_service: Service) -> None:
    nowhere = "postgresql://someone:secret-word@127.0.0.1:1/none"

    done = migrate(nowhere)

    assert done.returncode == 1
    assert "POIMEN_DATABASE_URL" in done.stderr
    assert "secret-word" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("part", "said"), [("password", "refuses the password"), ("database", "no such database")]
)
def test_what_is_wrong_with_an_address_is_told_apart(
    session_service: Service, part: str, said: str
) -> None:
    url = session_service.database_url
    wrong = {
        "password": url.replace("@", "-secret-word@", 1),
        "database": url.replace("/poimen?", "/secret-word?", 1),
    }[part]
    keys = [str(MEM), "keys", "list"]

    done = [
        migrate(wrong),
        subprocess.run(
            keys,
            env=clean_environment() | {"POIMEN_DATABASE_URL": wrong},
            capture_output=True,
            text=True,
            timeout=60,
        ),
    ]

    for one in done:
        assert one.returncode == 1
        assert said in one.stderr
        assert len(one.stderr.splitlines()) == 3
        assert "secret-word" not in one.stdout + one.stderr


def test_another_model_than_the_stored_vectors_is_refused_at_the_start(
    session_service: Service, own_database: str
) -> None:
    as_administrator(session_service, "own", "CREATE EXTENSION vector")
    assert migrate(own_database).returncode == 0
    with psycopg.connect(own_database) as connection:
        connection.execute(
            "INSERT INTO embedding_model (name, dimension, is_active) VALUES ('other', 8, true)"
        )
    folder = state_dir()
    settings = {
        "POIMEN_DATABASE_URL": own_database,
        "POIMEN_REDIS_URL": session_service.redis_url.replace("db=0", "db=1"),
        "POIMEN_DATA_DIR": str(folder),
    }

    done = subprocess.run(
        [str(MEM), "up"],
        env=clean_environment() | settings,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 1
    assert "model_mismatch" in done.stderr
    assert "other (8 dimensions)" in done.stderr
