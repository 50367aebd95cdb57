"""The command lines that `mem up` starts."""

import sys

from app.local import commands
from config.settings import Settings


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_the_web_server_takes_the_inherited_socket_and_opens_no_other() -> None:
    command = commands.web_command(Settings(web_threads=7), socket_fd=5)

    assert command[:4] == [sys.executable, "-m", "gunicorn", "app.wsgi:app"]
    assert option(command, "--bind") == "fd://5"
    assert (option(command, "--workers"), option(command, "--threads")) == ("1", "7")
    assert "--no-control-socket" in command
    assert "--access-logfile" not in command


def test_there_are_as_many_query_workers_as_asked_and_one_of_each_other_kind() -> None:
    found = commands.worker_commands(Settings(query_workers=2))

    assert list(found) == ["query1", "query2", "jobs1", "merge", "background"]
    assert option(found["query2"], "--hostname") == "query2@%h"


def test_merges_have_a_queue_and_a_process_of_their_own() -> None:
    found = commands.worker_commands(Settings(query_concurrency=6, merge_concurrency=3))
    query, merge = found["query1"], found["merge"]

    assert (option(query, "--queues"), option(query, "--concurrency")) == ("query", "6")
    assert (option(merge, "--queues"), option(merge, "--concurrency")) == ("merge", "3")
    assert option(query, "--pool") == option(merge, "--pool") == "threads"


def test_the_background_worker_forks_and_does_upkeep_too() -> None:
    command = commands.worker_commands(Settings(background_concurrency=2))["background"]

    assert (option(command, "--pool"), option(command, "--concurrency")) == ("prefork", "2")
    assert option(command, "--queues") == "ingest,upkeep"


def test_no_worker_reserves_messages_it_cannot_yet_work_on() -> None:
    for command in commands.worker_commands(Settings()).values():
        assert option(command, "--prefetch-multiplier") == "1"
