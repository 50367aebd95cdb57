"""Settings: what is taken, and that a refusal never shows the value."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from config.settings import Settings


def refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> str:
    monkeypatch.setenv(f"POIMEN_{name}", value)
    with pytest.raises(ValidationError) as caught:
        Settings()
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("API_KEY", "pk_hush\u00e9", "no key has"),
        ("API_KEY", "pk_hush more", "no key has"),
        ("EMBEDDING_API_KEY", "pk_hush\x07", "no key has"),
        ("DATABASE_URL", "postgresql+psycopg://u:hush@db/x", "postgresql://"),
        ("DATABASE_URL", "host=db password=hush", "white space"),
        ("DATABASE_URL", "hush", "postgresql://"),
        ("DATABASE_URL", "postgresql://u:hush@[::1/x", "bracket"),
        ("REDIS_URL", "http://:hush@cache", "redis://"),
        ("REDIS_URL", "redis://:hush@cache:many", "port"),
        ("REDIS_URL", "unix://", "names no socket"),
        ("URL", "hush:8080", "http:// is missing"),
        ("URL", "ftp://hush", "http://"),
        ("URL", "http://", "names no host"),
        ("URL", "http://hush:99999", "port"),
        ("EMBEDDING_URL", "http://u:hush@gpu:x", "port"),
        ("RERANK_URL", "gpu", "http:// is missing"),
        ("OPENSEARCH_URL", "https://u:hush@search:9200", "POIMEN_OPENSEARCH_PASSWORD"),
        ("OPENSEARCH_INDEX", "Hush", "a-z"),
        ("OPENSEARCH_INDEX", "hush,other", "a-z"),
        ("LOG_LEVEL", "hush", "DEBUG"),
        ("DATA_DIR", "~no-such-account-hush/x", "no home folder"),
        ("PORT", "hush", "integer"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    told = refused(monkeypatch, name, value)

    assert said in told
    assert name.lower() in told
    assert "hush" not in told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "postgresql://u:p@db/x"),
        ("DATABASE_URL", "postgres:///x?host=/run/postgresql"),
        ("DATABASE_URL", "postgresql://u:p@a:5432,b:5433/x"),
        ("REDIS_URL", "redis://:p@cache:6379/0"),
        ("REDIS_URL", "rediss://cache"),
        ("REDIS_URL", "unix:///run/valkey.sock?db=1"),
        ("URL", "https://memory.example.org/base"),
        ("URL", "http://[::1]:8080"),
    ],
)
def test_addresses_that_work_are_taken_as_they_are(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"POIMEN_{name}", value)

    taken = getattr(Settings(), name.lower())

    assert (taken if isinstance(taken, str) else taken.get_secret_value()) == value


def test_the_line_end_of_a_file_is_no_part_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POIMEN_API_KEY", " pk_1\r\n")

    key = Settings().api_key

    assert key is not None
    assert key.get_secret_value() == "pk_1"


def test_a_tilde_is_the_home_folder_and_never_a_folder_of_that_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("POIMEN_DATA_DIR", "~/memory")

    assert Settings().data_dir == tmp_path / "memory"


def test_a_file_is_no_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hush").touch()

    assert "is not a folder" in refused(monkeypatch, "DATA_DIR", str(tmp_path / "hush"))


def test_a_log_level_may_be_written_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POIMEN_LOG_LEVEL", "debug")

    assert Settings().log_level == "DEBUG"


def test_opensearch_as_lexical_engine_needs_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "POIMEN_LEXICAL_ENGINE" in refused(monkeypatch, "LEXICAL_ENGINE", "opensearch")

    monkeypatch.setenv("POIMEN_OPENSEARCH_URL", "https://search:9200")
    monkeypatch.setenv("POIMEN_OPENSEARCH_PASSWORD", "hush")

    assert Settings().opensearch() == {
        "url": "https://search:9200",
        "user": None,
        "password": "hush",
        "alias": "poimen-nodes",
    }
    assert "hush" not in repr(Settings())


def test_without_that_engine_opensearch_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POIMEN_OPENSEARCH_URL", "https://search:9200")

    assert Settings().opensearch() is None
