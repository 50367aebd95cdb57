"""The command lines of the web server and the workers.

The compose file repeats them, with the web server bound to an address instead of an inherited
socket. Every process finds its services by POIMEN_DATABASE_URL and POIMEN_REDIS_URL.
"""

import sys

from config.settings import Settings

GRACEFUL_S = 5


def web_command(settings: Settings, socket_fd: int) -> list[str]:
    """One gunicorn process of threads, on a socket that is already listening.

    The socket outlives the server, so callers wait instead of being refused while it restarts.
    """
    return [
        *_module("gunicorn"),
        "app.wsgi:app",
        *("--bind", f"fd://{socket_fd}"),
        *("--worker-class", "gthread"),
        *("--workers", "1"),
        *("--threads", str(settings.web_threads)),
        # A question of 4,000 characters may take 48,000 in an address; 0: the parser's own bound.
        *("--limit-request-line", "0"),
        *("--timeout", "60"),
        *("--graceful-timeout", str(GRACEFUL_S)),
        "--no-control-socket",
    ]


def worker_commands(settings: Settings) -> dict[str, list[str]]:
    """Every worker of the stack by its name: for queries, jobs, merges and the background."""
    queries = {f"query{n}": query_worker(settings, n) for n in range(1, settings.query_workers + 1)}
    jobs = {f"jobs{n}": job_worker(settings, n) for n in range(1, settings.job_workers + 1)}
    return {
        **queries,
        **jobs,
        "merge": merge_worker(settings),
        "background": background_worker(settings),
    }


def query_worker(settings: Settings, number: int) -> list[str]:
    """Searches: threads of one process, which share one copy of the models."""
    return _worker(settings, f"query{number}", "query", "threads", settings.query_concurrency)


def job_worker(settings: Settings, number: int) -> list[str]:
    """The same for submitted queries, which so never take a place from one that is waited for."""
    return _worker(settings, f"jobs{number}", "jobs", "threads", settings.job_concurrency)


def merge_worker(settings: Settings) -> list[str]:
    """Merges: a process of their own without models, so that none waits behind searches."""
    return _worker(settings, "merge", "merge", "threads", settings.merge_concurrency)


def background_worker(settings: Settings) -> list[str]:
    """Ingest and upkeep: forked processes, of which one that hangs can be ended."""
    concurrency = settings.background_concurrency
    return _worker(settings, "background", "ingest,upkeep", "prefork", concurrency)


def _worker(settings: Settings, name: str, queues: str, pool: str, concurrency: int) -> list[str]:
    return [
        *_module("celery"),
        *("-A", "workers.main"),
        "worker",
        *("--pool", pool),
        *("--concurrency", str(concurrency)),
        *("--queues", queues),
        *("--prefetch-multiplier", "1"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        *("--hostname", f"{name}@%h"),
        *("--loglevel", settings.log_level),
    ]


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", name]
