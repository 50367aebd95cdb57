"""What becomes of submitted nodes: stored once, followed to their end, and never forgotten."""

import json
import os
import signal
import uuid
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import requests

from tests.integration.callers import Caller
from tests.integration.obstacles import pids_of
from tests.integration.service import Service, fixture_nodes, until

TURN = {"project": "p", "level": "L0", "kind": "turn", "source": "pi:1", "text": "it broke"}
NOTE = {"project": "p", "level": "L1", "kind": "note", "source": "n", "text": "why it broke"}
MANY = [TURN | {"text": f"turn number {number} of many"} for number in range(3000)]
TABLES = ("project", "memory_node", "memory_edge", "node_vector", "node_tokens", "node_count")


def contents(service: Service) -> dict[str, list[str]]:
    """Every row of the memory, but for the instants of writing it."""
    found = {}
    with service.connect() as connection:
        for table in TABLES:
            query = (
                f"SELECT (to_jsonb(t) - 'created_at' - 'updated_at')::text FROM {table} AS t"
            ).encode()
            found[table] = sorted(row for (row,) in connection.execute(query))
    return found


def one(service: Service, query: str, *arguments: Any) -> Any:
    """The one value that a statement returns."""
    with service.connect() as connection:
        row = connection.execute(query.encode(), arguments).fetchone()
    assert row is not None
    return row[0]


def counts(job: dict[str, Any]) -> dict[str, int]:
    (file,) = job["files"]
    names = ("received", "stored", "updated", "unchanged", "skipped_count")
    return {name: file[name] for name in names if file[name]}


def post(service: Service, nodes: list[dict[str, Any]], **headers: str) -> requests.Response:
    return service.post("/memory/ingest", {"format": "nodes", "nodes": nodes}, **headers)


def submit(service: Service, nodes: list[dict[str, Any]], **headers: str) -> str:
    accepted = post(service, nodes, **headers)
    assert accepted.status_code == 202, accepted.text
    job_id: str = accepted.json()["id"]
    assert accepted.headers["Location"] == f"/memory/ingest/{job_id}"
    return job_id


def submit_until_queued(service: Service) -> list[str]:
    """Submit to a stopped worker until the queue holds one.

    A message or two may be on their way to that worker already, which nothing can take back.
    """
    ids: list[str] = []
    with service.redis() as redis:
        while not redis.llen("ingest"):
            assert len(ids) < 20
            ids.append(submit(service, [TURN | {"text": f"submission {len(ids)}"}]))
    return ids


def job_of(service: Service, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = service.get(f"/memory/ingest/{job_id}").json()
    return job


def group_of(service: Service) -> int:
    """The process group of the worker that stores nodes, with its pool and its clock."""
    (pid,) = until(lambda: pids_of(service, "ingest"))
    return os.getpgid(pid)


@contextmanager
def background_stopped(service: Service) -> Iterator[int]:
    """The worker that stores nodes hangs as a whole, until the block ends."""
    group = group_of(service)
    os.killpg(group, signal.SIGSTOP)
    try:
        yield group
    finally:
        os.killpg(group, signal.SIGCONT)


def test_a_submission_is_stored_whole(empty_service: Service) -> None:
    nodes = fixture_nodes()

    job = empty_service.ingest(nodes)

    assert (job["status"], job["attempts"], job["error"]) == ("completed", 1, None)
    assert counts(job) == {"received": len(nodes), "stored": len(nodes)}
    assert job["progress"] == {"done": len(nodes), "total": len(nodes)}
    assert job["created_at"] <= job["started_at"] <= job["finished_at"]
    edges = sum(len(node.get("parents", ())) for node in nodes)
    assert one(empty_service, "SELECT count(*) FROM memory_edge") == edges
    for table in ("memory_node", "node_vector", "node_tokens"):
        assert one(empty_service, f"SELECT count(*) FROM {table}") == len(nodes)
    assert one(empty_service, "SELECT count(*) FROM ingest_job WHERE payload IS NOT NULL") == 0


def test_the_same_submission_again_changes_nothing(service: Service) -> None:
    before = contents(service)

    job = service.ingest(list(reversed(fixture_nodes())))

    assert job["status"] == "completed"
    assert counts(job) == {"received": 72, "unchanged": 72}
    assert contents(service) == before


def test_what_is_said_about_a_node_is_brought_up_to_date(empty_service: Service) -> None:
    evidence = [TURN | {"id": name, "text": f"turn {name}"} for name in ("a", "b")]
    note = NOTE | {"parents": ["a"], "tags": ["old"], "metadata": {"n": 1}}
    empty_service.ingest([*evidence, note])

    said = {"parents": ["b", "a"], "tags": ["new"], "metadata": {"n": {"木": None}}, "title": "T"}
    job = empty_service.ingest([*evidence, note | said])

    assert counts(job) == {"received": 3, "updated": 1, "unchanged": 2}
    (result,) = empty_service.ask("why it broke", project="p", level="L1")["results"]
    assert [parent["text"] for parent in result["parents"]] == ["turn b", "turn a"]
    assert (result["tags"], result["title"]) == (["new"], "T")
    assert result["metadata"] == {"n": {"木": None}}


def test_only_the_order_of_parents_changed_is_a_change(empty_service: Service) -> None:
    evidence = [TURN | {"id": name, "text": f"turn {name}"} for name in ("a", "b")]
    empty_service.ingest([*evidence, NOTE | {"parents": ["a", "b"]}])

    job = empty_service.ingest([*evidence, NOTE | {"parents": ["b", "a"]}])

    assert counts(job) == {"received": 3, "updated": 1, "unchanged": 2}
    (result,) = empty_service.ask("why", project="p")["results"]
    assert [parent["text"] for parent in result["parents"]] == ["turn b", "turn a"]


def test_an_edge_deleted_by_sql_is_gone_from_the_next_answer(service: Service) -> None:
    def parents() -> list[str]:
        answer = service.ask("Kong body", project="poimen", limit=1)
        assert answer["results"][0]["standing_id"] == "infra-root-causes"
        return [parent["sha256"] for parent in answer["results"][0]["parents"]]

    before = parents()
    with service.connect() as connection:
        connection.execute("DELETE FROM memory_edge WHERE parent = %s", [before[0]])

    assert parents() == before[1:]


def test_a_note_whose_evidence_was_deleted_is_found_with_a_warning(empty_service: Service) -> None:
    empty_service.ingest([TURN | {"id": "t"}, NOTE | {"parents": ["t"]}])
    with empty_service.connect() as connection:
        connection.execute("DELETE FROM memory_node WHERE level = 'L0'")

    answer = empty_service.ask("why it broke", project="p")

    assert [result["parents"] for result in answer["results"]] == [[]]
    assert [warning["code"] for warning in answer["warning_details"]] == ["provenance_missing"]


def test_a_parent_is_named_by_its_sha256_in_a_later_submission(empty_service: Service) -> None:
    empty_service.ingest([TURN])
    sha256 = one(empty_service, "SELECT sha256 FROM memory_node")

    job = empty_service.ingest([NOTE | {"parents": [sha256]}])

    assert job["status"] == "completed"
    (result,) = empty_service.ask("why it broke", project="p")["results"]
    assert [parent["sha256"] for parent in result["parents"]] == [sha256]


def test_refused_lines_are_named_and_their_neighbours_stored(empty_service: Service) -> None:
    nodes: list[Any] = [
        TURN,
        TURN | {"text": "  "},
        "not an object",
        NOTE | {"parents": ["nowhere"]},
        TURN | {"text": "odd year", "occurred_at": "0001-01-01T00:00:00+14:00"},
        TURN | {"text": "deep", "metadata": json.loads('{"a":' * 105 + "1" + "}" * 105)},
        TURN | {"text": "the escape \\u0000 is text"},
    ]

    job = empty_service.ingest(nodes)

    assert job["status"] == "partial"
    assert counts(job) == {"received": 7, "stored": 2, "skipped_count": 5}
    assert (job["files"][0]["status"], job["files"][0]["format"]) == ("partial", "nodes")
    skipped = {line["line"]: line["reason"] for line in job["files"][0]["skipped"]}
    assert list(skipped) == [2, 3, 4, 5, 6]
    for line, said in ((2, "blank"), (3, "object"), (4, "nowhere"), (5, "years"), (6, "nested")):
        assert said in skipped[line]
    answer = empty_service.ask("escape", project="p", level="L0", limit=1)
    assert answer["results"][0]["text"] == "the escape \\u0000 is text"


def test_a_node_that_postgresql_could_not_keep_costs_its_neighbours_nothing(
    empty_service: Service,
) -> None:
    odd: dict[str, dict[str, Any]] = {
        "U+0000": {"text": "a\0b"},
        "holds U+0000": {"text": "t", "metadata": {"deep": [{"\0": 1}]}},
        "text: ": {"text": "half \ud83d"},
        "surrogate": {"text": "t", "metadata": {"\ud83d": 1}},
        "NaN": {"text": "t", "metadata": {"n": float("nan")}},
        "infinity": {"text": "t", "span": {"n": float("-inf")}},
    }
    nodes = [TURN | {"text": "first"}, *(TURN | members for members in odd.values()), TURN]
    headers = {"Authorization": f"Bearer {empty_service.key}", "Content-Type": "application/json"}
    url = f"{empty_service.url}/memory/ingest"
    body = json.dumps({"format": "nodes", "nodes": nodes})

    accepted = requests.post(url, data=body, headers=headers, timeout=40)

    assert accepted.status_code == 202, accepted.text
    job = empty_service.ended(accepted.json()["id"])
    assert (job["status"], job["attempts"]) == ("partial", 1)
    assert counts(job) == {"received": 8, "stored": 2, "skipped_count": 6}
    reasons = [line["reason"] for line in job["files"][0]["skipped"]]
    assert all(said in reason for said, reason in zip(odd, reasons, strict=True))


def test_a_submission_without_any_usable_node_has_failed(empty_service: Service) -> None:
    job = empty_service.ingest([NOTE])

    assert (job["status"], job["error"]["code"]) == ("failed", "all_refused")
    assert one(empty_service, "SELECT count(*) FROM memory_node") == 0


@pytest.mark.parametrize(
    "text", ["👩‍💻 für 木\u202e", "a\tb\r\nc\x07", "%s %(x)s \\ ' \" $1", "x" * 20_000, "\ufeff."]
)
def test_odd_texts_come_back_as_they_were(empty_service: Service, text: str) -> None:
    assert (
        empty_service.ingest([TURN | {"text": text, "tags": [text[:99]]}])["status"] == "completed"
    )

    (result,) = empty_service.ask("anything", project="p", level="L0", method="semantic")["results"]
    assert (result["text"], result["tags"]) == (text, [text[:99]])


@pytest.mark.parametrize("instant", ["0001-01-03T00:00:00Z", "9999-12-29T23:59:59.999999Z"])
def test_instants_at_the_edge_of_time_can_be_answered_with(
    empty_service: Service, instant: str
) -> None:
    empty_service.ingest([TURN | {"occurred_at": instant}])

    (result,) = empty_service.ask("anything", project="p", level="L0", method="semantic")["results"]
    assert result["timestamp"] == instant


def test_metadata_as_deep_as_is_taken_can_be_answered_with(empty_service: Service) -> None:
    deep = json.loads('{"a":' * 97 + "1" + "}" * 97)
    empty_service.ingest([TURN | {"metadata": deep}])

    (result,) = empty_service.ask("anything", project="p", level="L0", method="semantic")["results"]
    assert result["metadata"] == deep


def test_a_supplied_embedding_is_the_one_that_is_searched(empty_service: Service) -> None:
    question = "the orchard in spring"
    empty_service.ingest([TURN | {"text": question}])
    vector = json.loads(one(empty_service, "SELECT embedding::text FROM node_vector"))
    model = one(empty_service, "SELECT name FROM embedding_model WHERE is_active")
    unlike = TURN | {"text": "segfault in the linker", "embedding": [3 * x for x in vector]}

    empty_service.ingest([unlike | {"embedding_model": model}, TURN | {"text": "beside"}])

    answer = empty_service.ask(question, project="p", level="L0", explain="true")
    distances = {c["sha256"]: c["distance"] for c in answer["explain"]["projects"][0]["candidates"]}
    by_text = {result["text"]: distances[result["id"]] for result in answer["results"]}
    assert by_text["segfault in the linker"] == pytest.approx(by_text[question], abs=1e-5)
    assert by_text["segfault in the linker"] < 0.05 < by_text["beside"]


def test_equal_submissions_at_once_make_one_set_of_rows(empty_service: Service) -> None:
    nodes = fixture_nodes()
    with ThreadPoolExecutor(4) as pool:
        keys = [f"key-{number}" for number in range(4)]
        ids = list(pool.map(lambda key: submit(empty_service, nodes, Idempotency_Key=key), keys))

    jobs = [empty_service.ended(job_id) for job_id in ids]

    assert [job["status"] for job in jobs] == ["completed"] * 4
    total = {name: sum(job["files"][0][name] for job in jobs) for name in ("stored", "unchanged")}
    assert total == {"stored": len(nodes), "unchanged": 3 * len(nodes)}
    assert one(empty_service, "SELECT count(*) FROM memory_node") == len(nodes)
    assert one(empty_service, "SELECT sum(nodes) FROM node_count") == len(nodes)


def test_accepted_submissions_outlive_a_queue_that_forgets_everything(
    empty_service: Service,
) -> None:
    with background_stopped(empty_service):
        ids = submit_until_queued(empty_service)
        for job in (job_of(empty_service, job_id) for job_id in ids):
            assert (job["status"], job["attempts"]) == ("queued", 0)
        with empty_service.redis() as redis:
            redis.flushall()

    jobs = [empty_service.ended(job_id, within_s=40) for job_id in ids]

    assert [job["status"] for job in jobs] == ["completed"] * len(ids)
    assert one(empty_service, "SELECT count(*) FROM memory_node") == len(ids)


def test_a_submission_whose_worker_was_killed_is_taken_over_by_its_successor(
    empty_service: Service,
) -> None:
    job_id = submit(empty_service, MANY)
    until(lambda: one(empty_service, "SELECT count(*) > 0 FROM memory_node"))

    os.killpg(group_of(empty_service), signal.SIGKILL)
    left = job_of(empty_service, job_id)
    assert (left["status"], left["attempts"]) == ("running", 1)
    job = empty_service.ended(job_id, within_s=40)  # without waiting for a minute of silence

    assert (job["status"], job["attempts"]) == ("completed", 2)
    assert counts(job)["received"] == len(MANY)
    assert counts(job)["unchanged"] >= 64
    assert one(empty_service, "SELECT count(*) FROM memory_node") == len(MANY)
    assert one(empty_service, "SELECT sum(nodes) FROM node_count") == len(MANY)


def test_a_claim_of_another_host_is_taken_over_when_it_has_been_silent(
    empty_service: Service,
) -> None:
    with background_stopped(empty_service), empty_service.connect() as connection:
        (job_id, *_) = submit_until_queued(empty_service)
        connection.execute(
            "UPDATE ingest_job SET status = 'running', attempts = 1, claimed_host = 'elsewhere',"
            " claimed_pid = 1, heartbeat_at = now() - interval '2 minutes' WHERE id = %s",
            [job_id],
        )

    job = empty_service.ended(job_id, within_s=40)

    assert (job["status"], job["attempts"]) == ("completed", 2)


def test_asking_the_worker_to_end_costs_its_job_neither_an_attempt_nor_a_minute(
    empty_service: Service,
) -> None:
    job_id = submit(empty_service, MANY)
    for _ in range(2):
        (worker,) = until(lambda: pids_of(empty_service, "ingest"))
        until(lambda: job_of(empty_service, job_id)["status"] == "running", within_s=30)
        os.kill(worker, signal.SIGTERM)
        left = until(lambda: _not_running(empty_service, job_id), within_s=5)
        assert (left["status"], left["attempts"]) == ("queued", 0)
        until(lambda w=worker: w not in pids_of(empty_service, "ingest"), within_s=30)

    job = empty_service.ended(job_id, within_s=40)

    assert (job["status"], job["attempts"]) == ("completed", 1)
    assert one(empty_service, "SELECT count(*) FROM memory_node") == len(MANY)


def _not_running(service: Service, job_id: str) -> dict[str, Any] | None:
    job = job_of(service, job_id)
    return job if job["status"] != "running" else None


def test_a_submission_that_ends_every_process_is_given_up(empty_service: Service) -> None:
    job_id = submit(empty_service, MANY)

    for _ in range(5):
        until(lambda: _kill_claimer(empty_service, job_id), within_s=40)
    job = empty_service.ended(job_id, within_s=40)

    assert (job["status"], job["attempts"]) == ("failed", 5)
    assert job["error"]["code"] == "attempts_exhausted"
    assert empty_service.ingest([TURN])["status"] == "completed"


def _kill_claimer(service: Service, job_id: str) -> bool:
    """Kill the process that works on a job, as the kernel does when memory runs out."""
    with service.connect() as connection:
        claim = "SELECT claimed_pid FROM ingest_job WHERE id = %s AND status = 'running'"
        killed = connection.execute(claim, [job_id]).fetchone()
        if killed is None:
            return False
        os.kill(killed[0], signal.SIGKILL)
        until(lambda: connection.execute(claim, [job_id]).fetchone() != killed, within_s=20)
        # What is due later and later need not be waited for.
        connection.execute("UPDATE ingest_job SET due_at = now() - interval '10 seconds'")
    return True


def test_a_submission_that_cannot_be_read_is_failed_at_once(empty_service: Service) -> None:
    deep = "[" * 970 + "]" * 970
    body = f'{{"format": "nodes", "project": null, "projects": null, "nodes": [{deep}]}}'
    with background_stopped(empty_service), empty_service.connect() as connection:
        (job_id, *_) = submit_until_queued(empty_service)
        payload = zlib.compress(body.encode())
        connection.execute("UPDATE ingest_job SET payload = %s WHERE id = %s", [payload, job_id])

    job = empty_service.ended(job_id, within_s=30)

    assert (job["status"], job["attempts"]) == ("failed", 1)
    assert job["error"]["code"] == "unreadable_submission"


def test_a_job_that_was_tried_too_often_is_given_up_with_a_reason(empty_service: Service) -> None:
    with background_stopped(empty_service):
        job_id = submit(empty_service, [TURN])
        with empty_service.connect() as connection:
            connection.execute("UPDATE ingest_job SET attempts = 5")

    job = empty_service.ended(job_id, within_s=30)

    assert (job["status"], job["attempts"]) == ("failed", 5)
    assert job["error"]["code"] == "attempts_exhausted"


def test_a_job_that_was_given_up_can_be_tried_again(empty_service: Service) -> None:
    with background_stopped(empty_service):
        job_id = submit(empty_service, [TURN])
        with empty_service.connect() as connection:
            connection.execute("UPDATE ingest_job SET attempts = 5")
    assert empty_service.ended(job_id, within_s=30)["status"] == "failed"

    again = empty_service.post(f"/memory/ingest/{job_id}/retry", None)

    assert again.status_code == 202, again.text
    job = empty_service.ended(job_id)
    assert (job["status"], job["attempts"], job["error"]) == ("completed", 1, None)
    assert one(empty_service, "SELECT count(*) FROM ingest_job WHERE payload IS NOT NULL") == 0


def test_a_message_delivered_twice_is_worked_on_once(empty_service: Service) -> None:
    with background_stopped(empty_service), empty_service.redis() as redis:
        ids = submit_until_queued(empty_service)
        message = redis.lindex("ingest", 0)
        assert message is not None
        redis.lpush("ingest", message, message)

    jobs = [empty_service.ended(job_id) for job_id in ids]
    until(lambda: not empty_service.redis().llen("ingest"))
    last = empty_service.ingest([TURN | {"text": "after both copies"}])

    assert [job["attempts"] for job in (*jobs, last)] == [1] * (len(ids) + 1)
    assert [job_of(empty_service, job_id) for job_id in ids] == jobs


@pytest.mark.parametrize(
    ("nodes", "parameter", "said"),
    [
        ("[" * 970 + "]" * 970, "nodes[0]", "is nested more than 110 levels deep"),
        ('{"text": ' * 300 + "1" + "}" * 300, "nodes[0]", "is nested more than 110 levels deep"),
        (",".join("0" * 100_001), "nodes", "are 100001, at most 100000 are taken at once"),
    ],
)
def test_what_would_be_trouble_as_a_whole_is_refused_as_a_whole(
    empty_service: Service, nodes: str, parameter: str, said: str
) -> None:
    response = requests.post(
        f"{empty_service.url}/memory/ingest",
        data=f'{{"format": "nodes", "project": "deep", "nodes": [{nodes}]}}',
        headers={
            "Authorization": f"Bearer {empty_service.key}",
            "Content-Type": "application/json",
        },
        timeout=40,
    )

    assert response.status_code == 400
    (error,) = response.json()["errors"]
    assert error["parameter"] == parameter
    assert said in error["reason"]
    assert one(empty_service, "SELECT count(*) FROM ingest_job") == 0


def test_an_unknown_job_is_a_404(service: Service) -> None:
    response = service.get(f"/memory/ingest/{uuid.uuid4()}")

    assert response.status_code == 404
    assert response.json()["error"] == "ingest_not_found"


def test_a_submission_over_several_projects_keeps_them_apart(empty_service: Service) -> None:
    nodes = [TURN | {"id": "t"}, NOTE | {"parents": ["t"]}]
    both = [node | {"project": project} for project in ("p", "q") for node in nodes]

    job = empty_service.ingest(both)

    assert counts(job) == {"received": 4, "stored": 4}
    assert one(empty_service, "SELECT count(DISTINCT sha256) FROM memory_node") == 4
    answer = empty_service.ask("why it broke")
    assert [(r["project"], r["text"]) for r in answer["results"]] == [
        ("p", "why it broke"),
        ("q", "why it broke"),
    ]
    assert len({result["parents"][0]["sha256"] for result in answer["results"]}) == 2


def test_what_came_with_its_vector_is_found_at_once_and_prepared_for_the_reranker_later(
    service: Service,
) -> None:
    with service.connect() as connection:
        row = connection.execute(
            "SELECT embedding::text FROM node_vector WHERE project = 'poimen' AND level = 'L1'"
        ).fetchone()
    assert row is not None
    node = {
        "level": "L0",
        "kind": "turn",
        "source": "s",
        "text": "Requests over 10KB fail since the body buffer is small.",
        "embedding": json.loads(row[0]),
        "embedding_model": "all-MiniLM-L6-v2-int8",
    }

    assert service.ingest([node], "given")["status"] == "completed"

    question = {"query": "why do requests over 10KB fail?", "project": "given", "level": "L0"}
    assert [result["text"] for result in service.ask(**question)["results"]] == [node["text"]]
    until(lambda: service.ask(**question)["results"][0]["rerank_score"], within_s=40)
    with service.connect() as connection:
        assert connection.execute("SELECT count(*) FROM token_backlog").fetchone() == (0,)


def test_the_same_content_again_is_the_first_job(empty_service: Service) -> None:
    first = submit(empty_service, [TURN])
    empty_service.ended(first)

    again = post(empty_service, [TURN])

    assert again.status_code == 202
    assert again.json() == {"id": first, "status": "completed", "duplicate": True}
    assert again.headers["Location"] == f"/memory/ingest/{first}"
    assert one(empty_service, "SELECT count(*) FROM ingest_job") == 1


def test_the_same_content_many_times_at_once_is_one_job(empty_service: Service) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(empty_service, [TURN]).json(), range(20)))

    assert len({answer["id"] for answer in answers}) == 1
    assert sorted(answer["duplicate"] for answer in answers) == [False] + [True] * 19


def test_what_failed_or_was_cancelled_is_no_first_job(empty_service: Service) -> None:
    failed = empty_service.ended(submit(empty_service, [NOTE]))
    assert failed["status"] == "failed"

    assert post(empty_service, [NOTE]).json()["duplicate"] is False


def test_an_earlier_version_again_is_stored_again(empty_service: Service) -> None:
    """The first job is no answer to it: another one has changed what that had stored."""
    old, new = ([TURN | {"tags": [tag]}] for tag in ("old", "new"))
    for nodes in (old, new):
        empty_service.ended(submit(empty_service, nodes))

    again = post(empty_service, old)

    assert again.json()["duplicate"] is False
    assert counts(empty_service.ended(again.json()["id"])) == {"received": 1, "updated": 1}
    (result,) = empty_service.ask("broke", project="p", level="L0")["results"]
    assert result["tags"] == ["old"]


def test_another_key_does_not_learn_of_the_first_job(empty_service: Service) -> None:
    first = submit(empty_service, [TURN])

    again = Caller.new(empty_service).send(
        "POST", "/memory/ingest", json={"format": "nodes", "nodes": [TURN]}
    )

    assert again.json()["duplicate"] is False
    assert again.json()["id"] != first


def test_an_idempotency_key_gives_the_same_job_and_belongs_to_its_user(
    empty_service: Service,
) -> None:
    first = submit(empty_service, [TURN], Idempotency_Key="k")
    same = {"nodes": [dict(reversed(TURN.items()))], "format": "nodes"}

    again = empty_service.post("/memory/ingest", same, Idempotency_Key="k")
    other = Caller.new(empty_service).send(
        "POST", "/memory/ingest", json=same, headers={"Idempotency-Key": "k"}
    )

    assert (again.status_code, again.json()["id"]) == (202, first)
    assert again.json()["duplicate"] is True
    assert again.headers["Idempotency-Replayed"] == "true"
    assert other.status_code == 202
    assert other.json()["id"] != first
    assert "Idempotency-Replayed" not in other.headers


def test_an_idempotency_key_for_other_content_is_refused_and_nothing_is_lost_silently(
    empty_service: Service,
) -> None:
    submit(empty_service, [TURN], Idempotency_Key="k")

    response = post(empty_service, [TURN | {"text": "another"}], Idempotency_Key="k")

    assert (response.status_code, response.json()["error"]) == (422, "idempotency_conflict")
    assert one(empty_service, "SELECT count(*) FROM ingest_job") == 1


def test_an_idempotency_key_that_is_just_being_accepted_is_a_409(empty_service: Service) -> None:
    key_id = Caller.new(empty_service)
    with psycopg.connect(empty_service.database_url) as held:
        held.execute(
            "INSERT INTO ingest_job (id, key_id, format, status, idempotency_key, fingerprint)"
            " VALUES (%s, %s, 'nodes', 'queued', 'k', '')",
            [uuid.uuid4(), key_id.key.split("_")[1]],
        )
        body = {"format": "nodes", "nodes": [TURN]}
        headers = {"Idempotency-Key": "k"}
        response = key_id.send("POST", "/memory/ingest", json=body, headers=headers)
        held.rollback()

    assert (response.status_code, response.json()["error"]) == (409, "idempotency_in_progress")
    assert key_id.send("POST", "/memory/ingest", json=body, headers=headers).status_code == 202


@pytest.mark.parametrize("key", ["", "with blank", "x" * 256, "木".encode().decode("latin-1")])
def test_an_odd_idempotency_key_is_a_400(empty_service: Service, key: str) -> None:
    assert post(empty_service, [TURN], Idempotency_Key=key).status_code == 400


def test_submissions_are_listed_newest_first_page_by_page(empty_service: Service) -> None:
    ids = [submit(empty_service, [TURN | {"text": f"turn {n}"}]) for n in range(5)]
    failed = submit(empty_service, [NOTE])
    for job_id in (*ids, failed):
        empty_service.ended(job_id)

    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = empty_service.get("/memory/ingest", limit=2, **cursor).json()
        found += [job["id"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}

    assert found == [failed, *reversed(ids)]
    (listed,) = empty_service.get("/memory/ingest", status="failed").json()["jobs"]
    assert (listed["id"], listed["error"]["code"]) == (failed, "all_refused")
    assert empty_service.get("/memory/ingest", status="open").json()["jobs"] == []
    assert empty_service.get("/memory/ingest", status="done").status_code == 400
    assert empty_service.get("/memory/ingest", cursor="x").status_code == 400


def test_a_key_for_some_projects_sees_no_job_of_another_key(empty_service: Service) -> None:
    job_id = submit(empty_service, [TURN])
    other = Caller.new(empty_service, ["p"])

    assert other.send("GET", "/memory/ingest").json()["jobs"] == []
    for verb, path in (("GET", ""), ("DELETE", ""), ("POST", "/retry")):
        assert other.send(verb, f"/memory/ingest/{job_id}{path}").status_code == 404
    assert Caller.new(empty_service).send("GET", f"/memory/ingest/{job_id}").status_code == 200


def test_a_queued_job_that_is_cancelled_stores_nothing_and_stays_cancelled(
    empty_service: Service,
) -> None:
    with background_stopped(empty_service):
        job_id = submit(empty_service, [TURN])
        cancelled = cancel(empty_service, job_id)
    last = empty_service.ingest([TURN | {"text": "the one after"}])

    assert (cancelled["status"], last["status"]) == ("cancelled", "completed")
    assert cancel(empty_service, job_id) == job_of(empty_service, job_id) == cancelled
    assert one(empty_service, "SELECT count(*) FROM memory_node") == 1
    assert one(empty_service, "SELECT count(*) FROM ingest_job WHERE payload IS NOT NULL") == 0
    retried = empty_service.post(f"/memory/ingest/{job_id}/retry", None)
    assert (retried.status_code, retried.json()["error"]) == (409, "nothing_to_retry")


def test_a_running_job_that_is_cancelled_keeps_what_it_stored_and_frees_its_worker(
    empty_service: Service,
) -> None:
    job_id = submit(empty_service, MANY)
    until(lambda: one(empty_service, "SELECT count(*) > 0 FROM memory_node"))

    cancelled = cancel(empty_service, job_id)
    last = empty_service.ingest([TURN | {"text": "the one after"}])

    assert (cancelled["status"], last["status"]) == ("cancelled", "completed")
    assert job_of(empty_service, job_id)["status"] == "cancelled"
    assert 0 < one(empty_service, "SELECT count(*) FROM memory_node") < len(MANY)


def test_jobs_cancelled_at_any_moment_have_one_end_that_never_changes(
    empty_service: Service,
) -> None:
    ids = [submit(empty_service, [TURN | {"text": f"turn {n}"}]) for n in range(20)]
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda job_id: cancel(empty_service, job_id), reversed(ids)))
    ended = [empty_service.ended(job_id) for job_id in reversed(ids)]
    empty_service.ingest([NOTE])

    assert {job["status"] for job in ended} <= {"cancelled", "completed"}
    for job, once in zip(ended, said, strict=True):
        assert job_of(empty_service, job["id"]) == job
        if once["status"] in ("cancelled", "completed"):
            assert job == once


def cancel(service: Service, job_id: str) -> dict[str, Any]:
    response = Caller(service, service.key).send("DELETE", f"/memory/ingest/{job_id}")
    assert response.status_code == 200, response.text
    job: dict[str, Any] = response.json()
    return job


def test_what_was_refused_for_good_is_not_tried_again(empty_service: Service) -> None:
    failed = empty_service.ingest([NOTE])
    partial = empty_service.ingest([NOTE, TURN])

    for job in (failed, partial):
        response = empty_service.post(f"/memory/ingest/{job['id']}/retry", None)
        assert (response.status_code, response.json()["error"]) == (409, "nothing_to_retry")
