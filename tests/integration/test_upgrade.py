"""A database of an earlier version is brought to this one, with what is in it."""

import json
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from tests.integration.service import Service
from tests.integration.test_own_servers import as_administrator, migrate
from workers.store import migrations

TURN, NOTE = "1" * 64, "2" * 64
PAYLOAD = {"format": "nodes", "project": "p", "projects": None}
NODE = {"level": "L0", "kind": "turn", "source": "s", "text": "submitted before the upgrade"}

# What a worker of the version before this one does with a job.
OLD_SUBMIT = """
INSERT INTO ingest_job (id, key_id, project, format, status, payload, progress_total)
VALUES (%(id)s, 'k', 'p', 'nodes', 'queued', %(payload)s, 1)
"""
OLD_WORK = (
    """
    UPDATE ingest_job
       SET status = 'running', attempts = attempts + 1, heartbeat_at = now(),
           started_at = coalesce(started_at, now()), claimed_host = 'old', claimed_pid = 1
     WHERE id = %(id)s AND attempts < 5 AND status = 'queued' AND due_at <= now()
    RETURNING id, payload, attempts
    """,
    """
    UPDATE ingest_job SET heartbeat_at = now(), progress_done = 0, progress_total = 1
     WHERE id = %(id)s AND status = 'running' AND attempts = 1
    RETURNING id
    """,
    """
    INSERT INTO memory_node (project, sha256, level, kind, source, text)
    VALUES ('p', repeat('3', 64), 'L0', 'turn', 's', 'by an old worker')
    RETURNING sha256
    """,
    """
    INSERT INTO node_vector (project, model, sha256, level, embedding)
    SELECT 'p', model, repeat('3', 64), 'L0', '[1,0,0]' FROM embedding_model WHERE is_active
    RETURNING sha256
    """,
    """
    INSERT INTO memory_edge (project, child, parent, precedence)
    VALUES ('p', repeat('2', 64), repeat('3', 64), 2)
    RETURNING child
    """,
    """
    UPDATE ingest_job
       SET status = 'completed', files = '[{"name": "nodes", "received": 1, "stored": 1}]',
           error_code = NULL, error_message = NULL, finished_at = now(), payload = NULL,
           progress_done = 1, progress_total = 1
     WHERE id = %(id)s AND status = 'running' AND attempts = 1
    RETURNING id
    """,
)


def config_of(connection: Any = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config


REVISIONS = [
    script.revision for script in ScriptDirectory.from_config(config_of()).walk_revisions()
]


@pytest.fixture
def database(session_service: Service) -> Iterator[str]:
    drop = "DROP DATABASE IF EXISTS earlier WITH (FORCE)"
    as_administrator(session_service, "postgres", drop, "CREATE DATABASE earlier OWNER poimen")
    as_administrator(session_service, "earlier", "CREATE EXTENSION vector")
    yield session_service.database_url.replace("/poimen?", "/earlier?")
    as_administrator(session_service, "postgres", drop)


def bring_to(database: str, revision: str) -> None:
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(database), poolclass=NullPool
    )
    with engine.connect() as connection:
        command.upgrade(config_of(connection), revision)


def fill(database: str) -> None:
    """What the oldest version stored, and a submission that waits."""
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        connection.execute("INSERT INTO project (project) VALUES ('p')")
        connection.execute(
            "INSERT INTO embedding_model (name, dimension, is_active) VALUES ('m', 3, true)"
        )
        for sha256, level, kind in ((TURN, "L0", "turn"), (NOTE, "L1", "note")):
            connection.execute(
                "INSERT INTO memory_node (project, sha256, level, kind, source, text)"
                " VALUES ('p', %s, %s, %s, 's', 'text')",
                [sha256, level, kind],
            )
            connection.execute(
                "INSERT INTO node_vector (project, model, sha256, level, embedding)"
                " VALUES ('p', 1, %s, %s, '[1,0,0]')",
                [sha256, level],
            )
        connection.execute("INSERT INTO memory_edge VALUES ('p', %s, %s, 1)", [NOTE, TURN])
        submit_as_before(connection)


def submit_as_before(connection: "psycopg.Connection[Any]") -> str:
    job_id = str(uuid4())
    payload = zlib.compress(json.dumps(PAYLOAD | {"nodes": [NODE]}).encode())
    connection.execute(OLD_SUBMIT, {"id": job_id, "payload": payload})
    return job_id


def contents(database: str) -> dict[str, list[Any]]:
    with closing(psycopg.connect(database)) as connection:
        return {
            table: connection.execute(
                f"SELECT {columns} FROM {table} ORDER BY 1, 2".encode()
            ).fetchall()
            for table, columns in (
                ("memory_node", "project, sha256, level, kind, source, text, tags, metadata"),
                ("node_vector", "sha256, model, embedding::text"),
                ("memory_edge", "child, parent, precedence"),
                ("node_count", "project, level, nodes"),
                ("ingest_job", "id, status, payload"),
            )
        }


def test_there_is_one_line_of_versions() -> None:
    script = ScriptDirectory.from_config(config_of())

    assert len(script.get_heads()) == 1
    assert sorted(REVISIONS) == [f"{number:04}" for number in range(1, len(REVISIONS) + 1)]


@pytest.mark.parametrize("revision", ["0001", "0004", "0005", "0006"])
def test_what_an_earlier_version_stored_is_kept(database: str, revision: str) -> None:
    bring_to(database, revision)
    fill(database)
    before = contents(database)

    done = migrate(database)

    assert done.returncode == 0, done.stderr
    assert contents(database) == before


def test_two_processes_that_upgrade_at_once_are_both_right(database: str) -> None:
    bring_to(database, "0004")
    fill(database)
    before = contents(database)

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(migrate, [database] * 2))

    assert [one.returncode for one in done] == [0, 0], done
    assert contents(database) == before


def test_a_version_that_is_not_known_is_told_without_a_trace(database: str) -> None:
    bring_to(database, "head")
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    done = migrate(database)

    assert done.returncode == 1
    assert "9999" in done.stderr
    assert "Traceback" not in done.stderr


def test_workers_of_the_version_before_go_on_with_the_new_schema(database: str) -> None:
    bring_to(database, "head")
    fill(database)
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        job_id = submit_as_before(connection)

        for statement in OLD_WORK:
            found = connection.execute(statement.encode(), {"id": job_id}).fetchall()
            assert len(found) == 1, statement


def test_what_was_submitted_to_the_version_before_is_stored_by_this_one(
    empty_service: Service,
) -> None:
    with empty_service.connect() as connection:
        job_id = submit_as_before(connection)

    job = empty_service.ended(job_id, within_s=40)

    assert (job["status"], job["attempts"], job["files"][0]["stored"]) == ("completed", 1, 1)
    (hit,) = empty_service.ask("the upgrade", project="p", level="L0")["results"]
    assert hit["text"] == NODE["text"]
