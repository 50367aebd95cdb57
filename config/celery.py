"""Celery's options as plain data. The reasons are measured facts about Celery 5.7 on Redis."""

from typing import Any


def celery_options(url: str) -> dict[str, Any]:
    """Options for the front door and the workers alike.

    Args:
        url: the broker, as Celery spells it.
    """
    return {
        "broker_url": url,
        "result_backend": "workers.tasks.chord:Chords",  # no results are kept
        "result_backend_thread_safe": True,  # one for all threads of a process
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_serializer": "json",
        "result_serializer": "json",
        "accept_content": ["json"],
        "timezone": "UTC",
        "task_create_missing_queues": True,
        "broker_connection_retry_on_startup": True,
        "broker_pool_limit": 32,
        "broker_transport_options": {
            # No bookkeeping of unacknowledged messages in Redis: it costs two transactions each and
            # protects nothing here. A lost search is ended by its deadline, and ingest work is
            # claimed in PostgreSQL and sent again from there. Prefetch limits hold all the same.
            "ack_emulation": False,
            "priority_steps": [0],  # no priorities, so one list to wait on for each queue, not four
            "socket_keepalive": True,
            "socket_connect_timeout": 2,
            # Longer than the 1 s of a worker's blocking read; ends a publish to a hanging server.
            "socket_timeout": 2,
            "health_check_interval": 25,
        },
        # A front door that cannot publish says so at once instead of hanging in retries.
        "task_publish_retry": False,
        "worker_prefetch_multiplier": 1,
        "worker_disable_rate_limits": True,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_hijack_root_logger": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_enable_remote_control": False,
    }
