"""Logging, the same in every process: one JSON object a line on stderr."""

import logging
import sys

import structlog


def set_up_logging(level: str) -> None:
    """Send our own and the libraries' records through one renderer.

    Memory text and questions are logged at DEBUG only, keys and tokens never.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Celery reports each task received, done or expired at INFO: lines for every project and query.
    for name in ("celery.worker.strategy", "celery.worker.request", "celery.app.trace", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Each failed request with its trace; whoever asked says what matters of it.
    logging.getLogger("opensearch").setLevel(logging.CRITICAL)
