"""Claude Code's session files: what belongs together, who said it, and what was left behind."""

import pytest

from tests.unit.ingest.session_files import (
    OTHER,
    PICTURE,
    SESSION,
    Record,
    cc,
    cc_model,
    cc_result,
    cc_user,
    file_of,
    said,
    spoken,
    texts_by,
    turns_of,
    use,
)
from workers.ingest.claude_code import parse
from workers.ingest.parsed import Parsed, Session, Speaker, Turn, Unreadable

FAMILY = "👩‍👩‍👧"


def read(*records: Record | bytes, name: str = "session.jsonl") -> Parsed:
    return parse(file_of(records), name)


def session_of(*records: Record | bytes, name: str = "session.jsonl") -> Session:
    (session,) = read(*records, name=name).sessions
    return session


def turns(*records: Record | bytes, name: str = "session.jsonl") -> list[Turn]:
    return turns_of(read(*records, name=name))


def texts(*records: Record | bytes) -> list[str]:
    return [turn.text for turn in turns(*records)]


def keys(*records: Record | bytes) -> list[str]:
    return [turn.key for turn in turns(*records)]


def in_session(session: str, record: Record) -> Record:
    return record | {"sessionId": session}


def test_an_ordinary_session_keeps_its_roles_times_branch_and_title() -> None:
    parsed = read(
        {"type": "summary", "summary": "Flood alarm", "leafUuid": "uuid-4"},
        {"type": "file-history-snapshot", "messageId": "uuid-1", "snapshot": {}},
        cc_user(1, None, "Why is the alarm silent?"),
        cc_model(2, 1, {"type": "thinking", "thinking": "check the siren"}, use("toolu_2", "Read")),
        cc_result(3, 2, "toolu_2", "volume = 0", toolUseResult={"file": {"numLines": 1}}),
        cc_model(4, 3, said("Its volume is 0.")),
        cc(5, 4, "system", None, subtype="turn_duration", durationMs=900),
    )

    (session,) = parsed.sessions
    assert spoken(parsed) == [
        (Speaker.USER, "Why is the alarm silent?"),
        (Speaker.ASSISTANT, "check the siren"),
        (Speaker.TOOL, "Read"),
        (Speaker.TOOL, "volume = 0"),
        (Speaker.ASSISTANT, "Its volume is 0."),
    ]
    assert (session.id, session.title, session.cwd) == (SESSION, "Flood alarm", "/home/ann/weather")
    assert session.turns[1].tags == ("thinking",)
    assert session.turns[4].metadata == {"branch": "storm", "model": "m-1"}
    assert str(session.turns[4].occurred_at) == "2026-04-05 06:00:04+00:00"
    assert session.started_at == session.turns[0].occurred_at
    assert parsed.ignored == {
        "summary": 1,
        "file-history-snapshot": 1,
        "system turn_duration": 1,
    }


# What belongs together


def test_growing_copies_of_a_text_are_one_turn_with_the_longest_at_its_line() -> None:
    kept = turns(
        cc_user(1, None, "Where does it leak?"),
        cc_model(2, 1, said("At the"), message="a"),
        cc_model(3, 1, said("At the north valve."), message="a"),
        cc_model(4, 1, said("At the north"), message="a"),
    )

    assert [turn.text for turn in kept] == ["Where does it leak?", "At the north valve."]
    assert (kept[1].span.start, kept[1].span.end) == (3, 3)


def test_fragments_of_a_message_are_turns_of_their_own_and_repeats_are_none() -> None:
    lines = [
        cc_model(1, None, {"type": "thinking", "thinking": "hm"}, message="a"),
        cc_model(2, 1, said("First this."), message="a"),
        cc_model(3, 2, said("Then that."), message="a"),
        cc_model(4, 3, use("toolu_1", "Bash", command="ls"), message="a"),
        cc_model(5, 3, use("toolu_1", "Bash", command="ls"), message="a"),
        cc_model(6, 3, said("First this."), said("Then that."), message="a"),
    ]

    assert texts(*lines) == ["hm", "First this.", "Then that.", "Bash\ncommand: ls"]


def test_equal_blocks_in_one_line_are_two_turns_and_stay_two_when_repeated() -> None:
    line = cc_model(1, None, said("beep"), said("beep"), message="a")
    again = cc_model(2, 1, said("beep"), said("beep"), message="a")

    assert texts(line, again) == ["beep", "beep"]
    assert len(set(keys(line, again))) == 2


def test_a_message_that_grows_keeps_its_key() -> None:
    short = cc_model(2, 1, said("At the"), message="a")
    longer = cc_model(3, 1, said("At the north valve."), message="a")

    assert keys(short) == keys(short, longer)


@pytest.mark.parametrize("gateway", [True, False])
def test_repeats_without_a_request_id_are_one_turn(gateway: bool) -> None:
    members = {"requestId": None} if gateway else {}
    lines = [
        cc_model(number, 1, said("Pump 4."), message="chat-7", **members) for number in (2, 3, 4)
    ]

    assert texts(*lines) == ["Pump 4."]


def test_a_gateway_that_numbers_anew_does_not_mix_up_sessions() -> None:
    one = cc_model(1, None, said("Pump 4."), message="chat-1", requestId=None)
    other = in_session(OTHER, cc_model(2, None, said("Pump 4."), message="chat-1", requestId=None))

    assert keys(one) != keys(other)
    assert len(keys(one, other)) == 2


@pytest.mark.parametrize("request_id", ["req_1", None])
def test_a_forked_file_has_the_keys_of_the_lines_it_copied(request_id: str | None) -> None:
    shared = [
        cc_user(1, None, "Plan the drill."),
        cc_model(2, 1, said("Sirens at"), message="chat-1", requestId=request_id),
        cc_model(3, 1, said("Sirens at nine."), message="chat-1", requestId=request_id),
        cc_result(4, 3, "call_1", "ok"),
    ]
    copied = [in_session(OTHER, line) for line in shared]

    first = keys(*shared, cc_user(5, 4, "Do plan A."))
    second = keys(*copied, in_session(OTHER, cc_user(6, 4, "Do plan B.")))

    assert first[:3] == second[:3]
    assert first[3] != second[3]


def test_a_side_question_is_marked_and_what_it_replays_is_not_said_twice() -> None:
    side = {"isSidechain": True}
    kept = turns(
        cc_user(1, None, "Rewrite the gauge driver."),
        cc_model(2, 1, said("Starting with the lexer."), message="a", requestId="main"),
        cc_result(3, 2, "toolu_1", "fine"),
        cc_model(4, None, said("Starting with the lexer."), message="a", requestId="s", **side),
        cc_result(5, 4, "toolu_1", "fine", **side),
        cc_user(6, 5, "By the way, what is a millibar?", **side),
        cc_model(7, 6, said("A hundred pascals."), **side),
    )

    assert [(turn.text, turn.tags) for turn in kept] == [
        ("Rewrite the gauge driver.", ()),
        ("Starting with the lexer.", ()),
        ("fine", ()),
        ("By the way, what is a millibar?", ("sidechain",)),
        ("A hundred pascals.", ("sidechain",)),
    ]
    assert kept[3].speaker is Speaker.USER


def test_a_line_met_twice_is_one_turn_and_lines_without_identity_are_not_merged() -> None:
    bare = {"type": "user", "message": {"content": "yes"}}

    assert texts(cc_user(1, None, "yes"), cc_user(1, None, "yes")) == ["yes"]
    assert texts(bare, bare) == ["yes", "yes"]
    assert len(set(keys(bare, bare))) == 2
    assert not set(keys(bare)) & set(keys({**bare, "sessionId": OTHER}))


# Who said it


@pytest.mark.parametrize(
    "text",
    [
        "Caveat: The messages below were generated by the user",
        "<command-name>/clear</command-name>\n<command-args>now</command-args>",
        "<local-command-stdout>ok</local-command-stdout>",
        "<bash-input>ls</bash-input>",
        "  [Request interrupted by user for tool use]",
        "Stop hook feedback: lint first",
        "<task-notification>done</task-notification>",
        "<system-reminder>Be brief.</system-reminder>",
        "<ide_opened_file>a.py</ide_opened_file>",
    ],
)
def test_what_the_program_writes_in_the_user_s_name_is_no_turn(text: str) -> None:
    for content in (text, [said(text)], [text]):
        parsed = read(cc_user(1, None, content), cc_user(2, 1, "Name it dew."))

        assert spoken(parsed) == [(Speaker.USER, "Name it dew.")]
        assert parsed.ignored == {"machine text": 1}


def test_a_meta_line_is_no_turn() -> None:
    assert texts(cc_user(1, None, "You may be told this.", isMeta=True)) == []


def test_a_reminder_inside_a_person_s_words_is_taken_out() -> None:
    text = "Name it dew.\n<system-reminder>Hush.</system-reminder>"
    inside = "a <system-reminder>x</system-reminder>b<system-reminder>y</system-reminder> c"
    open_one = "What does <system-reminder> mean?"

    assert texts(cc_user(1, None, text), cc_user(2, 1, inside), cc_user(3, 2, open_one)) == [
        "Name it dew.",
        "a b c",
        open_one,
    ]
    assert texts(cc_result(1, None, "toolu_1", "42\n<system-reminder>x</system-reminder>")) == [
        "42"
    ]


@pytest.mark.parametrize("members", [{"isCompactSummary": True}, {}])
def test_the_recap_after_a_compaction_is_a_summary_in_one_session(members: Record) -> None:
    recap = "This session is being continued from before. The user loves tabs."
    boundary = cc(3, None, "system", None, subtype="compact_boundary", logicalParentUuid="uuid-2")
    parsed = read(
        cc_user(1, None, "Four spaces, never tabs."),
        cc_model(2, 1, said("Understood.")),
        boundary,
        cc_user(4, 3, recap, **members),
        cc_user(5, 4, "Now the hail route."),
    )

    assert len(parsed.sessions) == 1
    assert texts_by(parsed, Speaker.USER) == ["Four spaces, never tabs.", "Now the hail route."]
    assert texts_by(parsed, Speaker.SUMMARY) == [recap]


def test_what_is_typed_while_the_model_works_is_the_user_s() -> None:
    typed = {"type": "queued_command", "commandMode": "prompt", "prompt": "Also the cellar."}
    notice = {"type": "queued_command", "commandMode": "task-notification", "prompt": "done"}
    parsed = read(
        cc_user(1, None, "Check the roof."),
        cc(2, 1, "attachment", None, attachment=typed),
        cc(3, 2, "attachment", None, attachment=notice),
        cc(4, 3, "attachment", None, attachment={"type": "file", "content": "x"}),
    )

    assert texts_by(parsed, Speaker.USER) == ["Check the roof.", "Also the cellar."]
    assert parsed.ignored == {"attachment queued_command": 1, "attachment file": 1}


def test_errors_of_the_service_are_not_the_model_s_words() -> None:
    failed = cc_model(1, None, said("API Error: 529"), isApiErrorMessage=True)
    silent = cc_model(2, 1, said("No response requested."))
    silent["message"]["model"] = "<synthetic>"

    assert texts(failed, silent) == []


def test_pictures_are_left_out_and_counted_and_their_captions_kept() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": PICTURE}}
    parsed = read(
        cc_user(1, None, [said("This is the radar."), picture]),
        cc_result(2, 1, "toolu_1", [picture, said("a caption")], toolUseResult={"b": PICTURE}),
        cc_user(3, 2, [{"type": "document", "source": {"type": "base64", "data": PICTURE}}]),
    )

    assert [text for _, text in spoken(parsed)] == ["This is the radar.", "a caption"]
    assert parsed.ignored == {"image": 2, "block document": 1}


def test_a_document_s_text_is_attached_and_not_said() -> None:
    document = {"type": "document", "source": {"type": "text", "data": "Chapter one."}}

    (turn,) = turns(cc_user(1, None, [document]))

    assert (turn.speaker, turn.text, turn.tags) == (Speaker.TOOL, "Chapter one.", ("attached",))


def test_a_tool_s_result_is_linked_to_its_call() -> None:
    call, result, orphan = turns(
        cc_model(1, None, use("toolu_1", "Bash", command="df", timeout=5)),
        cc_user(
            2,
            1,
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": "full",
                    "is_error": True,
                }
            ],
        ),
        cc_result(3, 2, "toolu_lost", "orphan"),
    )

    assert call.text == "Bash\ncommand: df\ntimeout: 5"
    assert call.metadata | result.metadata == {
        "branch": "storm",
        "tool": "Bash",
        "part": "result",
        "call_id": "toolu_1",
        "is_error": True,
    }
    assert call.metadata["part"] == "call"
    assert (orphan.speaker, orphan.metadata["call_id"]) == (Speaker.TOOL, "toolu_lost")


# Sub-agents


def test_a_sub_agent_s_file_is_a_session_of_its_own_below_its_parent() -> None:
    side = {"isSidechain": True, "agentId": "ab12"}
    name = f"{SESSION}/subagents/agent-ab12.jsonl"
    task = cc_user(1, None, "list all gauges", **side)
    answer = cc_model(2, 1, said("three: a, b, c"), **side)

    session = session_of(task, answer, name=name)

    assert (session.id, session.parent_id) == (f"{SESSION}/agent-ab12", SESSION)
    assert (session.agent_id, session.title) == ("ab12", "list all gauges")
    # No person said it: the model asked its agent.
    assert session.turns[0].speaker is Speaker.ASSISTANT
    assert session.turns[0].tags == ("delegated", "sidechain")
    assert session_of(task, answer, name="upload").id == session.id


def test_a_file_that_is_only_called_like_a_sub_agent_is_a_person_s_session() -> None:
    session = session_of(cc_user(1, None, "hello"), name="agent-notes.jsonl")

    assert (session.id, session.agent_id) == (SESSION, None)
    assert session.turns[0].speaker is Speaker.USER


def test_a_sub_agent_is_linked_from_the_call_that_started_it() -> None:
    progress = cc(3, 2, "progress", None, parentToolUseID="toolu_1")
    progress["data"] = {"type": "agent_progress", "agentId": "ab12"}

    _, call = turns(
        cc_user(1, None, "Find all gauges."),
        cc_model(2, 1, use("toolu_1", "Task", prompt="list all gauges")),
        progress,
    )
    _, other, _ = turns(
        cc_user(1, None, "Find all gauges."),
        cc_model(2, 1, use("toolu_1", "Task", prompt="list all gauges")),
        cc_result(3, 2, "toolu_1", "three", toolUseResult={"agentId": "cd34"}),
    )

    assert call.metadata["agent_id"] == "ab12"
    assert other.metadata["agent_id"] == "cd34"


def test_a_task_inside_its_parent_s_file_is_the_model_s_words() -> None:
    parsed = read(
        cc_user(1, None, "Find all gauges."),
        cc_model(2, 1, use("toolu_1", "Task", prompt="list all gauges")),
        cc_user(3, None, "list all gauges", isSidechain=True),
    )

    assert texts_by(parsed, Speaker.USER) == ["Find all gauges."]


# What was left behind


def test_a_prompt_that_was_rewound_is_abandoned_with_all_that_followed() -> None:
    kept = turns(
        cc_user(1, None, "Pick a colour."),
        cc_model(2, 1, said("Grey?")),
        cc_user(3, 2, "Grey it is."),
        cc_model(4, 3, said("Painted it grey.")),
        cc_user(5, 2, "No, blue."),
        cc_model(6, 5, said("Painted it blue.")),
    )

    left = [turn.text for turn in kept if "abandoned" in turn.tags]
    assert left == ["Grey it is.", "Painted it grey."]


def test_tools_side_by_side_and_repeated_lines_are_not_abandoned() -> None:
    kept = turns(
        cc_user(1, None, "Look at both."),
        cc_model(2, 1, use("toolu_a", "Read"), message="a"),
        cc_model(3, 2, use("toolu_b", "Read"), message="a"),
        cc_result(4, 2, "toolu_a", "one"),
        cc_result(5, 3, "toolu_b", "two"),
        cc_model(6, 5, said("Both are fine.")),
    )

    assert all(turn.tags == () for turn in kept)


def test_parents_that_are_missing_or_go_in_circles_abandon_nothing() -> None:
    kept = turns(
        cc_user(1, 2, "one"),
        cc_user(2, 1, "two"),
        cc_user(3, 3, "three"),
        cc_user(4, 99, "four"),
        cc_user(5, 99, "five"),
    )

    assert [turn.tags for turn in kept] == [()] * 5


# The session


def test_the_working_directory_is_the_lines_and_not_the_folder_s_name() -> None:
    line = cc_user(1, None, "hello")
    names = "-srv-rain-gauge/x.jsonl"

    assert session_of(line | {"cwd": "/srv/rain-gauge"}, name=names).cwd == "/srv/rain-gauge"
    assert session_of(line | {"cwd": "/srv/rain/gauge"}, name=names).cwd == "/srv/rain/gauge"


def test_a_title_that_a_person_gave_comes_first_and_the_first_prompt_last() -> None:
    asked = cc_user(1, None, "\n  What   rains?\nsecond line")
    made = {"type": "ai-title", "aiTitle": "Made", "sessionId": SESSION}
    given = {"type": "custom-title", "customTitle": "Given", "sessionId": SESSION}
    foreign = {"type": "summary", "summary": "Of another", "leafUuid": "uuid-elsewhere"}

    assert session_of(asked).title == "What rains?"
    assert session_of(foreign, asked).title == "What rains?"
    assert session_of(asked, made).title == "Made"
    assert session_of(asked, given, made).title == "Given"


def test_a_long_title_is_cut_between_characters() -> None:
    for length in range(100, 125):
        title = session_of(cc_user(1, None, "x" * length + FAMILY * 20)).title

        assert title is not None
        assert title.endswith("…")
        assert len(title.encode()) <= 120
        assert set(title.rstrip("…").replace(FAMILY, "")) == {"x"}
        assert "\ufffd" not in title


def test_a_resumed_file_that_kept_old_ids_is_the_session_of_its_name() -> None:
    old = in_session(OTHER, cc_user(1, None, "before"))

    session = session_of(old, cc_user(2, 1, "after"), name=f"/x/{SESSION}.jsonl")

    assert (session.id, session.parent_id) == (SESSION, OTHER)


def test_a_file_in_which_nothing_was_said_is_no_session() -> None:
    parsed = read(
        {"type": "custom-title", "customTitle": "nothing", "sessionId": SESSION},
        cc_user(1, None, ""),
        cc_user(2, 1, "  \n\t"),
        cc_user(3, 2, []),
        cc_model(4, 3),
        cc_model(5, 4, said("")),
        cc_model(6, 5, {"type": "thinking", "thinking": ""}),
    )

    assert (parsed.sessions, parsed.skipped) == ((), ())
    assert parsed.ignored == {"custom-title": 1, "empty text": 6}


# Shapes


def test_lines_of_an_unexpected_shape_are_skipped_by_number_and_cost_no_other() -> None:
    odd_call = use("c", "Bash") | {"input": "x"}
    parsed = read(
        cc_user(1, None, ["plain in a list", said("and a block")]),
        {"type": "user", "uuid": "q2", "message": "no object"},
        {"type": "user", "uuid": "q3", "message": {"contents": "a typo"}},
        {"type": "assistant", "uuid": "q4", "message": {"content": None}},
        {"type": "assistant", "uuid": "q5", "timestamp": 12, "message": {"content": [None, 5]}},
        {"type": "assistant", "message": {"content": [{"type": "text"}, odd_call]}},
        {"type": "message", "role": "user", "content": "of an old tool", "sessionId": SESSION},
    )  # fmt: skip

    assert [text for _, text in spoken(parsed)] == [
        "plain in a list\nand a block",
        "Bash\nx",
        "of an old tool",
    ]
    assert [skip.line for skip in parsed.skipped] == [2, 3, 4]
    assert turns_of(parsed)[1].occurred_at == turns_of(parsed)[0].occurred_at


def test_sealed_thoughts_and_unknown_blocks_are_counted() -> None:
    sealed = {"type": "redacted_thinking", "data": "gAAAA"}
    parsed = read(cc_model(1, None, sealed, {"type": "novel"}, said("fine")))

    assert [text for _, text in spoken(parsed)] == ["fine"]
    assert parsed.ignored == {"block redacted_thinking": 1, "block novel": 1}


def test_text_that_is_no_session_is_refused() -> None:
    with pytest.raises(Unreadable, match="holds no line of a Claude Code session"):
        parse(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a.jsonl")
