"""Files, from what is sent to what is found: sessions, documents, archives and rubbish."""

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import pytest
import zstandard

from tests.integration.callers import Caller
from tests.integration.service import Service
from tests.integration.uploads import (
    INGEST,
    NAMES,
    SESSIONS,
    check_whole,
    claude,
    codex,
    counts,
    nodes,
    pi,
    sources,
    submit_files,
    tagged,
    take,
    take_one,
    texts,
)
from tests.unit.ingest.session_files import cc_result, cc_user, file_of, use

PAGE = b"# Harbour\n\nPilots board at buoy nine.\n\n## Tides\n\nThe bar is closed at ebb.\n"
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)) * 4
TALK = ["Which gauge overflows?", "Gauge seven is full.", "Empty it.", "Done."]


# Ways in


def test_a_file_is_sent_as_text(empty_service: Service) -> None:
    body = {"format": "auto", "project": "p"}
    accepted = empty_service.post(
        INGEST, body | {"files": [{"name": "docs/harbour.md", "text": PAGE.decode()}]}
    )

    assert accepted.status_code == 202, accepted.text
    job = empty_service.ended(accepted.json()["id"])
    assert (job["status"], job["progress"], job["stage"]) == (
        "completed",
        {"done": 1, "total": 1},
        None,
    )
    (report,) = job["files"]
    assert (report["status"], report["format"]) == ("completed", "markdown")
    assert counts(report) == {"received": 3, "stored": 3}
    assert report["sources"] == [{"project": "p", "source": "docs/harbour.md"}]
    (first, *_) = empty_service.ask("when is the bar closed?", project="p")["results"]
    assert (first["level"], first["kind"], first["section"]) == ("L1", "chunk", "Tides")
    assert first["breadcrumb"] == ["Harbour"]
    assert [parent["text"] for parent in first["parents"]] == [PAGE.decode()]


def test_files_are_sent_as_multipart(empty_service: Service) -> None:
    caller = Caller(empty_service, empty_service.key)
    parts = [("files", ("harbour.md", PAGE)), ("more", ("s.jsonl", claude(TALK)))]

    accepted = caller.send("POST", INGEST, data={"project": "p"}, files=parts)

    assert accepted.status_code == 202, accepted.text
    job = empty_service.ended(accepted.json()["id"])
    assert [(f["name"], f["format"]) for f in job["files"]] == [
        ("harbour.md", "markdown"),
        ("s.jsonl", "claude_code"),
    ]
    assert texts(empty_service, source="claude%") == TALK


@pytest.mark.parametrize(
    "body",
    [
        {"files": []},
        {"files": [{"name": "a", "text": "x", "base64": "eA=="}]},
        {"files": [{"name": "a"}]},
        {"files": [{"name": "a", "base64": "not base64"}]},
        {"files": [{"name": "", "text": "x"}]},
        {"files": [{"name": "a\0b", "text": "x"}]},
        {"files": [{"name": "half \ud83d", "text": "x"}]},
        {"files": [{"name": "a", "text": "x"}], "format": "word"},
        {"files": [{"name": "a", "text": "x"}], "nodes": []},
        {"files": [{"name": "a", "text": "x"}], "project": "No Project"},
    ],
)
def test_a_submission_that_makes_no_sense_is_a_400(
    empty_service: Service, body: dict[str, Any]
) -> None:
    response = empty_service.post(INGEST, {"format": "auto"} | body)

    assert response.status_code == 400, response.text


@pytest.mark.parametrize("name", NAMES)
def test_a_session_of_each_agent_is_told_by_its_content(empty_service: Service, name: str) -> None:
    report = take_one(empty_service, SESSIONS[name](TALK), "odd.txt")

    assert (report["status"], report["format"]) == ("completed", name)
    assert texts(empty_service) == TALK
    (source,) = sources(empty_service).values()
    assert (source["format"], source["nodes"], source["names"]) == (name, 4, ["odd.txt"])
    assert source["title"] == TALK[0]
    (hit,) = empty_service.ask("gauge seven", project="p", level="L0", limit=1)["results"]
    assert (hit["kind"], hit["source"]) == ("turn", source["source"])


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("name", NAMES)
def test_a_packed_session_is_the_session(empty_service: Service, name: str, pack: Any) -> None:
    first = take_one(empty_service, SESSIONS[name](TALK))
    again = take_one(empty_service, pack(SESSIONS[name](TALK)), "a.jsonl.gz")

    assert counts(first) == {"received": 4, "stored": 4}
    assert counts(again) == {"received": 4, "unchanged": 4}


# What fails


def test_one_file_that_is_no_text_costs_its_neighbours_nothing(empty_service: Service) -> None:
    files = {
        "bomb.jsonl.gz": gzip.compress(b"\n" * 80_000_000),
        "bomb.md.zst": zstandard.compress(b"#" * 80_000_000),
        "broken.gz": gzip.compress(PAGE)[:30],
        "picture.md": PNG,
        "harbour.md": PAGE,
        "nul.md": b"# Nul\n\nbefore\0after\n",
        "latin.txt": "Größe 木"[:5].encode("cp1252") + b"\x97 fine",
        "empty.jsonl": b"",
        "blank.txt": b" \n\t\n",
    }

    job = take(empty_service, files, project="p")

    assert job["status"] == "partial"
    by_name = {report["name"]: report for report in job["files"]}
    assert list(by_name) == list(files)
    failed = {name: report["reason"] for name, report in by_name.items() if report["reason"]}
    assert list(failed) == ["bomb.jsonl.gz", "bomb.md.zst", "broken.gz", "picture.md"]
    for name, told in zip(failed, ("64 MB", "64 MB", "damaged", "not text"), strict=True):
        assert told in failed[name]
        assert by_name[name]["status"] == "failed"
    assert "U+0000" in " ".join(by_name["nul.md"]["notes"])
    assert by_name["latin.txt"]["notes"] == ["read as cp1252"]
    for name in ("empty.jsonl", "blank.txt"):
        assert (by_name[name]["status"], counts(by_name[name])) == ("completed", {})
    assert set(sources(empty_service)) == {"harbour.md", "nul.md", "latin.txt"}
    assert not any("IHDR" in text for text in texts(empty_service))
    check_whole(empty_service)
    (listed,) = empty_service.get(INGEST, status="partial").json()["jobs"]
    assert listed["id"] == job["id"]


def test_files_that_hold_nothing_make_no_project(empty_service: Service) -> None:
    meta = file_of([{"type": "summary", "summary": "Rain", "leafUuid": "x"}])

    job = take(empty_service, {"empty.jsonl": b"", "meta.jsonl": meta}, project="p")

    assert job["status"] == "completed"
    assert empty_service.get("/memory/projects").json()["projects"] == []


def test_a_file_of_another_format_than_was_said_fails_and_says_so(empty_service: Service) -> None:
    report = take_one(empty_service, PAGE, format="pi")

    assert report["status"] == "failed"
    assert report["reason"]
    assert take_one(empty_service, claude(TALK), "s.md", format="markdown")["format"] == "markdown"


def test_a_file_that_holds_nodes_is_told_to_be_sent_as_such(empty_service: Service) -> None:
    node = {"level": "L0", "kind": "turn", "source": "s", "text": "t"}

    assert "format nodes" in take_one(empty_service, file_of([node]))["reason"]


def test_damaged_lines_are_told_and_the_rest_of_the_session_is_stored(
    empty_service: Service,
) -> None:
    lines = claude(TALK).splitlines(keepends=True)
    deep = b'{"type": "user", "message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    damaged = [
        lines[0],
        b"\0" * 4096 + b"\n",
        lines[1],
        b"{half\n",
        b'{"\xff": 1}\n',
        lines[2],
        deep,
    ]

    report = take_one(empty_service, b"".join(damaged) + lines[3])

    assert report["status"] == "partial"
    assert {2, 4, 7} <= {skipped["line"] for skipped in report["skipped"]}
    assert texts(empty_service) == TALK


def test_half_of_a_surrogate_pair_is_replaced_wherever_it_stands(empty_service: Service) -> None:
    lines = claude(["the half \ud83d of a pair", "and \udc00 here too"])

    report = take_one(empty_service, lines)

    assert report["status"] == "completed"
    assert texts(empty_service) == ["the half \ufffd of a pair", "and \ufffd here too"]
    (hit,) = empty_service.ask("the half of a pair", project="p", level="L0", limit=1)["results"]
    assert "\ufffd" in hit["text"]


@pytest.mark.parametrize("form", ["auto", "markdown", "text"])
def test_half_of_a_surrogate_pair_in_a_json_text_costs_that_alone(
    empty_service: Service, form: str
) -> None:
    files = [
        {"name": "half.md", "text": "# Caf\u00e9 \U0001f600\n\nThe \ud800 half, na\u00efve.\n"},
        {"name": "fine.md", "text": "# Fine\n\nNothing odd.\n"},
    ]
    sent = {"format": form, "project": "p", "files": files}

    job = empty_service.ended(empty_service.post(INGEST, sent).json()["id"])

    assert job["status"] == "completed"
    half, fine = job["files"]
    assert half["notes"] == ["1 half of surrogate pairs: U+FFFD"]
    assert fine["notes"] == []
    (whole,) = (
        n["text"] for n in nodes(empty_service) if n["level"] == "L0" and "half" in n["text"]
    )
    assert whole == "# Caf\u00e9 \U0001f600\n\nThe \ufffd half, na\u00efve.\n"


NAMELESS = [".", "..", "/", "./", "../..", "//./", "\\", ".\\..", ""]


@pytest.mark.parametrize("name", NAMELESS)
def test_a_name_that_names_no_file_is_a_400_that_tells_which(
    empty_service: Service, name: str
) -> None:
    files = [{"name": "a.md", "text": "x"}, {"name": name, "text": "x"}]

    refused = empty_service.post(INGEST, {"format": "auto", "project": "p", "files": files})

    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_parameters")
    assert [error["parameter"] for error in refused.json()["errors"]] == ["files[1].name"]


@pytest.mark.parametrize("name", [".", "..", "%2e", "a/.."])
def test_an_uploaded_file_without_a_name_of_its_own_is_a_400_too(
    empty_service: Service, name: str
) -> None:
    parts = [("files", ("a.md", b"x")), ("files", (name, b"x"))]
    caller = Caller(empty_service, empty_service.key)

    answer = caller.send("POST", INGEST, files=parts, data={"project": "p"})

    if name in (".", ".."):
        assert answer.status_code == 400
        assert [error["parameter"] for error in answer.json()["errors"]] == ["files[1].name"]
    else:
        assert answer.status_code == 202


# Sessions that live


@pytest.mark.parametrize("name", NAMES)
def test_a_growing_session_costs_only_its_new_turns(empty_service: Service, name: str) -> None:
    make = SESSIONS[name]
    seen = [counts(take_one(empty_service, make(TALK[:length]))) for length in (2, 3, 4, 4)]

    assert seen == [
        {"received": 2, "stored": 2},
        {"received": 3, "stored": 1, "unchanged": 2},
        {"received": 4, "stored": 1, "unchanged": 3},
        {"received": 4, "unchanged": 4},
    ]
    assert texts(empty_service) == TALK


def test_a_half_written_line_is_taken_once_it_is_whole(empty_service: Service) -> None:
    whole = claude(TALK)

    first = take_one(empty_service, whole[:-40])
    second = take_one(empty_service, whole)

    assert (first["has_open_end"], first["status"], counts(first)["stored"]) == (
        True,
        "completed",
        3,
    )
    assert (second["has_open_end"], counts(second)) == (
        False,
        {"received": 4, "stored": 1, "unchanged": 3},
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_older_copy_changes_nothing(empty_service: Service, name: str) -> None:
    make = SESSIONS[name]
    take_one(empty_service, make(TALK))
    before = nodes(empty_service)

    for length in (1, 2, 3):
        report = take_one(empty_service, make(TALK[:length]), f"copy-{length}.jsonl")
        assert counts(report) == {"received": length, "unchanged": length}

    assert nodes(empty_service) == before
    (source,) = sources(empty_service).values()
    assert source["names"] == ["a.jsonl", "copy-1.jsonl", "copy-2.jsonl", "copy-3.jsonl"]


def test_turns_that_a_session_went_on_without_are_abandoned_for_good(
    empty_service: Service,
) -> None:
    whole = claude(TALK)
    other = claude([*TALK[:2], "Leave it."]).replace(b'"u-2"', b'"u-9"')
    take_one(empty_service, whole)

    gone_on = take_one(empty_service, other)
    older = take_one(empty_service, whole)

    assert counts(gone_on) == {"received": 3, "stored": 1, "unchanged": 2, "updated": 2}
    assert counts(older) == {"received": 4, "unchanged": 4}
    assert tagged(empty_service, "abandoned") == TALK[2:]
    assert sorted(texts(empty_service)) == sorted([*TALK, "Leave it."])
    assert counts(take_one(empty_service, other)) == {"received": 3, "unchanged": 3}


def test_a_session_cut_back_without_going_on_loses_nothing(empty_service: Service) -> None:
    take_one(empty_service, claude(TALK))
    take_one(empty_service, claude(TALK[:2]))

    assert tagged(empty_service, "abandoned") == []


def test_turns_that_say_the_same_are_told_apart_whatever_becomes_of_the_others(
    empty_service: Service,
) -> None:
    """A node that another turn once was must not be taken from the turn that it is now."""
    take_one(empty_service, claude(["yes", "First?", "yes", "Second?"]))
    rewound = claude(["yes", "First?"]) + claude(["yes", "Third?", "yes"], first=4).replace(
        b'"u-3"', b'"u-1"'
    )

    report = take_one(empty_service, rewound)

    assert counts(report) == {"received": 5, "stored": 3, "unchanged": 2, "updated": 2}
    assert sorted(texts(empty_service)) == sorted(["yes"] * 4 + ["First?", "Second?", "Third?"])
    assert tagged(empty_service, "abandoned") == ["yes", "Second?"]
    check_whole(empty_service)


def test_a_turn_that_was_still_being_written_is_replaced_by_the_whole_one(
    empty_service: Service,
) -> None:
    half, whole = claude(["Why?", "Because of"]), claude(["Why?", "Because of the ebb."])
    take_one(empty_service, half)
    (sha256,) = [n["sha256"] for n in nodes(empty_service) if n["text"] == "Because of"]
    note = {"level": "L1", "kind": "note", "source": "n", "text": "the ebb", "parents": [sha256]}
    empty_service.ingest([note], "p")

    report = take_one(empty_service, whole)
    older = take_one(empty_service, half)

    assert counts(report) == {"received": 2, "stored": 1, "unchanged": 1, "removed": 1}
    assert counts(older) == {"received": 2, "unchanged": 2}
    assert texts(empty_service, source="claude%") == ["Why?", "Because of the ebb."]
    (hit,) = empty_service.ask("the ebb", project="p", level="L1")["results"]
    assert [parent["text"] for parent in hit["parents"]] == ["Because of the ebb."]
    (stored,) = [n for n in nodes(empty_service) if n["kind"] == "note"]
    assert stored["stale_since"] is not None


def test_a_long_turn_that_becomes_shorter_leaves_no_part_behind(empty_service: Service) -> None:
    long = " ".join(f"word{n} of the ebb." for n in range(200))
    take_one(empty_service, claude(["Why?", long]))
    assert len(texts(empty_service)) > 3

    report = take_one(empty_service, claude(["Why?", "Never mind."]))

    assert texts(empty_service) == ["Why?", "Never mind."]
    assert report["removed"] > 2
    check_whole(empty_service)


def test_a_fork_brings_only_what_is_new_in_any_order(empty_service: Service) -> None:
    shared = ["Plan the bridge.", "Two ways."]
    files = {
        "one.jsonl": claude([*shared, "Plan A it is."], "s-one"),
        "two.jsonl": claude([*shared, "Plan B it is."], "s-two").replace(b'"u-2"', b'"v-2"'),
    }
    for order in permutations(files):
        empty_service.empty()
        take(empty_service, {name: files[name] for name in order}, project="p")

        assert sorted(texts(empty_service)) == sorted([*shared, "Plan A it is.", "Plan B it is."])
        assert len(sources(empty_service)) == 2
        check_whole(empty_service)


def test_sessions_whose_turns_are_only_called_alike_are_both_stored(
    empty_service: Service,
) -> None:
    other = ["Another question?", "Another answer."]
    files = {"a.jsonl": claude(TALK, "s-one"), "b.jsonl": claude(other, "s-two")}

    for _ in range(2):
        take(empty_service, files, project="p")

        assert sorted(texts(empty_service)) == sorted([*TALK, *other])
        check_whole(empty_service)


def test_a_sub_agents_session_stands_beside_the_one_that_it_worked_for(
    empty_service: Service,
) -> None:
    side = claude(
        ["Look for teal.", "Teal is in the reeds."], own="w", isSidechain=True, agentId="ab12"
    )
    files = {"s-1.jsonl": claude(TALK), "s-1/subagents/agent-ab12.jsonl": side}

    take(empty_service, files, project="p")

    found = sources(empty_service)
    assert len(found) == 2
    (parent,) = [s for s in found.values() if "agent" not in s["source"]]
    (child,) = [s for s in found.values() if "agent" in s["source"]]
    assert (parent["nodes"], child["nodes"], child["parent"]) == (4, 2, parent["session"])
    (hit,) = empty_service.ask("where is teal?", project="p", level="L0", limit=1)["results"]
    assert hit["source"] == child["source"]


@pytest.mark.parametrize("name", NAMES)
def test_many_versions_of_a_session_at_once_end_as_the_longest(
    empty_service: Service, name: str
) -> None:
    make = SESSIONS[name]
    with ThreadPoolExecutor(4) as pool:
        jobs = list(
            pool.map(
                lambda length: take(empty_service, {"a.jsonl": make(TALK[:length])}, project="p"),
                [4, 2, 3, 4, 1, 3],
            )
        )

    assert {job["status"] for job in jobs} == {"completed"}
    assert texts(empty_service) == TALK
    assert tagged(empty_service, "abandoned") == []


# Projects by folder


def project_names(service: Service) -> list[str]:
    return sorted(p["project"] for p in service.get("/memory/projects").json()["projects"])


def test_a_session_goes_to_the_project_of_its_folder(empty_service: Service) -> None:
    root = {"project": "weather", "roots": ["/srv/met"]}
    assert empty_service.post("/memory/projects", root).status_code in (200, 201)
    files = {
        f"{name}.jsonl": make(TALK, f"s-{name}", cwd=folder)
        for name, make, folder in (
            ("deep", pi, "/srv/met/gauges"),
            ("root", codex, "/srv/met"),
            ("near", pi, "/srv/meteor"),
            ("named", codex, "/home/ann/Reed Bed"),
        )
    }

    job = take(empty_service, files)

    went = {f["name"]: f["sources"][0]["project"] for f in job["files"]}
    assert went == {
        "deep.jsonl": "weather",
        "root.jsonl": "weather",
        "near.jsonl": "meteor",
        "named.jsonl": "reed-bed",
    }


def test_two_folders_of_one_name_are_two_projects_and_stay_so(empty_service: Service) -> None:
    first, second = (pi(TALK, f"s-{owner}", cwd=f"/home/{owner}/web") for owner in ("ann", "bob"))
    for _ in range(2):
        job = take(empty_service, {"a.jsonl": first, "b.jsonl": second})
        went = [f["sources"][0]["project"] for f in job["files"]]
        assert went == ["web", "bob-web"]
    again = take(empty_service, {"c.jsonl": pi(TALK, "s-new", cwd="/home/bob/web")})

    assert again["files"][0]["sources"][0]["project"] == "bob-web"
    assert project_names(empty_service) == ["bob-web", "web"]


def test_what_tells_no_project_fails_by_itself(empty_service: Service) -> None:
    job = take(
        empty_service, {"harbour.md": PAGE, "s.jsonl": pi(TALK), "root.jsonl": pi(TALK, cwd="/")}
    )

    assert [f["status"] for f in job["files"]] == ["failed", "completed", "failed"]
    assert "no project" in job["files"][0]["reason"]
    assert project_names(empty_service) == ["weather"]


def test_a_key_for_one_project_writes_to_no_other(empty_service: Service) -> None:
    key = Caller.new(empty_service, ["mine"]).key

    named = submit_files(empty_service, {"harbour.md": PAGE}, key=key, project="weather")
    inferred = submit_files(empty_service, {"s.jsonl": pi(TALK)}, key=key)
    own = submit_files(empty_service, {"harbour.md": PAGE}, key=key, project="mine")

    assert named.status_code == 403
    job = empty_service.ended(inferred.json()["id"])
    assert job["status"] == "failed"
    assert "may not write" in job["files"][0]["reason"]
    assert empty_service.ended(own.json()["id"])["status"] == "completed"
    assert project_names(empty_service) == ["mine"]
    assert Caller.new(empty_service, ["mine"]).send("GET", INGEST).json()["jobs"] == []


# Documents


def test_a_new_version_replaces_only_what_changed(empty_service: Service) -> None:
    take_one(empty_service, PAGE, "harbour.md")
    before = {n["text"]: n["sha256"] for n in nodes(empty_service)}
    new = PAGE.replace(b"buoy nine", b"buoy ten").replace(b"# Harbour\n", b"# Harbour\n\nNew.\n")

    report = take_one(empty_service, new, "harbour.md")

    assert counts(report) == {"received": 3, "stored": 2, "updated": 1, "removed": 2}
    after = {n["text"]: n["sha256"] for n in nodes(empty_service)}
    tides = next(text for text in before if text.startswith("## Tides"))
    assert after[tides] == before[tides]
    assert len(after) == 3
    (hit,) = empty_service.ask("bar at ebb", project="p", limit=1)["results"]
    assert [parent["text"] for parent in hit["parents"]] == [new.decode()]
    check_whole(empty_service)


def test_notes_on_a_document_rest_on_its_new_version_and_are_stale(empty_service: Service) -> None:
    take_one(empty_service, PAGE, "harbour.md")
    by_kind = {(n["kind"], n["text"][:4]): n["sha256"] for n in nodes(empty_service)}
    whole, tides = by_kind["document", "# Ha"], by_kind["chunk", "## T"]
    note = {"level": "L1", "kind": "note", "source": "n", "text": "pilots", "parents": [whole]}
    synthesis = {"level": "L2", "kind": "synthesis", "source": "n", "text": "closed at ebb"}
    empty_service.ingest([note, synthesis | {"parents": [tides]}], "p")

    take_one(empty_service, PAGE.replace(b"at ebb", b"at flood"), "harbour.md")

    stored = {n["sha256"]: n for n in nodes(empty_service)}
    rests = {n["text"]: n for n in stored.values() if n["source"] == "n"}
    assert set(rests) == {"pilots", "closed at ebb"}
    assert stored[rests["pilots"]["parents"][0]]["kind"] == "document"
    assert "at flood" in stored[rests["pilots"]["parents"][0]]["text"]
    assert stored[rests["closed at ebb"]["parents"][0]]["text"].startswith("## Tides")
    assert all(n["stale_since"] for n in rests.values())
    assert len(stored) == 5
    check_whole(empty_service)


def test_a_version_that_comes_back_is_stored_again(empty_service: Service) -> None:
    other = PAGE.replace(b"nine", b"ten")
    caller = Caller(empty_service, empty_service.key)

    def post(data: bytes) -> bool:
        body = {
            "format": "auto",
            "project": "p",
            "files": [{"name": "a.md", "text": data.decode()}],
        }
        accepted = caller.send("POST", INGEST, json=body).json()
        empty_service.ended(accepted["id"])
        return bool(accepted["duplicate"])

    assert [post(data) for data in (PAGE, PAGE, other, PAGE)] == [False, True, False, False]
    assert any("buoy nine" in text for text in texts(empty_service))


def test_a_document_without_its_nul_is_the_same_document(empty_service: Service) -> None:
    dirty = b"# Harbour\n\nPilots board\0 at buoy nine.\n"
    for data in (dirty, dirty, dirty.replace(b"\0", b"")):
        report = take_one(empty_service, data, "harbour.md")
        assert report["notes"] == (["1 U+0000 left out"] if b"\0" in data else [])

    assert counts(report) == {"received": 2, "unchanged": 2}
    assert texts(empty_service) == ["# Harbour\n\nPilots board at buoy nine."]


def test_the_same_content_under_two_names_is_two_sources(empty_service: Service) -> None:
    job = take(empty_service, {"References.md": PAGE, "references.md": PAGE}, project="p")

    assert job["status"] == "completed"
    assert set(sources(empty_service)) == {"References.md", "references.md"}


def test_of_two_documents_with_one_name_in_a_submission_neither_is_lost_unsaid(
    empty_service: Service,
) -> None:
    files = {"a/readme.md": b"# One\n", "readme.md": b"# Two\n", "a//readme.md": b"# Three\n"}

    job = take(empty_service, files, project="p")

    assert job["status"] == "partial"
    assert [report["status"] for report in job["files"]] == ["completed", "completed", "failed"]
    assert "same name" in job["files"][2]["reason"]
    assert set(sources(empty_service)) == {"a/readme.md", "readme.md"}
    assert "# One" in texts(empty_service)


def test_a_document_that_a_submission_holds_twice_is_stored_once_and_then_unchanged(
    empty_service: Service,
) -> None:
    job = take(empty_service, {"readme.md": b"# One\n", "./readme.md": b"# One\n"}, project="p")

    assert job["status"] == "completed"
    assert [report["stored"] > 0 for report in job["files"]] == [True, False]
    assert job["files"][1]["unchanged"] == job["files"][0]["stored"]


@pytest.mark.parametrize("name", ["../../etc/passwd.md", "C:\\x\\..\\y.md", "a" * 990 + "木/木.md"])
def test_a_documents_name_leads_nowhere(empty_service: Service, name: str) -> None:
    report = take_one(empty_service, PAGE, name)

    (source,) = sources(empty_service)
    assert report["status"] == "completed"
    assert ".." not in source
    assert not source.startswith("/")
    assert 0 < len(source) <= 1000


def test_the_order_of_files_is_no_matter(empty_service: Service) -> None:
    files = {
        "old.jsonl": claude(TALK[:2]),
        "new.jsonl": claude(TALK),
        "page.md": PAGE,
        "other.jsonl": codex(TALK, "s-other"),
    }
    found = []
    for order in (list(files), list(reversed(files))):
        empty_service.empty()
        take(empty_service, {name: files[name] for name in order}, project="p")
        found.append(nodes(empty_service))

    assert found[0] == found[1]


def test_windows_line_ends_make_no_difference(empty_service: Service) -> None:
    take_one(empty_service, PAGE, "harbour.md")
    before = texts(empty_service)
    take_one(empty_service, PAGE.replace(b"\n", b"\r\n"), "harbour.md")

    assert texts(empty_service) == before


# Secrets and settings

SECRETS = {
    "token": "ghp_" + "Zk3Jw9Qe1" * 4,
    "password": "vr9-Quelle-77x",
    "address": "postgresql://ann:k7mWq2Lz9t@db.example.net/tide",
    "aws": "AKIA" + "Q7ZX3MPLT9RW2BVN",
}
SECRET_PARTS = [SECRETS["token"], SECRETS["password"], "k7mWq2Lz9t", SECRETS["aws"]]


def test_secrets_are_masked_wherever_they_could_be_read(empty_service: Service) -> None:
    told = [
        f"my token is {SECRETS['token']} and password: {SECRETS['password']}",
        f"connect to {SECRETS['address']}, key {SECRETS['aws']}",
    ]
    files = {
        **{f"{name}.jsonl": make(told, f"s-{name}") for name, make in SESSIONS.items()},
        "page.md": f"---\ntitle: {told[0]}\n---\n# {told[1]}\n\n{told[0]}\n".encode(),
        "plain.txt": told[1].encode(),
    }

    job = take(empty_service, files, project="p")

    assert job["status"] == "completed"
    assert all(sum(report["redacted"].values()) >= 2 for report in job["files"])
    seen = [json.dumps(job), empty_service.get("/memory/projects/p/export").text]
    seen.append(json.dumps(empty_service.ask("what is my token?", project="p", level="L0,L1")))
    seen.append(json.dumps(sources(empty_service)))
    with empty_service.connect() as connection:
        for table in ("memory_node", "source", "turn", "ingest_file", "ingest_job"):
            rows = connection.execute(f"SELECT to_jsonb(t)::text FROM {table} AS t".encode())
            seen += [row for (row,) in rows]
    seen += [log.read_text() for log in empty_service.data_dir.glob("**/*.log")]
    for secret in SECRET_PARTS:
        assert not any(secret in text for text in seen)
    assert any("[redacted: " in text for text in texts(empty_service))


def test_of_tools_the_beginning_is_kept_and_of_thoughts_nothing(empty_service: Service) -> None:
    call = claude(["Read the log."])
    thought = {"type": "thinking", "thinking": "the log is long"}
    line = json.loads(claude(["", "x"]).splitlines()[1])
    line["message"]["content"] = [thought, use("c1", "Read", path="/var/log/rain")]
    result = cc_result(2, 1, "c1", "gauge " * 5000, uuid="u-2", parentUuid="u-1", sessionId="s-1")

    report = take_one(empty_service, call + file_of([line, result]))

    assert report["ignored"]["thinking"] == 1
    assert report["ignored"]["tool output beyond its beginning"] == 1
    kept = texts(empty_service)
    assert not any("the log is long" in text for text in kept)
    assert sum(len(text) for text in kept if "gauge" in text) <= 2000


def test_a_word_without_a_place_to_split_is_stored_whole_in_parts(empty_service: Service) -> None:
    word = "egret" * 4000

    report = take_one(empty_service, f"Behold {word}, a bird.".encode(), "word.txt")

    assert report["status"] == "completed"
    chunks = texts(empty_service)
    assert len(chunks) > 5
    assert "".join("".join(chunks).split()) == f"Behold{word},abird."


def test_metadata_of_front_matter_can_be_filtered_by(empty_service: Service) -> None:
    front = b"title: Bom Page\ntags: [alpha, '2026-03-01']\ndate: 2026-03-01\n"
    page = b"\xef\xbb\xbf---\n" + front + b"---\n# One\n\ntext\n"

    take_one(empty_service, page, "bom.md")

    (hit,) = empty_service.ask("text", project="p")["results"]
    assert hit["tags"] == ["alpha", "2026-03-01"]
    assert hit["timestamp"].startswith("2026-03-01")
    assert not any("\ufeff" in n["text"] for n in nodes(empty_service))


def test_a_users_line_that_a_program_wrote_is_no_turn(empty_service: Service) -> None:
    lines = [
        cc_user(0, None, "<command-name>/clear</command-name>"),
        cc_user(1, 0, "name the service curlew"),
    ]

    report = take_one(empty_service, file_of(lines))

    assert texts(empty_service) == ["name the service curlew"]
    assert sum(report["ignored"].values()) >= 1
