"""Everything an operator may change, read once from the environment."""

import os
import stat
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from config.checks import (
    DatabaseAddress,
    Folder,
    IndexName,
    Key,
    RedisAddress,
    SearchAddress,
    UpperCase,
    WebAddress,
    folder,
)

APP = "poimen-memory"

# Those of Snowball.
SearchLanguage = Literal[
    "simple", "arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch", "english",
    "esperanto", "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian",
    "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "persian", "polish",
    "portuguese", "romanian", "russian", "serbian", "sesotho", "spanish", "swedish", "tamil",
    "turkish", "yiddish",
]  # fmt: skip


def default_data_dir() -> Path:
    """The folder where the embedded stack keeps its state.

    Root's PostgreSQL runs as an unprivileged account, which must be able to enter the folder; a
    closed home directory (root's usually is) therefore gives way to /var/lib.
    """
    base = os.environ.get("XDG_DATA_HOME")
    home = folder(Path(base)) if base else Path.home() / ".local" / "share"
    if os.geteuid() == 0 and not _others_may_enter(home):
        return Path("/var/lib") / APP
    return home / APP


def _others_may_enter(path: Path) -> bool:
    existing = [folder for folder in (path, *path.parents) if folder.exists()]
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in existing)


class Settings(BaseSettings):
    """Everything an operator may change. Each field is read from POIMEN_<FIELD>."""

    model_config = SettingsConfigDict(
        env_prefix="POIMEN_",
        frozen=True,
        env_ignore_empty=True,
        hide_input_in_errors=True,  # an error's text may end in a log, and the value be a secret
    )

    data_dir: Folder = Field(
        default_factory=default_data_dir, description="state of the embedded stack"
    )
    database_url: DatabaseAddress | None = Field(
        None, description="PostgreSQL >= 15 with pgvector >= 0.8.4; unset: the embedded one"
    )
    redis_url: RedisAddress | None = Field(
        None, description="Redis >= 6.2 or Valkey; unset: the embedded one"
    )
    url: WebAddress | None = Field(None, description="where the command line finds the service")
    api_key: Key | None = Field(None, description="the key the command line presents")
    host: str = Field("127.0.0.1", description="address the web server listens on")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="port the web server listens on; 0: a free one"
    )
    web_threads: PositiveInt = Field(96, description="requests one web process serves at once")
    query_workers: PositiveInt = Field(1, description="query worker processes of `mem up`")
    query_concurrency: PositiveInt = Field(
        24,
        description="tasks one query worker works on at once; more than one question has,"
        " so that a slow one leaves room for others",
    )
    job_concurrency: PositiveInt = Field(
        48, description="tasks one job worker works on at once; more than the jobs of one key have"
    )
    job_workers: PositiveInt = Field(1, description="worker processes of `mem up` for query jobs")
    jobs_at_once: PositiveInt = Field(
        8, description="query jobs worked on at the same time, by all workers together"
    )
    jobs_open: PositiveInt = Field(5000, description="most unfinished query jobs")
    jobs_open_of_key: PositiveInt = Field(2000, description="most unfinished query jobs of one key")
    jobs_tasks_of_key: PositiveInt = Field(
        32,
        description="most tasks of one key's jobs that are worked on; its first is always let in",
    )
    feedback_answers: PositiveInt = Field(
        100_000,
        description="most answers whose results are remembered in Redis, for a day, so that"
        " feedback can be tied to them",
    )
    job_attempts: PositiveInt = Field(
        3, description="attempts before a query job that loses its workers is given up"
    )
    tasks_per_query: PositiveInt = Field(
        16, description="most tasks of one question; more projects than that share them in packs"
    )
    merge_concurrency: PositiveInt = Field(4, description="merges one merge worker runs at once")
    background_concurrency: PositiveInt = Field(
        1, description="ingest processes of one background worker"
    )
    database_connections: PositiveInt = Field(
        50, description="most database connections of one process"
    )
    exact_rows: PositiveInt = Field(
        20_000, description="nodes on the asked levels up to which recall compares with every one"
    )
    search_language: SearchLanguage = Field(
        "english",
        description="whose words lexical search takes the stems of; simple: takes them as they are",
    )
    lexical_engine: Literal["postgres", "opensearch"] = Field(
        "postgres", description="what searches by words: postgres or opensearch"
    )
    opensearch_url: SearchAddress | None = Field(
        None,
        validate_default=True,
        description="OpenSearch >= 3.0, for example https://search:9200; for that engine only",
    )
    opensearch_user: str | None = Field(None, description="the service's account there")
    opensearch_password: SecretStr | None = Field(None, description="password of that account")
    opensearch_index: IndexName = Field(
        "poimen-nodes", description="alias of the index there; another one for each memory"
    )
    rerank_depth: NonNegativeInt = Field(
        100, description="most candidates reranked per project; 0: none"
    )
    embedding_url: WebAddress | None = Field(
        None,
        description="OpenAI-compatible server, for example http://gpu:8080; unset: embedded MiniLM",
    )
    embedding_api_key: Key | None = Field(None, description="bearer token for that server")
    embedding_model: str = Field(
        "nomic-ai/nomic-embed-text-v2-moe", description="model asked of that server"
    )
    embedding_dimension: PositiveInt = Field(768, description="length of that model's vectors")
    embedding_batch: PositiveInt = Field(
        32, description="most texts of one request to that server; falls by itself where refused"
    )
    embedding_max_tokens: PositiveInt = Field(
        512, description="what that model reads of a text; the rest is not sent"
    )
    embedding_concurrency: PositiveInt = Field(
        8, description="most requests at once to that server, of all workers together"
    )
    embedding_cache_entries: PositiveInt = Field(
        2048, description="query encodings kept in each worker process"
    )
    embedding_cache_s: PositiveInt = Field(
        3600, description="seconds a query encoding is kept in Redis"
    )
    rerank_url: WebAddress | None = Field(
        None,
        description="rerank server, for example http://gpu:8081; unset: embedded late interaction",
    )
    rerank_api: Literal["tei", "cohere"] = Field(
        "tei", description="what that server speaks: tei (/rerank) or cohere (/v1/rerank)"
    )
    rerank_api_key: Key | None = Field(None, description="bearer token for that server")
    rerank_model: str = Field("BAAI/bge-reranker-base", description="model asked of that server")
    rerank_scale: Literal["sigmoid", "logit", "percent"] = Field(
        "sigmoid",
        description="its scores: sigmoid (0 to 1), logit (any number), percent (0 to 100)",
    )
    rerank_batch: PositiveInt = Field(
        32, description="most texts of one request to that server; falls by itself where refused"
    )
    rerank_max_tokens: PositiveInt = Field(
        512, description="what that model reads of question and text together"
    )
    rerank_concurrency: PositiveInt = Field(
        4, description="most requests at once to that server, of all workers together"
    )
    ingest_attempts: PositiveInt = Field(5, description="attempts before an ingest job is failed")
    ingest_stall_s: PositiveFloat = Field(
        600.0, description="seconds without progress after which an ingest process is ended"
    )
    ingest_redact: bool = Field(
        True, description="mask keys, tokens and passwords in transcripts, documents and feedback"
    )
    ingest_tools: Literal["none", "short", "all"] = Field(
        "short", description="what is kept of tool calls and their output: short is the beginning"
    )
    ingest_thinking: bool = Field(False, description="keep what models thought before they spoke")
    ingest_max_mb: PositiveFloat = Field(64.0, description="largest accepted request body, in MB")
    ingest_max_nodes: PositiveInt = Field(100_000, description="most nodes of one submission")
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], UpperCase] = Field(
        "INFO", description="DEBUG, INFO, WARNING or ERROR"
    )

    @field_validator("opensearch_url")
    @classmethod
    def _is_set_where_needed(cls, url: str | None, known: ValidationInfo) -> str | None:
        if url is None and known.data.get("lexical_engine") == "opensearch":
            raise ValueError("is unset, and POIMEN_LEXICAL_ENGINE=opensearch needs it")
        return url

    def opensearch(self) -> dict[str, Any] | None:
        """Where words are searched in OpenSearch, and as whom; None where PostgreSQL does it."""
        if self.lexical_engine != "opensearch":
            return None
        password = self.opensearch_password
        return {
            "url": self.opensearch_url,
            "user": self.opensearch_user,
            "password": password.get_secret_value() if password else None,
            "alias": self.opensearch_index,
        }
