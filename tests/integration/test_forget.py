"""What is forgotten is gone from every answer and every table, and nothing that rests on it."""

import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import requests

from tests.integration.callers import JOBS, Caller
from tests.integration.obstacles import pids_of, stopped
from tests.integration.service import Service, until
from tests.integration.uploads import (
    begin,
    check_whole,
    claude,
    nodes,
    pi,
    sources,
    take,
    take_one,
    texts,
)

MARKER = "kittiwake-zeta"
TALK = [
    f"What does the {MARKER} eat?",
    f"The {MARKER} eats sand eels.",
    "Thanks.",
    "At your service.",
]
PAGE = f"# Birds\n\nThe {MARKER} nests on ledges.\n".encode()


def delete(service: Service, path: str, **parameters: Any) -> requests.Response:
    return Caller(service, service.key).send("DELETE", path, params=parameters)


def forget(service: Service, path: str, **parameters: Any) -> int:
    response = delete(service, path, **parameters)
    assert response.status_code == 200, response.text
    count: int = response.json()["nodes"]
    return count


def places_of(service: Service, marker: str = MARKER) -> list[str]:
    """Every column of every table that holds a word, also within what is packed."""
    found = []
    with service.connect() as connection:
        columns = connection.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = 'public' AND data_type IN"
            " ('text', 'bytea', 'jsonb', 'ARRAY', 'USER-DEFINED')"
        ).fetchall()
        for table, column, kind in columns:
            rows = connection.execute(f'SELECT "{column}" FROM "{table}"'.encode()).fetchall()
            if any(marker in readable(value) for (value,) in rows):
                found.append(f"{table}.{column} ({kind})")
    return found


def readable(value: Any) -> str:
    if isinstance(value, bytes):
        with suppress(zlib.error):
            value = zlib.decompress(value)
        return value.decode(errors="replace")
    return json.dumps(value, default=str)


def keys_in_valkey_with(service: Service, marker: str) -> dict[str, int]:
    """The keys whose value holds a word, with the milliseconds that they have left."""
    found = {}
    with service.redis() as redis:
        for key in redis.scan_iter(count=1000):
            dump = redis.dump(key) or b""
            values: list[bytes] = [dump]
            if redis.type(key) == b"hash":
                values += redis.hvals(key)
            elif redis.type(key) == b"string":
                values.append(redis.get(key) or b"")
            if any(marker in readable(value) for value in values):
                found[key.decode()] = redis.pttl(key)
    return found


def asked(service: Service) -> str:
    """A submitted question that has found what is to be forgotten; its id."""
    job = Caller(service, service.key).completed("what does it eat?", level=["L0", "L1", "L2"])
    assert MARKER in json.dumps(job)
    job_id: str = job["id"]
    return job_id


def check_gone(service: Service, job_id: str) -> None:
    assert places_of(service) == []
    gone = service.get(f"{JOBS}/{job_id}")
    assert (gone.status_code, gone.json()["error"]) == (410, "job_expired")
    for level in ("L0", "L1", "L2"):
        assert MARKER not in json.dumps(service.ask("what does it eat?", level=level))
    check_whole(service)


def audit(service: Service) -> list[tuple[Any, ...]]:
    with service.connect() as connection:
        query = "SELECT project, what, nodes FROM forgetting ORDER BY id"
        return connection.execute(query).fetchall()


def test_a_forgotten_source_is_nowhere(empty_service: Service) -> None:
    take(empty_service, {"s.jsonl": pi(TALK), "fine.md": b"# Other\n\ntext\n"}, project="p")
    (session,) = (name for name in sources(empty_service) if name.startswith("pi"))
    turns = [n["sha256"] for n in nodes(empty_service) if n["source"] == session]
    note = {"level": "L1", "kind": "note", "source": "n", "text": f"a {MARKER} eats eels"}
    empty_service.ingest([note | {"parents": turns[:2]}], "p")
    job_id = asked(empty_service)

    count = forget(empty_service, "/memory/projects/p/sources", source=session)

    assert count == 5
    check_gone(empty_service, job_id)
    assert set(sources(empty_service)) == {"fine.md"}
    assert audit(empty_service) == [("p", "source", 5)]
    again = delete(empty_service, "/memory/projects/p/sources", source=session)
    assert (again.status_code, again.json()["error"]) == (404, "source_not_found")


def test_a_forgotten_node_is_nowhere_not_even_in_a_title(empty_service: Service) -> None:
    talk = [TALK[0], "It eats sand eels.", "Thanks."]
    take_one(empty_service, claude(talk))
    (sha256,) = [n["sha256"] for n in nodes(empty_service) if n["text"] == TALK[0]]
    job_id = asked(empty_service)

    count = forget(empty_service, f"/memory/nodes/p/{sha256}")

    assert count == 1
    check_gone(empty_service, job_id)
    assert texts(empty_service) == talk[1:]
    gone = empty_service.get(f"/memory/nodes/p/{sha256}")
    assert (gone.status_code, gone.json()["error"]) == (404, "node_not_found")


def test_a_forgotten_document_takes_its_chunks_and_its_source_along(empty_service: Service) -> None:
    take_one(empty_service, PAGE, "birds.md")
    (root,) = [n["sha256"] for n in nodes(empty_service) if n["kind"] == "document"]

    assert forget(empty_service, f"/memory/nodes/p/{root}") == 2

    assert places_of(empty_service) == []
    assert sources(empty_service) == {}


def test_a_forgotten_project_is_nowhere_and_may_come_again(empty_service: Service) -> None:
    take(empty_service, {"s.jsonl": pi(TALK), "birds.md": PAGE}, project="p")
    take(empty_service, {"fine.md": b"# Other\n\ntext\n"}, project="q")
    job_id = asked(empty_service)

    count = forget(empty_service, "/memory/projects/p")

    assert count == 6
    check_gone(empty_service, job_id)
    assert delete(empty_service, "/memory/projects/p").status_code == 404
    assert set(sources(empty_service, "q")) == {"fine.md"}
    assert audit(empty_service) == [("p", "project", 6)]
    body = {"format": "auto", "project": "p", "files": [{"name": "b.md", "text": PAGE.decode()}]}
    assert empty_service.post("/memory/ingest", body).json()["duplicate"] is False


def test_the_same_nodes_can_be_stored_again_after_their_project_was_forgotten(
    empty_service: Service,
) -> None:
    """Also where each of them names its project, and the submission none."""
    node = {"project": "p", "level": "L0", "kind": "turn", "source": "s", "text": MARKER}
    body = {"format": "nodes", "nodes": [node]}
    first = empty_service.post("/memory/ingest", body, Idempotency_Key="k").json()
    empty_service.ended(first["id"])
    forget(empty_service, "/memory/projects/p")

    second = empty_service.post("/memory/ingest", body).json()
    replayed = empty_service.post("/memory/ingest", body, Idempotency_Key="k").json()

    assert second["duplicate"] is False
    assert empty_service.ended(second["id"])["files"][0]["stored"] == 1
    assert replayed["id"] == first["id"]


def test_answers_that_valkey_keeps_go_by_themselves(empty_service: Service) -> None:
    take_one(empty_service, pi(TALK))
    empty_service.ask("what does it eat?", project="p", level="L0")
    job_id = asked(empty_service)
    forget(empty_service, "/memory/projects/p")

    assert all(0 <= left <= 60_000 for left in keys_in_valkey_with(empty_service, MARKER).values())
    assert empty_service.get(f"{JOBS}/{job_id}").status_code == 410


def test_an_answer_that_only_counts_what_is_forgotten_goes_with_it(
    empty_service: Service,
) -> None:
    named = {f"{MARKER}/s.md": b"# Birds\n\nSand eels.\n", "fine.md": b"# Tides\n\nOf the sea.\n"}
    take(empty_service, named, project="p")
    (page,) = (name for name in sources(empty_service) if name.startswith(MARKER))
    caller = Caller(empty_service, empty_service.key)
    filters = {"source_pattern": "fine.md"}
    unconcerned = caller.completed("tides of the sea", filters=filters, facets=False)["id"]
    job = caller.completed("tides of the sea", limit=1, facets=True)
    assert job["facets"]["sources"] == {MARKER: 1, "fine.md": 1}
    assert MARKER not in json.dumps(job["results"])

    forget(empty_service, "/memory/projects/p/sources", source=page)

    assert caller.look(job["id"]).json()["error"] == "job_expired"
    assert caller.show(unconcerned)["status"] == "completed"


def test_what_two_sources_support_is_kept_until_the_last_of_them_goes(
    empty_service: Service,
) -> None:
    take(empty_service, {"a.jsonl": pi(TALK, "s-a"), "b.md": PAGE}, project="p")
    stored = nodes(empty_service)
    turn = next(n["sha256"] for n in stored if n["text"] == TALK[1])
    whole = next(n["sha256"] for n in stored if n["kind"] == "document")
    l1 = {"level": "L1", "kind": "note", "source": "n", "text": "it eats eels", "id": "l1"}
    l2 = {"level": "L2", "kind": "synthesis", "source": "n", "text": "about birds"}
    empty_service.ingest([l1 | {"parents": [turn, whole]}, l2 | {"parents": ["l1"]}], "p")
    session, page = sorted(sources(empty_service), reverse=True)

    forget(empty_service, "/memory/projects/p/sources", source=session)

    by_text = {n["text"]: n for n in nodes(empty_service)}
    assert by_text["it eats eels"]["parents"] == [whole]
    assert by_text["it eats eels"]["stale_since"] is not None
    assert by_text["about birds"]["parents"] == [by_text["it eats eels"]["sha256"]]
    check_whole(empty_service)

    assert forget(empty_service, "/memory/projects/p/sources", source=page) == 4
    assert nodes(empty_service) == []


def test_what_failed_and_was_kept_for_another_try_is_forgotten_too(empty_service: Service) -> None:
    take_one(empty_service, b"# Other\n\ntext\n", "fine.md")
    with stopped(pids_of(empty_service, "ingest")):
        for body in ({"project": "p"}, {}):
            begin(empty_service, {"s.jsonl": pi(TALK)}, **body)
        with empty_service.connect() as connection:
            connection.execute(
                "UPDATE ingest_job SET status = 'failed', finished_at = now()"
                " WHERE status = 'queued'"
            )
    assert places_of(empty_service) == ["ingest_file.data (bytea)"]

    forget(empty_service, "/memory/projects/p/sources", source="fine.md")

    assert places_of(empty_service) == []


def test_what_waits_for_a_project_is_cancelled_with_it(empty_service: Service) -> None:
    take_one(empty_service, b"# Other\n\ntext\n", "fine.md")
    with stopped(pids_of(empty_service, "ingest")):
        job_id = begin(empty_service, {"s.jsonl": pi(TALK)}, project="p")
        forget(empty_service, "/memory/projects/p")
    last = take(empty_service, {"fine.md": b"# Other\n\ntext\n"}, project="q")

    job = empty_service.get(f"/memory/ingest/{job_id}").json()
    assert (job["status"], last["status"]) == ("cancelled", "completed")
    assert places_of(empty_service) == []
    assert [p["project"] for p in empty_service.get("/memory/projects").json()["projects"]] == ["q"]


def test_only_who_may_write_to_a_project_forgets_in_it(empty_service: Service) -> None:
    take_one(empty_service, PAGE, "birds.md")
    sha256 = nodes(empty_service)[0]["sha256"]
    other = Caller.new(empty_service, ["q"])
    for path in ("/memory/projects/p", f"/memory/nodes/p/{sha256}"):
        assert other.send("DELETE", path).status_code == 404
    gone = other.send("DELETE", "/memory/projects/p/sources", params={"source": "birds.md"})
    assert gone.status_code == 404
    assert len(nodes(empty_service)) == 2


def test_a_node_is_found_by_the_beginning_of_its_sha256_in_its_own_project(
    empty_service: Service,
) -> None:
    for project in ("p", "q"):
        empty_service.ingest([{"level": "L0", "kind": "turn", "source": "s", "text": "a"}], project)
    alike = ["abcdef01" + end * 56 for end in "0f"] + ["abcdef02" + "0" * 56]
    with empty_service.connect() as connection:
        for project, shas in (("p", alike), ("q", ["abcdef01" + "7" * 56])):
            for sha256 in shas:
                connection.execute(
                    "INSERT INTO memory_node (project, sha256, level, kind, source, text)"
                    " VALUES (%s, %s, 'L0', 'turn', 's', 'b')",
                    [project, sha256],
                )

    def found(prefix: str) -> list[str]:
        answer = empty_service.get("/memory/nodes/p", prefix=prefix)
        assert answer.status_code == 200, answer.text
        assert not answer.json()["has_more"]
        return [node["sha256"] for node in answer.json()["nodes"]]

    assert found("abcdef01") == alike[:2]
    assert found("abcdef01f") == found(alike[1]) == [alike[1]]
    assert found("abcdef03") == []
    for wrong in ("abcdef0", "abcdef0g", "ABCDEF01", "%%%%%%%%", "a" * 65):
        refused = empty_service.get("/memory/nodes/p", prefix=wrong)
        assert (refused.status_code, refused.json()["errors"][0]["parameter"]) == (400, "prefix")
    assert delete(empty_service, "/memory/nodes/p/abcdef02").status_code == 404
    other = Caller.new(empty_service, ["q"])
    hidden = other.send("GET", "/memory/nodes/p", params={"prefix": "abcdef01"})
    assert hidden.status_code == 404

    ambiguous = empty_service.mem("forget", "-p", "p", "--node", "abcdef01")
    assert (ambiguous.returncode, len(nodes(empty_service))) == (2, 4)
    assert all(sha256 in ambiguous.stderr for sha256 in alike[:2])
    assert empty_service.mem("forget", "-p", "p", "--node", "p/abcdef02").returncode == 0
    assert alike[2] not in [node["sha256"] for node in nodes(empty_service)]


def test_a_source_that_is_forgotten_while_it_is_stored_is_there_whole_or_not_at_all(
    empty_service: Service,
) -> None:
    turns = [f"turn {n} of the ebb and the flood" for n in range(200)]
    data = pi(turns)
    for _ in range(2):
        empty_service.empty()
        job_id = begin(empty_service, {"a.jsonl": data}, project="p")
        until(lambda: texts(empty_service))
        (source,) = sources(empty_service)
        forget(empty_service, "/memory/projects/p/sources", source=source)

        job = empty_service.ended(job_id)

        assert (job["status"], job["attempts"]) == ("completed", 1)
        assert texts(empty_service) in ([], turns)
        check_whole(empty_service)


def test_storing_and_forgetting_at_once_neither_deadlocks_nor_leaves_half(
    empty_service: Service,
) -> None:
    files = {"a.jsonl": claude(TALK), "birds.md": PAGE}

    def store(_: int) -> str:
        return str(take(empty_service, files, project="p")["status"])

    def take_away(number: int) -> int:
        if number % 3 == 0:
            return delete(empty_service, "/memory/projects/p").status_code
        where = "/memory/projects/p/sources"
        return delete(empty_service, where, source="birds.md").status_code

    with ThreadPoolExecutor(6) as pool:
        stored = pool.map(store, range(12))
        taken = list(pool.map(take_away, range(12)))
        assert set(stored) <= {"completed", "cancelled"}
    assert set(taken) <= {200, 404}
    check_whole(empty_service)
    found = {n["source"] for n in nodes(empty_service)}
    kinds = [n["kind"] for n in nodes(empty_service)]
    assert (kinds.count("document"), kinds.count("chunk")) in ((0, 0), (1, 1))
    assert len(found) == len(sources(empty_service)) if found else True
