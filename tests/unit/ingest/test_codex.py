"""Codex's rollout files: families, compaction, roll-backs, forks, and the first documents."""

import json
from typing import Any

import pytest

from tests.unit.ingest.session_files import (
    OTHER,
    PICTURE,
    SESSION,
    Record,
    at,
    cx,
    cx_answered,
    cx_call,
    cx_event,
    cx_item,
    cx_meta,
    cx_output,
    cx_typed,
    file_of,
    spoken,
    texts_by,
    turns_of,
)
from workers.ingest import rollout_document
from workers.ingest.codex import parse
from workers.ingest.parsed import Parsed, Session, Speaker, Turn, Unreadable

THIRD = "5e551017-0000-4000-8000-00000000000c"


def read(*records: Record | bytes, name: str = "rollout.jsonl") -> Parsed:
    return parse(file_of(records), name)


def session_of(*records: Record | bytes, name: str = "rollout.jsonl") -> Session:
    (session,) = read(*records, name=name).sessions
    return session


def turns(*records: Record | bytes) -> list[Turn]:
    return turns_of(read(*records))


def texts(*records: Record | bytes) -> list[str]:
    return [turn.text for turn in turns(*records)]


def completed(second: int, kind: str, text: str) -> Record:
    item = {"type": kind, "id": "1", "content": [{"type": "Text", "text": text}]}
    return cx_event(second, "item_completed", item=item)


# Families


def test_a_message_in_two_families_is_one_turn_and_a_resend_two() -> None:
    parsed = read(
        cx_meta(),
        cx_item(1, "user", "Add a flag."),
        cx_typed(1, "Add a flag."),
        cx_answered(2, "Added."),
        cx_item(2, "assistant", "Added."),
        cx_typed(3, "yes"),
        cx_item(3, "user", "yes"),
        cx_typed(4, "yes"),
        cx_item(4, "user", "yes"),
    )

    assert texts_by(parsed, Speaker.USER) == ["Add a flag.", "yes", "yes"]
    assert texts_by(parsed, Speaker.ASSISTANT) == ["Added."]
    assert len({turn.key for turn in turns_of(parsed)}) == 4


@pytest.mark.parametrize(
    "written",
    [
        (cx_item(1, "user", "go"), cx_item(1, "user", "go"), cx_typed(1, "go"), cx_typed(1, "go")),
        (cx_item(1, "user", "go"), cx_item(2, "user", "go")),
        (cx_typed(1, "go"), cx_typed(2, "go")),
        (completed(1, "UserMessage", "go"), completed(2, "UserMessage", "go")),
        (cx_typed(1, "go"), completed(1, "UserMessage", "go"), cx_typed(2, "go")),
        (cx_typed(1, "go"), cx_answered(2, "ok"), cx_item(3, "user", "go")),
    ],
)  # fmt: skip
def test_the_same_words_sent_twice_are_two_turns(written: tuple[Record, ...]) -> None:
    assert texts_by(read(cx_meta(), *written), Speaker.USER) == ["go", "go"]


@pytest.mark.parametrize(
    "written",
    [
        (cx_item(1, "user", "go"), cx_item(2, "assistant", "gone")),
        (cx_typed(1, "go"), cx_answered(2, "gone")),
        (completed(1, "UserMessage", "go"), completed(2, "AgentMessage", "gone")),
    ],
)
def test_each_family_is_enough_by_itself(written: tuple[Record, ...]) -> None:
    parsed = read(cx_meta(), *written)

    assert spoken(parsed) == [(Speaker.USER, "go"), (Speaker.ASSISTANT, "gone")]


def test_thoughts_in_two_families_are_one_and_sealed_ones_are_none() -> None:
    summary = [{"type": "summary_text", "text": "look at the vane"}]
    kept = turns(
        cx_meta(),
        cx_event(1, "agent_reasoning", text="look at the vane"),
        cx(1, "response_item", type="reasoning", summary=summary, encrypted_content=PICTURE),
        cx(2, "response_item", type="reasoning", summary=[], encrypted_content=PICTURE),
    )

    assert [(turn.text, turn.tags) for turn in kept] == [("look at the vane", ("thinking",))]


# Who said it


@pytest.mark.parametrize(
    "text",
    [
        "# AGENTS.md instructions for /home\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>",
        "<environment_context>\n<cwd>/home</cwd>\n</environment_context>",
        "<user_shell_command>ls</user_shell_command>",
        "<recommended_plugins>x</recommended_plugins>",
        "<hook_prompt>x</hook_prompt>",
        "<turn_aborted>x</turn_aborted>",
    ],
)
def test_what_the_program_writes_in_the_user_s_name_is_no_turn(text: str) -> None:
    asked = cx_item(2, "user", text, "Where is the vane?")

    assert texts(cx_meta(), cx_item(1, "user", text), cx_typed(1, text)) == []
    assert session_of(cx_meta(), cx_item(1, "user", text), asked).title == "Where is the vane?"
    assert texts(cx_meta(), asked) == ["Where is the vane?"]


def test_a_developer_s_or_system_s_text_is_no_knowledge() -> None:
    instructions = {"type": "user_message", "message": "rule", "kind": "user_instructions"}
    parsed = read(
        cx_meta(base_instructions="be kind"),
        cx_item(1, "developer", "secret rule"),
        cx_item(1, "system", "secret rule"),
        cx(1, "event_msg", **instructions),
        cx_item(2, "user", "hello"),
    )

    assert spoken(parsed) == [(Speaker.USER, "hello")]
    assert parsed.ignored["message of developer"] == 1


def test_what_an_editor_sets_before_a_request_is_taken_off() -> None:
    context = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n"
    asked = "## My request for Codex:\nMove the vane."
    talk_of_it = "What does '## My request for Codex:' do?"

    assert texts(cx_meta(), cx_item(1, "user", context + asked), cx_typed(1, asked)) == [
        "Move the vane."
    ]
    assert texts(cx_meta(), cx_item(1, "user", talk_of_it)) == [talk_of_it]


def test_pictures_are_left_out_with_their_marks() -> None:
    content = [
        {"type": "input_text", "text": '<image name="1">'},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "What is that cloud?"},
    ]
    parsed = read(
        cx_meta(),
        cx(1, "response_item", type="message", role="user", content=content),
        cx_typed(1, "What is that cloud?"),
    )

    assert spoken(parsed) == [(Speaker.USER, "What is that cloud?")]
    assert parsed.ignored["image"] == 1


# Tools


def test_every_shape_of_a_tool_s_call_and_result_is_read() -> None:
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
    shell = {"type": "exec", "command": ["bash", "-lc", "ls"], "timeout_ms": 1}
    patch: dict[str, Any] = {"name": "apply_patch", "call_id": "c2", "input": "*** Begin Patch"}
    parsed = read(
        cx_meta(),
        cx_call(1, "c0", '{"cmd": "ls", "n": 1}'),
        cx_output(1, "c0", json.dumps({"output": "a.py", "metadata": {"exit_code": 0}})),
        cx_call(2, "c1", "{not json"),
        cx_output(2, "c1", [{"type": "input_text", "text": "in a list"}, picture]),
        cx(3, "response_item", type="custom_tool_call", **patch),
        cx(3, "response_item", type="custom_tool_call_output", call_id="c2", output="patched"),
        cx(4, "response_item", type="local_shell_call", call_id="c3", action=shell),
        cx_output(5, "nobody", "an orphan"),
        cx(6, "response_item", type="web_search_call", action={"type": "search", "query": "hail"}),
        cx(7, "response_item", type="from_the_future", x=1),
        cx(8, "world_state", a=1),
        cx_event(9, "exec_command_end", call_id="c3", output="twice"),
    )

    assert [(turn.text, turn.metadata.get("tool")) for turn in turns_of(parsed)] == [
        ("shell\ncmd: ls\nn: 1", "shell"),
        ("a.py", "shell"),
        ("shell\n{not json", "shell"),
        ("in a list", "shell"),
        ("apply_patch\n*** Begin Patch", "apply_patch"),
        ("patched", "apply_patch"),
        ("shell\nbash -lc ls", "shell"),
        ("an orphan", None),
        ("web_search\ntype: search\nquery: hail", "web_search"),
    ]
    assert {turn.speaker for turn in turns_of(parsed)} == {Speaker.TOOL}
    assert [turn.metadata["call_id"] for turn in turns_of(parsed)[:6]] == [
        "c0", "c0", "c1", "c1", "c2", "c2",
    ]  # fmt: skip
    assert parsed.skipped == ()
    for kind in ("image", "from_the_future", "world_state", "exec_command_end"):
        assert parsed.ignored[kind] == 1


def test_arguments_that_hide_what_cannot_be_stored_are_cleaned() -> None:
    hidden = json.dumps({"a": "x\0y", "b": "\ud800"})
    deep = '{"a": ' + "[" * 50_000 + "]" * 50_000 + "}"

    kept = turns(cx_meta(), cx_call(1, "c1", hidden), cx_call(2, "c2", deep))

    assert kept[0].text == "shell\na: xy\nb: \ufffd"
    assert kept[1].text == f"shell\n{deep}"


# What left the context


def test_a_compaction_is_a_summary_and_repeats_nothing() -> None:
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]},
        {"type": "compaction", "encrypted_content": PICTURE},
    ]
    parsed = read(
        cx_meta(),
        cx_item(1, "user", "one"),
        cx(2, "compacted", message="They said one.", replacement_history=history),
        cx_event(2, "context_compacted"),
        cx_item(3, "user", "two"),
    )

    assert spoken(parsed) == [
        (Speaker.USER, "one"),
        (Speaker.SUMMARY, "They said one."),
        (Speaker.USER, "two"),
    ]


def test_turns_that_were_rolled_back_are_abandoned() -> None:
    back = cx_event(9, "thread_rolled_back", num_turns=1)
    kept = turns(
        cx_meta(),
        cx_item(1, "user", "one"),
        cx_item(2, "assistant", "did one"),
        cx_item(3, "user", "two"),
        cx_item(4, "assistant", "did two"),
        back,
        cx_item(5, "user", "three"),
        cx_item(6, "user", "four"),
        back,
        back,
        cx_item(7, "user", "five"),
    )

    left = [turn.text for turn in kept if turn.tags]
    assert left == ["two", "did two", "three", "four"]
    assert all(turn.tags in ((), ("abandoned",)) for turn in kept)


@pytest.mark.parametrize("turns_back", [0, -1, None, "2", 99])
def test_a_roll_back_of_any_number_ends_nothing(turns_back: Any) -> None:
    back = cx_event(2, "thread_rolled_back", num_turns=turns_back)

    (turn,) = turns(cx_meta(), cx_item(1, "user", "one"), back)

    assert turn.tags == (("abandoned",) if turns_back == 99 else ())


# Sessions


def test_a_fork_that_repeats_its_parent_has_its_keys() -> None:
    first = [cx_item(1, "user", "one"), cx_item(2, "assistant", "did one")]
    copied = [{**line, "timestamp": at(100)} for line in first]
    parent, child = cx_meta(), cx_meta(OTHER, forked_from_id=SESSION)
    grandchild = cx_meta(THIRD, forked_from_id=OTHER)

    original = session_of(parent, *first, cx_item(3, "user", "plan a"))
    fork = session_of(child, parent, *copied, cx_item(101, "user", "plan b"))
    second = session_of(grandchild, child, parent, *copied, cx_item(102, "user", "plan c"))

    shared = [turn.key for turn in original.turns[:2]]
    assert [turn.key for turn in fork.turns[:2]] == shared
    assert [turn.key for turn in second.turns[:2]] == shared
    assert len({session.turns[2].key for session in (original, fork, second)}) == 3
    assert (fork.id, fork.parent_id) == (OTHER, SESSION)
    assert (second.id, second.parent_id) == (THIRD, OTHER)


def test_a_fork_that_repeats_nothing_is_read_as_well() -> None:
    fork = session_of(cx_meta(OTHER, forked_from_id=SESSION), cx_item(1, "user", "plan b"))

    assert (fork.id, fork.parent_id, len(fork.turns)) == (OTHER, SESSION, 1)


def test_equal_words_in_two_sessions_are_two_turns() -> None:
    (one,) = turns(cx_meta(), cx_item(1, "user", "yes"))
    (other,) = turns(cx_meta(OTHER), cx_item(1, "user", "yes"))

    assert one.key != other.key


def test_forks_that_go_in_circles_end() -> None:
    metas = [cx_meta(SESSION, forked_from_id=OTHER), cx_meta(OTHER, forked_from_id=SESSION)]

    assert session_of(*metas, cx_item(1, "user", "one")).id == SESSION


def test_a_sub_agent_is_asked_by_the_model_that_spawned_it() -> None:
    spawn = {"parent_thread_id": OTHER, "depth": 1, "agent_nickname": "Wren"}
    meta = cx_meta(source={"subagent": {"thread_spawn": spawn}})

    session = session_of(meta, cx_item(1, "user", "count the gauges"))

    assert (session.id, session.parent_id, session.agent_id) == (SESSION, OTHER, "Wren")
    assert session.turns[0].speaker is Speaker.ASSISTANT
    assert session.turns[0].tags == ("delegated",)


def test_without_its_first_line_a_file_is_named_by_its_name() -> None:
    name = f"/x/rollout-2026-04-05T06-00-00-{SESSION}.jsonl.zst"

    lost = session_of(b"{torn", cx_item(1, "user", "one"), name=name)
    whole = session_of(cx_meta(), cx_item(1, "user", "one"), name="other.jsonl")

    assert lost.id == whole.id == SESSION
    assert [turn.key for turn in lost.turns] == [turn.key for turn in whole.turns]


def test_the_model_the_branch_and_the_phase_are_kept() -> None:
    (turn,) = turns(
        cx_meta(git={"branch": "storm"}),
        cx(1, "turn_context", model="m-9", cwd="/elsewhere"),
        cx_item(2, "assistant", "done", phase="final_answer"),
    )

    assert turn.metadata == {"branch": "storm", "model": "m-9", "phase": "final_answer"}


def test_times_of_every_kind_are_of_the_same_day() -> None:
    stamps = (
        1_775_368_800_000,
        1_775_368_801,
        "2026-04-05T20:00:02+14:00",
        "2026-04-05 06:00:03",
        None,
        "soon",
        1_775_368_804_000_000,
    )
    lines = [cx_item(0, "user", f"turn {place}") for place in range(len(stamps))]
    stamped = [line | {"timestamp": stamp} for line, stamp in zip(lines, stamps, strict=True)]

    kept = turns(cx_meta(), *stamped)

    assert [turn.text for turn in kept] == [f"turn {place}" for place in range(len(stamps))]
    assert [str(turn.occurred_at)[11:] for turn in kept] == [
        "06:00:00+00:00",
        "06:00:01+00:00",
        "06:00:02+00:00",
        "06:00:03+00:00",
        "06:00:03+00:00",
        "06:00:03+00:00",
        "06:00:04+00:00",
    ]


# Other files of Codex


def test_an_exec_stream_is_refused_by_its_name() -> None:
    stream = [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "hi"}},
    ]

    with pytest.raises(Unreadable, match="an exec stream and not a session file"):
        read(*stream)


def test_lines_of_the_first_version_have_no_envelope() -> None:
    meta = {"id": SESSION, "timestamp": at(0), "instructions": None, "git": {"branch": "b"}}
    message = {"type": "message", "role": "user", "content": [{"type": "text", "text": "one"}]}

    session = session_of(meta, message, {"record_type": "state"})

    assert session.id == SESSION
    assert [turn.text for turn in session.turns] == ["one"]


ITEMS = [
    {"role": "user", "timestamp": at(1), "content": "Which vane?"},
    {"role": "assistant", "timestamp": at(2), "content": [{"type": "text", "text": "The left."}]},
]
OLD = {"session": {"id": "old-7", "cwd": "/home/ann"}, "items": ITEMS}


@pytest.mark.parametrize("indent", [None, 0, 1, 4])
def test_a_document_of_the_first_versions_is_read_with_its_lines(indent: int | None) -> None:
    data = json.dumps(OLD, indent=indent).encode()

    parsed = parse(data, "rollout-old.json")

    (session,) = parsed.sessions
    assert (session.id, session.cwd, session.title) == ("old-7", "/home/ann", "Which vane?")
    assert spoken(parsed) == [(Speaker.USER, "Which vane?"), (Speaker.ASSISTANT, "The left.")]
    lines = data.splitlines()
    for turn in session.turns:
        held = b"\n".join(lines[turn.span.start - 1 : turn.span.end]).decode()
        assert turn.text in held
    assert (parsed.skipped, parsed.has_open_end) == ((), False)


def test_a_document_without_a_session_is_read() -> None:
    (session,) = parse(json.dumps({"items": ITEMS}).encode(), "rollout-x.json").sessions

    assert (session.id, len(session.turns)) == ("rollout-x", 2)


def test_a_document_cut_at_any_byte_holds_a_beginning_of_its_turns() -> None:
    data = json.dumps(OLD, indent=1).encode()
    whole = turns_of(parse(data, "x"))

    for cut in range(len(data) - 1):
        try:
            parsed = parse(data[:cut], "x")
        except Unreadable:
            assert cut <= data.index(b":")
            continue
        kept = turns_of(parsed)
        assert kept == whole[: len(kept)]
        assert parsed.has_open_end or not cut


@pytest.mark.parametrize(
    ("damage", "line"),
    [("nonsense", 4), ("[" * 5_000, 4), ("[" * 300 + "]" * 300, 4), ("9" * 5_000, 4)],
)
def test_damage_in_a_document_costs_what_follows_it(damage: str, line: int) -> None:
    first, second = (json.dumps(item) for item in ITEMS)
    text = f'{{"items": [\n{first},\n17,\n{damage},\n{second}]}}'

    parsed = parse(text.encode(), "x")

    assert [text for _, text in spoken(parsed)] == ["Which vane?"]
    assert [skip.line for skip in parsed.skipped] == [3, line]


@pytest.mark.parametrize(("bound", "size"), [("LONGEST_LINE", 100), ("MOST_VALUES", 5)])
def test_a_document_over_a_bound_is_refused(
    bound: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_document, bound, size)

    with pytest.raises(Unreadable, match="is one JSON document"):
        parse(json.dumps(OLD).encode(), "x")
