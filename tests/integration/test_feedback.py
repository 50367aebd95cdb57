"""What is said of results: tied to what was served, kept, reported, and forgotten with the node."""

import json
from pathlib import Path
from typing import Any

import pytest
import requests

from app.eval.dataset import load_dataset, load_judged
from app.wiring import create_key
from tests.integration.callers import Caller
from tests.integration.service import Service
from tests.integration.uploads import take_one

FEEDBACK = "/memory/query/feedback"
QUESTION = "why did requests over 10KB fail?"
PAGE = b"# Ferry\n\nThe ferry leaves at seven and at nine.\n"
GONE = "0" * 32
Document = dict[str, Any]


def ask(caller: Caller, query: str = QUESTION, **parameters: Any) -> Document:
    response = caller.send("GET", "/memory/query", params={"query": query} | parameters)
    assert response.status_code == 200, response.text
    answer: Document = response.json()
    return answer


def say(caller: Caller, query_id: str, result_id: str, **said: Any) -> requests.Response:
    body = {"query_id": query_id, "result_id": result_id} | said
    return caller.send("POST", FEEDBACK, json=body)


def said(caller: Caller, query_id: str, result_id: str, **what: Any) -> Document:
    """Feedback that must be taken."""
    response = say(caller, query_id, result_id, **what)
    assert response.status_code == 201, response.text
    recorded: Document = response.json()
    assert (recorded["query_id"], recorded["status"]) == (query_id, "recorded")
    return recorded


def report(caller: Caller, **parameters: Any) -> list[Document]:
    response = caller.send("GET", FEEDBACK, params=parameters)
    assert response.status_code == 200, response.text
    found: list[Document] = response.json()["results"]
    return found


def rows(service: Service, columns: str = "*") -> list[tuple[Any, ...]]:
    with service.connect() as connection:
        return connection.execute(f"SELECT {columns} FROM feedback ORDER BY id".encode()).fetchall()


def refused(response: requests.Response, status: int, code: str) -> str:
    assert (response.status_code, response.json()["error"]) == (status, code), response.text
    detail: str = response.json()["detail"]
    return detail


@pytest.fixture
def caller(service: Service) -> Caller:
    return Caller(service, service.key)


@pytest.fixture
def others(service: Service) -> list[Caller]:
    return [Caller.new(service) for _ in range(2)]


def test_it_is_kept_with_what_was_served(service: Service, caller: Caller) -> None:
    answer = ask(caller, project="poimen", limit=3, method="hybrid")
    second = answer["results"][1]

    recorded = said(caller, answer["query_id"], second["id"], relevant=True, rating=4)

    assert recorded["is_tied"] is True
    columns = "project, rank, method, semantic, lexical, fused, rerank_score, relevant, rating"
    breakdown = second["breakdown"]
    scores = (breakdown["semantic"], breakdown["lexical"], breakdown["fused"])
    assert rows(service, columns) == [
        ("poimen", 2, "hybrid", *scores, second["rerank_score"], True, 4)
    ]


def test_a_secret_in_what_is_said_is_masked_before_it_is_stored(
    service: Service, caller: Caller
) -> None:
    secret = "ghp_" + "Zk3Jw9Qe1" * 4
    answer = ask(caller, project="poimen", limit=1)
    result = answer["results"][0]["id"]

    words = {"feedback_text": f"it shows {secret}", "query_text": f"where is {secret} used?"}
    said(caller, answer["query_id"], result, relevant=False, **words)

    (kept,) = rows(service, "feedback_text, query_text")
    assert kept == ("it shows [redacted: github-token]", "where is [redacted: github-token] used?")
    assert secret not in json.dumps(report(caller, keys=1))


def test_said_again_it_takes_the_place_of_what_the_same_key_said(
    service: Service, caller: Caller, others: list[Caller]
) -> None:
    answer = ask(caller, project="poimen")
    result, *_ = answer["results"]

    said(caller, answer["query_id"], result["id"], relevant=True, feedback_text="good")
    said(caller, answer["query_id"], result["id"], rating=2)

    assert rows(service, "relevant, rating, feedback_text") == [(None, 2, None)]
    assert refused(
        say(others[0], answer["query_id"], result["id"], rating=1), 404, "query_not_found"
    )


def test_a_result_of_another_answer_is_refused(caller: Caller) -> None:
    answer = ask(caller, project="poimen", limit=1)

    detail = refused(say(caller, answer["query_id"], "f" * 64, rating=1), 400, "invalid_parameters")

    assert "result_id" in detail


def test_what_is_not_known_any_more_is_taken_with_the_question_and_is_not_tied(
    service: Service, caller: Caller
) -> None:
    result, *_ = ask(caller, project="poimen")["results"]

    without = say(caller, GONE, result["id"], relevant=False)
    recorded = said(caller, GONE, result["id"], relevant=False, query_text=QUESTION)

    assert "query_text" in refused(without, 400, "invalid_parameters")
    assert recorded["is_tied"] is False
    assert rows(service, "project, rank, is_tied, query_text") == [
        ("poimen", None, False, QUESTION)
    ]


def test_what_was_tied_stays_so_when_the_answer_is_not_known_any_more(
    service: Service, caller: Caller
) -> None:
    answer = ask(caller, project="poimen")
    result, *_ = answer["results"]
    said(caller, answer["query_id"], result["id"], relevant=True)
    with service.redis() as redis:
        assert redis.delete(f"poimen:served:{answer['query_id']}") == 1

    recorded = said(caller, answer["query_id"], result["id"], rating=1, query_text=QUESTION)

    assert recorded["is_tied"] is True
    assert rows(service, "rank, rating, relevant") == [(1, 1, None)]


def test_what_is_remembered_of_an_answer_is_small_and_goes_after_a_day(
    service: Service, caller: Caller
) -> None:
    query_id = ask(caller, limit=50)["query_id"]

    with service.redis() as redis:
        key = f"poimen:served:{query_id}"
        assert 86_000 < redis.ttl(key) <= 86_400
        assert redis.strlen(key) < 8_000
        assert QUESTION.encode() not in (redis.get(key) or b"")


def test_a_job_s_results_are_judged_by_its_id(
    service: Service, caller: Caller, others: list[Caller]
) -> None:
    job = caller.completed(QUESTION, project="poimen", method="semantic")
    result, *_ = job["results"]

    assert said(caller, job["id"], result["id"], relevant=True)["is_tied"]
    assert rows(service, "rank, method, query_text") == [(1, "semantic", QUESTION)]
    refused(say(others[0], job["id"], result["id"], relevant=True), 404, "query_not_found")
    refused(say(caller, job["id"], "f" * 64, relevant=True), 400, "invalid_parameters")
    assert caller.send("DELETE", f"/memory/query/jobs/{job['id']}").status_code == 204
    later = say(caller, job["id"], result["id"], relevant=True, query_text="another way to ask")
    assert later.status_code == 201


def test_results_in_context_are_judged_too_and_so_are_those_that_were_folded(
    caller: Caller,
) -> None:
    parameters = {"query": QUESTION, "project": "poimen", "level": "L0,L1,L2", "limit": 50}
    answer = caller.send("GET", "/memory/query/with-context", params=parameters).json()
    folded = [each["sha256"] for result in answer["results"] for each in result["folded"]]

    for result_id in (answer["results"][0]["id"], folded[0]):
        assert said(caller, answer["query_id"], result_id, relevant=True)["is_tied"]


def test_a_reading_key_reads_reports_and_gives_no_feedback(service: Service) -> None:
    _, key = create_key(service.database_url, "reads", None, can_write=False)
    reader = Caller(service, key)
    answer = ask(reader, project="poimen")

    refused(
        say(reader, answer["query_id"], answer["results"][0]["id"], rating=1), 403, "not_permitted"
    )
    unread = reader.send("POST", FEEDBACK, data="{", headers={"Content-Type": "text/plain"})
    refused(unread, 403, "not_permitted")
    assert report(reader) == []
    assert requests.post(service.url + FEEDBACK, json={}, timeout=10).status_code == 401


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({}, "relevant"),
        ({"relevant": "yes"}, "relevant"),
        ({"relevant": None}, "relevant"),
        ({"rating": 0}, "rating"),
        ({"rating": 6}, "rating"),
        ({"rating": 2.5}, "rating"),
        ({"rating": True}, "rating"),
        ({"rating": 1, "query_id": "q-123"}, "query_id"),
        ({"rating": 1, "result_id": "chunk-123"}, "result_id"),
        ({"rating": 1, "feedback_text": ""}, "feedback_text"),
        ({"rating": 1, "feedback_text": "a\x00b"}, "feedback_text"),
        ({"rating": 1, "feedback_text": "x" * 4001}, "feedback_text"),
        ({"rating": 1, "query_text": "   "}, "query_text"),
        ({"rating": 1, "stars": 5}, "stars"),
    ],
)
def test_what_cannot_be_used_is_named(service: Service, body: Document, parameter: str) -> None:
    whole = {"query_id": GONE, "result_id": "a" * 64} | body

    response = service.post(FEEDBACK, whole)

    refused(response, 400, "invalid_parameters")
    assert parameter in [error["parameter"] for error in response.json()["errors"]]
    assert rows(service) == []


def test_what_several_keys_call_irrelevant_is_reported(
    caller: Caller, others: list[Caller]
) -> None:
    for number, each in enumerate((caller, *others)):
        answer = ask(each, project="poimen", limit=2)
        first, second = answer["results"]
        said(each, answer["query_id"], first["id"], relevant=number == 0, rating=1 + number)
        said(each, answer["query_id"], second["id"], relevant=number > 0)
    again = ask(caller, project="poimen", limit=2)
    said(caller, again["query_id"], second["id"], relevant=False)  # the same key counts once

    (doubtful,) = report(others[1])

    assert doubtful["result_id"] == first["id"]
    assert (doubtful["project"], doubtful["level"]) == ("poimen", first["level"])
    assert (doubtful["irrelevant_for"], doubtful["relevant_for"]) == (2, 1)
    assert (doubtful["is_irrelevant"], doubtful["is_unresolved"]) == (True, False)
    assert doubtful["rating"] == 2.0
    assert len(report(caller, keys=1)) == 2
    assert report(caller, keys=3) == []


def test_everybody_reads_their_own_words_and_one_who_may_do_all_reads_them_all(
    service: Service, caller: Caller
) -> None:
    mine, theirs = (Caller.new(service, ["poimen"]) for _ in range(2))
    for each, words in ((mine, "mine"), (theirs, "theirs")):
        answer = ask(each, limit=1)
        result_id = answer["results"][0]["id"]
        said(each, answer["query_id"], result_id, relevant=False, feedback_text=words)

    def read(who: Caller) -> list[str]:
        (doubtful,) = report(who)
        return [remark["feedback_text"] for remark in doubtful["remarks"]]

    assert read(mine) == ["mine"]
    assert read(theirs) == ["theirs"]
    assert read(caller) == ["theirs", "mine"]


def test_a_key_reads_reports_of_its_own_projects_alone(
    service: Service, caller: Caller, others: list[Caller]
) -> None:
    for each in others:
        for project in ("poimen", "agent-rust"):
            answer = ask(each, "registry token", project=project, limit=1)
            said(each, answer["query_id"], answer["results"][0]["id"], relevant=False)
    said(others[0], GONE, "e" * 64, rating=1, query_text="of nothing that is there")
    poimen = Caller.new(service, ["poimen"])

    assert [each["project"] for each in report(poimen)] == ["poimen"]
    assert [each["project"] for each in report(poimen, project="poimen")] == ["poimen"]
    response = poimen.send("GET", FEEDBACK, params={"project": "agent-rust"})
    refused(response, 404, "project_not_found")
    assert [each["project"] for each in report(caller)] == [None, "agent-rust", "poimen"]
    narrow = say(poimen, GONE, answer["results"][0]["id"], rating=1, query_text="why?")
    assert narrow.status_code == 201
    assert rows(service, "project")[-1] == (None,)  # nothing is told of a project out of reach


def test_a_report_comes_in_pages(caller: Caller, others: list[Caller]) -> None:
    for each in others:
        answer = ask(each, project="poimen", limit=5)
        for result in answer["results"]:
            said(each, answer["query_id"], result["id"], relevant=False)
    everything = [each["result_id"] for each in report(caller)]
    assert len(everything) == len(answer["results"]) > 2

    found: list[str] = []
    parameters: Document = {"limit": 1}
    while True:
        page = caller.send("GET", FEEDBACK, params=parameters).json()
        found += [each["result_id"] for each in page["results"]]
        if page["next_cursor"] is None:
            break
        parameters["cursor"] = page["next_cursor"]

    assert found == everything
    wrong = caller.send("GET", FEEDBACK, params={"cursor": "nonsense"})
    refused(wrong, 400, "invalid_parameters")


def judgements(caller: Caller, **parameters: Any) -> list[Document]:
    response = caller.send("GET", f"{FEEDBACK}/judgements", params=parameters)
    assert response.status_code == 200, response.text
    found: list[Document] = response.json()["judgements"]
    return found


def test_judgements_are_read_one_by_one_in_pages(service: Service) -> None:
    mine, theirs = (Caller.new(service, ["poimen"]) for _ in range(2))
    for each in (mine, theirs):
        answer = ask(each, project="poimen", limit=3)
        for number, result in enumerate(answer["results"]):
            words = {} if number == 2 else {"query_text": QUESTION}
            said(each, answer["query_id"], result["id"], rating=1 + number, **words)

    own = judgements(mine)
    everything = judgements(Caller(service, service.key), limit=100)
    pages, cursor = list[Document](), None
    while True:
        page = mine.send(
            "GET",
            f"{FEEDBACK}/judgements",
            params={"limit": 1, "cursor": cursor} if cursor else {"limit": 1},
        ).json()
        pages += page["judgements"]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert [(each["rating"], each["query_text"]) for each in own] == [(2, QUESTION), (1, QUESTION)]
    assert own[0]["result_id"] == answer["results"][1]["id"]
    assert len(everything) == 4  # one that may write to every project reads what all said
    assert pages == own
    assert judgements(Caller.new(service, ["other"])) == []
    unknown = mine.send("GET", f"{FEEDBACK}/judgements", params={"project": "nope"})
    refused(unknown, 404, "project_not_found")


def test_what_was_said_is_exported_as_a_dataset_to_measure_with(
    service: Service, caller: Caller, tmp_path: Path
) -> None:
    folder = tmp_path / "judged"
    nothing = service.mem("feedback", "export", str(folder))
    answer = ask(caller, project="poimen", limit=2)
    first, second = answer["results"]
    said(caller, answer["query_id"], first["id"], relevant=True, query_text=QUESTION)
    said(caller, answer["query_id"], second["id"], relevant=False, query_text=QUESTION)

    exported = service.mem("feedback", "export", str(folder))
    again = service.mem("feedback", "export", str(folder))

    assert (nothing.returncode, folder.exists() and again.returncode) == (1, 2)
    assert "no question" in nothing.stderr
    assert exported.returncode == 0, exported.stderr
    assert exported.stderr.startswith("Wrote 1 question and ")
    dataset = load_dataset(folder)
    assert [question.text for question in dataset.questions] == [QUESTION]
    assert load_judged(dataset) == {"q1": {first["id"]: 2, second["id"]: 0}}


def judged_page(service: Service) -> tuple[Caller, str]:
    """A document of which a chunk was judged in words; that chunk."""
    take_one(service, PAGE, "ferry.md")
    caller = Caller(service, service.key)
    answer = ask(caller, "when does the ferry leave?", project="p")
    (result,) = answer["results"]
    words = {"query_text": "kittiwake?", "feedback_text": "kittiwake!"}
    said(caller, answer["query_id"], result["id"], relevant=True, **words)
    return caller, result["id"]


def test_a_result_that_a_new_version_replaced_is_found_as_unresolved(
    empty_service: Service,
) -> None:
    caller, result_id = judged_page(empty_service)
    assert report(caller) == []

    take_one(empty_service, PAGE.replace(b"nine", b"ten"), "ferry.md")

    (doubtful,) = report(caller, about="unresolved")
    assert (doubtful["result_id"], doubtful["project"]) == (result_id, "p")
    assert (doubtful["is_unresolved"], doubtful["source"]) == (True, None)
    assert doubtful["remarks"][0]["feedback_text"] == "kittiwake!"
    assert report(caller, about="irrelevant") == []


@pytest.mark.parametrize("what", ["node", "source"])
def test_words_are_forgotten_with_what_they_are_about(empty_service: Service, what: str) -> None:
    caller, result_id = judged_page(empty_service)
    path = f"/memory/nodes/p/{result_id}" if what == "node" else "/memory/projects/p/sources"
    parameters = {} if what == "node" else {"source": "ferry.md"}

    assert caller.send("DELETE", path, params=parameters).status_code == 200

    assert rows(empty_service, "query_text, feedback_text, relevant") == [(None, None, True)]
    (doubtful,) = report(caller)
    assert doubtful["is_unresolved"]
    assert "kittiwake" not in json.dumps(doubtful)


def test_with_a_project_all_that_was_said_of_it_is_forgotten(empty_service: Service) -> None:
    caller, _ = judged_page(empty_service)

    assert caller.send("DELETE", "/memory/projects/p").status_code == 200

    assert rows(empty_service) == []
    assert report(caller) == []


def test_feedback_is_given_and_read_from_the_command_line(
    service: Service, others: list[Caller]
) -> None:
    asked = service.mem("query", "-p", "poimen", "-k", "1", "--format", "json", QUESTION)
    answer = json.loads(asked.stdout)
    result = answer["results"][0]
    name = f"poimen/{result['sha256'][:12]}"

    added = service.mem(
        "feedback", "add", answer["query_id"], name, "--irrelevant", "--rating", "2"
    )
    other = ask(others[0], project="poimen", limit=1)
    said(others[0], other["query_id"], result["id"], relevant=False)
    listed = service.mem("feedback", "report", "-p", "poimen")
    whole = service.mem("feedback", "report", "--format", "json")

    assert added.returncode == 0, added.stderr
    assert added.stdout.startswith("Thank you.")
    assert listed.stdout.split("\t")[:4] == [name, "irrelevant", "-2 +0", "2.0"]
    assert json.loads(whole.stdout)["results"][0]["result_id"] == result["id"]


def test_a_name_of_no_hit_and_feedback_that_says_nothing_are_refused(service: Service) -> None:
    def add(*arguments: str) -> int:
        return service.mem("feedback", "add", GONE, *arguments).returncode

    assert add("poimen/ffffffffffff", "--relevant") == 1
    assert add("no-such-project/ffffffffffff", "--relevant") == 2
    assert add("short", "--relevant") == 2
    assert add("f" * 64) == 2
    assert add("f" * 64, "--rating", "9") == 2
    assert add("f" * 64, "--relevant") == 2  # the question is wanted
    assert add("f" * 64, "--relevant", "--query", QUESTION) == 0
