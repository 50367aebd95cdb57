"""Why a database cannot be used, told apart and without secrets."""

import psycopg
import pytest
from psycopg import errors

from workers.errors import QueueUnavailable, StoreUnavailable
from workers.store.database import check_database
from workers.store.redis import check_redis
from workers.store.refusals import refusal


@pytest.mark.parametrize(
    ("driver_s", "ours"),
    [
        ('FATAL:  password authentication failed for user "hush"', "refuses the password"),
        ('FATAL:  role "hush" does not exist', "no such role"),
        ('FATAL:  database "hush" does not exist', "no such database"),
        ('FATAL:  database "connection refused" does not exist', "no such database"),
        ('FATAL:  no pg_hba.conf entry for host "hush"', "pg_hba.conf"),
        ("port 1 failed: Connection refused", "Nothing listens"),
        ("failed to resolve host 'hush': [Errno -2] Name or service not known", "not known"),
        ('connection is bad: invalid port number: "99999"', "port"),
        ('invalid integer value "hush" for connection option "port"', "port"),
        ('socket "/hush/.s.PGSQL.5432" failed: No such file or directory', "no socket"),
        ("FATAL:  the database system is starting up", "starting or stopping"),
        ("something else with hush", "OperationalError"),
    ],
)
def test_every_reason_has_its_own_words(driver_s: str, ours: str) -> None:
    said = refusal(psycopg.OperationalError(driver_s))

    assert ours in said
    assert "hush" not in said


def test_a_code_of_the_server_goes_before_its_language() -> None:
    assert "refuses the password" in refusal(errors.InvalidPassword("Passwort ist falsch"))
    assert "no such database" in refusal(errors.InvalidCatalogName("gibt es nicht"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:hush@127.0.0.1:1/x", "Nothing listens"),
        ("postgresql://u:hush@no-such-host.invalid/x", "host is not known"),
        ("postgresql://u:hush@127.0.0.1:99999/x", "port"),
        ("postgresql://u:hush%zz@127.0.0.1/x", "cannot be read"),
    ],
)
def test_an_address_that_cannot_work_says_why_and_names_its_setting(url: str, said: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        check_database(url)

    assert said in str(caught.value)
    assert "POIMEN_DATABASE_URL" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://:hush@127.0.0.1:1?socket_timeout=hush", "redis://127.0.0.1:1?hush=1"]
)
def test_an_option_that_redis_has_not_is_refused_without_the_address(url: str) -> None:
    with pytest.raises(QueueUnavailable) as caught:
        check_redis(url)

    assert "POIMEN_REDIS_URL" in str(caught.value)
    assert "hush" not in str(caught.value)
