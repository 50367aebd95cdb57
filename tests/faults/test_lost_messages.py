"""What becomes of a query whose messages come twice, not at all, or under a name nobody knows."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.faults.memory import LATE_S, PROJECTS, Document, Memory
from tests.integration.service import until

Message = dict[str, Any]


def rewrite(
    memory: Memory, queue: str, expected: int, change: Callable[[list[Message]], list[Message]]
) -> None:
    """Put other messages in the place of those that wait in a queue."""
    with memory.service.redis() as redis:
        until(lambda: redis.llen(queue) == expected)
        messages = [json.loads(text) for text in redis.lrange(queue, 0, -1)]
        with redis.pipeline(transaction=True) as pipe:
            pipe.delete(queue)
            for message in change(messages):
                pipe.rpush(queue, json.dumps(message))
            pipe.execute()


def twice(messages: list[Message]) -> list[Message]:
    return [*messages, *messages]


def renamed_and_lost(messages: list[Message]) -> list[Message]:
    messages[0]["headers"]["task"] += "_of_a_later_version"
    return messages[:-1]


def all_lost(_messages: list[Message]) -> list[Message]:
    return []


def both_with(
    memory: Memory, change: Callable[[list[Message]], list[Message]], timeout_s: int = 3
) -> tuple[Document, Document]:
    """A question and a job whose search messages were changed before a worker saw them."""
    with ThreadPoolExecutor(1) as pool:
        with memory.deaf(*memory.pids_of("query"), *memory.pids_of("jobs")):
            asked = pool.submit(memory.ask, memory.question(), timeout_seconds=timeout_s)
            job = memory.submit(memory.question(), timeout_seconds=40)
            rewrite(memory, "query", len(PROJECTS), change)
            rewrite(memory, "jobs", len(PROJECTS), change)
        response = asked.result()
    assert response.status_code == 200, response.text
    assert response.elapsed.total_seconds() < timeout_s + LATE_S
    answer: Document = response.json()
    memory.check(answer)
    return answer, memory.ended(job)


def test_messages_that_are_delivered_twice_change_nothing(memory: Memory) -> None:
    answer, document = both_with(memory, twice, timeout_s=5)

    assert answer["federation"]["finalized_by"] == "callback"
    assert answer["federation"]["successful"] == len(PROJECTS)
    assert (document["status"], document["attempts"]) == ("completed", 1)
    assert document["federation"]["finalized_by"] == "callback"
    assert answer["warnings"] == document["warnings"] == []


def test_a_lost_message_and_one_that_no_worker_knows_cost_a_question_two_projects_and_a_job_none(
    memory: Memory,
) -> None:
    answer, document = both_with(memory, renamed_and_lost)

    assert len(answer["projects_searched"]) == len(PROJECTS) - 2
    assert [w["code"] for w in answer["warning_details"]] == ["no_answer_by_deadline"] * 2
    assert answer["federation"]["finalized_by"] == "waiter"
    assert (document["status"], document["warnings"]) == ("completed", [])


def test_a_callback_that_comes_twice_or_never_ends_a_query_once(memory: Memory) -> None:
    documents = []
    for change in (twice, all_lost):
        with ThreadPoolExecutor(1) as pool, memory.deaf(*memory.pids_of("merge")):
            asked = pool.submit(memory.ask, memory.question(), timeout_seconds=2)
            job = memory.submit(memory.question(), timeout_seconds=40)
            rewrite(memory, "merge", 2, change)
        answer = asked.result().json()
        memory.check(answer)
        documents.append((answer, memory.ended(job)))

    assert [document["status"] for _, document in documents] == ["completed"] * 2
    assert [answer["warnings"] for answer, _ in documents] == [[], []]
    assert documents[1][0]["federation"]["finalized_by"] == "waiter"
    assert documents[1][1]["federation"]["finalized_by"] == "sweep"
