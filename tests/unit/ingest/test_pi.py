"""pi's session files: the tree, its versions, and what was kept from the model."""

import pytest

from tests.unit.ingest.session_files import (
    OTHER,
    PICTURE,
    SESSION,
    Record,
    at,
    file_of,
    pi_entry,
    pi_header,
    pi_message,
    said,
    spoken,
    texts_by,
    turns_of,
)
from workers.ingest.parsed import Parsed, Session, Speaker, Turn, Unreadable
from workers.ingest.pi import parse


def read(*records: Record | bytes, name: str = "session.jsonl") -> Parsed:
    return parse(file_of(records), name)


def session_of(*records: Record | bytes, name: str = "session.jsonl") -> Session:
    (session,) = read(*records, name=name).sessions
    return session


def turns(*records: Record | bytes) -> list[Turn]:
    return turns_of(read(*records))


def abandoned(*records: Record | bytes) -> list[str]:
    return [turn.text for turn in turns(*records) if "abandoned" in turn.tags]


TREE = [
    pi_header(),
    pi_message(1, None, "user", "Pick a colour."),
    pi_message(2, 1, "assistant", [said("Let us take grey.")]),
    pi_message(3, 2, "user", "Grey everywhere."),
    pi_message(4, 3, "assistant", [said("Grey, done.")]),
    pi_entry(5, 2, "branch_summary", fromId="00000004", summary="Tried grey."),
    pi_message(6, 5, "user", "Blue instead."),
    pi_message(7, 6, "assistant", [said("Blue it is.")]),
    pi_entry(8, 7, "session_info", name="Colours"),
    pi_entry(9, 8, "label", targetId="00000007", label="decision"),
]


def test_a_branch_left_behind_is_abandoned_and_nothing_is_said_twice() -> None:
    session = session_of(*TREE)

    assert abandoned(*TREE) == ["Grey everywhere.", "Grey, done."]
    assert [turn.text for turn in session.turns] == [
        "Pick a colour.",
        "Let us take grey.",
        "Grey everywhere.",
        "Grey, done.",
        "Tried grey.",
        "Blue instead.",
        "Blue it is.",
    ]
    assert session.turns[4].speaker is Speaker.SUMMARY
    assert session.title == "Colours"


def test_a_lost_line_abandons_nothing() -> None:
    lost = [*TREE[:6], b"{torn", *TREE[7:]]

    assert abandoned(*lost) == ["Grey everywhere.", "Grey, done."]
    assert abandoned(TREE[0], TREE[1], b"{torn", *TREE[3:5]) == []


def test_a_second_beginning_leaves_the_first_behind() -> None:
    assert abandoned(*TREE[:3], pi_message(20, None, "user", "Anew.")) == [
        "Pick a colour.",
        "Let us take grey.",
    ]


def test_the_first_version_is_a_list() -> None:
    old = [
        {name: value for name, value in entry.items() if name not in ("id", "parentId")}
        for entry in TREE[1:5]
    ]
    hook = {"role": "hookMessage", "customType": "h", "content": "hooked", "display": True}
    aborted = {"role": "assistant", "content": [], "stopReason": "aborted", "errorMessage": "no"}
    header = {"type": "session", "id": SESSION, "timestamp": at(0), "cwd": "/home/ann"}
    parsed = read(
        header,
        *old,
        {"type": "message", "timestamp": at(8), "message": aborted},
        {"type": "message", "timestamp": at(9), "message": hook},
        {"type": "compaction", "timestamp": at(10), "summary": "so far", "firstKeptEntryIndex": 1},
    )

    assert texts_by(parsed, Speaker.USER) == ["Pick a colour.", "Grey everywhere."]
    assert texts_by(parsed, Speaker.SUMMARY) == ["so far"]
    assert [turn.tags for turn in turns_of(parsed) if turn.text == "hooked"] == [("extension",)]
    assert all("abandoned" not in turn.tags for turn in turns_of(parsed))


def test_a_file_has_the_same_keys_after_its_entries_were_given_ids() -> None:
    old = [
        {name: value for name, value in entry.items() if name not in ("id", "parentId")}
        for entry in TREE[1:5]
    ]

    before = turns({"type": "session", "id": SESSION, "timestamp": at(0)}, *old)
    after = turns(*TREE[:5])

    assert [turn.key for turn in before] == [turn.key for turn in after]


def test_a_fork_has_the_keys_of_the_entries_it_copied_and_names_its_parent() -> None:
    path = f"/x/.pi/agent/sessions/--home--/2026-04-05T06-00-00-000Z_{SESSION}.jsonl"
    header = pi_header(OTHER, parentSession=path)

    original = session_of(*TREE[:5])
    fork = session_of(header, *TREE[1:3], pi_message(9, 2, "user", "Green."))

    assert [turn.key for turn in fork.turns[:2]] == [turn.key for turn in original.turns[:2]]
    assert (fork.id, fork.parent_id) == (OTHER, SESSION)


def test_equal_words_of_two_sessions_are_two_turns() -> None:
    one = pi_message(1, None, "user", "yes")
    other = one | {"timestamp": at(77)}
    untimed = pi_entry(1, None, "message", message={"role": "user", "content": "yes"})
    del untimed["timestamp"]

    assert turns(pi_header(), one)[0].key != turns(pi_header(OTHER), other)[0].key
    assert turns(pi_header(), untimed)[0].key != turns(pi_header(OTHER), untimed)[0].key


def test_entries_kept_over_a_compaction_are_there_once() -> None:
    parsed = read(
        pi_header(),
        pi_message(1, None, "user", "early"),
        pi_message(2, 1, "assistant", [said("kept")]),
        pi_entry(3, 2, "compaction", summary="It was early.", firstKeptEntryId="00000002"),
        pi_message(4, 3, "user", "late"),
    )

    assert spoken(parsed) == [
        (Speaker.USER, "early"),
        (Speaker.ASSISTANT, "kept"),
        (Speaker.SUMMARY, "It was early."),
        (Speaker.USER, "late"),
    ]


def test_repeated_headers_and_entries_add_nothing() -> None:
    parsed = read(TREE[0], *TREE, *TREE[1:])

    assert spoken(parsed) == spoken(read(*TREE))
    assert abandoned(TREE[0], *TREE, *TREE[1:]) == abandoned(*TREE)
    assert parsed.ignored["repeated entry"] == 7


def test_what_a_person_kept_from_the_model_is_never_taken() -> None:
    kept_back = {"command": "cat .env", "output": "hidden-1", "excludeFromContext": True}
    shown = {"command": "ls", "output": "a.py", "exitCode": 0}
    secret = {"customType": "x", "content": "hidden-3", "display": False}
    open_one = {"customType": "x", "content": "for all to see", "display": True}
    parsed = read(
        pi_header(),
        pi_message(1, None, "bashExecution", None, **kept_back),
        pi_entry(2, 1, "custom", customType="x", data={"note": "hidden-2"}),
        pi_entry(3, 2, "custom_message", **secret),
        pi_message(4, 3, "custom", secret["content"], display=False),
        pi_entry(5, 4, "custom_message", **open_one),
        pi_message(6, 5, "bashExecution", None, **shown),
    )

    assert "hidden" not in repr(parsed.sessions)
    assert spoken(parsed) == [(Speaker.TOOL, "for all to see"), (Speaker.TOOL, "$ ls\na.py")]
    assert parsed.ignored["shell output kept from the model"] == 1


def test_thoughts_calls_results_and_pictures_are_told_apart() -> None:
    picture = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
    blocks = [
        {"type": "thinking", "thinking": "open thought", "thinkingSignature": PICTURE},
        {"type": "thinking", "thinking": PICTURE, "redacted": True},
        {"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"command": "ls"}},
        {"type": "novel"},
    ]
    parsed = read(
        pi_header(),
        pi_message(1, None, "user", [said("see picture"), picture]),
        pi_message(2, 1, "assistant", blocks, model="m-1", provider="p"),
        pi_message(3, 2, "toolResult", [said("a.py"), picture], toolCallId="t1", isError=True),
        pi_message(4, 3, "toolResult", [said("orphan")], toolCallId="t9", toolName="read"),
    )

    _, thought, call, result, orphan = turns_of(parsed)
    assert (thought.text, thought.tags) == ("open thought", ("thinking",))
    assert thought.metadata == {"model": "m-1", "provider": "p"}
    assert call.metadata == {"tool": "bash", "part": "call", "call_id": "t1"}
    assert result.metadata == {"tool": "bash", "part": "result", "call_id": "t1", "is_error": True}
    assert orphan.metadata["tool"] == "read"
    assert (parsed.ignored["image"], parsed.ignored["block novel"]) == (2, 1)


def test_a_skill_or_file_put_before_a_person_s_words_is_taken_off() -> None:
    skill = '<skill name="x" location="/y">\nDo so.\n</skill>'
    file = '<file name="/a.py">\nimport a\n</file>\n'
    parsed = read(
        pi_header(),
        pi_message(1, None, "user", f"{skill}\n\nonly the roof"),
        pi_message(2, 1, "user", skill),
        pi_message(3, 2, "user", [said(file + "Explain it.")]),
        pi_message(4, 3, "user", f"What is {skill}?"),
    )

    assert texts_by(parsed, Speaker.USER) == ["only the roof", "Explain it.", f"What is {skill}?"]


@pytest.mark.parametrize(
    ("names", "title"),
    [(["One", "Two"], "Two"), (["One", ""], "Pick a colour."), ([None], "Pick a colour.")],
)
def test_the_newest_name_is_the_title_and_an_empty_one_clears_it(
    names: list[str | None], title: str
) -> None:
    infos = [pi_entry(20 + place, 2, "session_info", name=name) for place, name in enumerate(names)]

    assert session_of(*TREE[:3], *infos).title == title


def test_without_its_header_a_session_is_named_by_its_file() -> None:
    name = f"2026-04-05T06-00-00-000Z_{SESSION}.jsonl"

    session = session_of(b"\0" * 80, *TREE[1:], name=name)

    assert session.id == SESSION
    assert [turn.key for turn in session.turns] == [turn.key for turn in session_of(*TREE).turns]


def test_a_file_without_header_and_messages_is_refused() -> None:
    with pytest.raises(Unreadable, match="holds no header of a pi session"):
        read({"type": "session", "id": 7}, {"type": "message", "message": {"role": "user"}})


def test_messages_of_an_unexpected_shape_are_skipped_by_number() -> None:
    parsed = read(
        pi_header(),
        pi_entry(1, None, "message", message="text"),
        pi_message(2, 1, "user", None),
        pi_message(3, 2, "from_the_future", "x"),
        pi_message(4, 3, "user", "fine"),
    )

    assert spoken(parsed) == [(Speaker.USER, "fine")]
    assert [skip.line for skip in parsed.skipped] == [2, 3]
    assert parsed.ignored["message of from_the_future"] == 1
