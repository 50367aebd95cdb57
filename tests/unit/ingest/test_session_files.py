"""What holds for the session files of every agent, whatever state they are in."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ingest.session_files import (
    AGENTS,
    PICTURE,
    Agent,
    Record,
    file_of,
    spoken,
    turns_of,
)
from workers.ingest import lines
from workers.ingest.parsed import Parsed, Speaker, Turn, Unreadable

DAMAGE = {
    b"\0" * 4096: "holds only NUL bytes",
    b"{not json": "is not JSON",
    b'{"type": "user", "uuid"': "is not JSON",
    b'"a text"': "is not a JSON object",
    b"17": "is not a JSON object",
    b"null": "is not a JSON object",
    b"[1, 2]": "is not a JSON object",
    b"\x89PNG\xff\xfe": "is not a JSON object",
    b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}": "is nested more than 200 levels deep",
    b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}": "is nested more than 200 levels deep",
    b'{"a": ' + b"9" * 5_000 + b"}": "is not JSON",
}
each_agent = pytest.mark.parametrize("agent", AGENTS, ids=str)

names = st.sampled_from(["type", "text", "content", "role", "id"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0<#["), max_size=30)
talks = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), words), max_size=12)


def read(agent: Agent, data: bytes, name: str = "file.jsonl") -> Parsed:
    return agent.parse(data, name)


def sample(agent: Agent) -> bytes:
    return file_of(agent.sample)


def known_by(turns: list[Turn]) -> list[tuple[str, str]]:
    return [(turn.key, turn.text) for turn in turns]


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from (*strings_in(name), *strings_in(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings_in(inner)


def check_can_be_stored(parsed: Parsed) -> None:
    turns = turns_of(parsed)
    assert all(turn.text.strip() for turn in turns)
    assert len({turn.key for turn in turns}) == len(turns)
    assert all(turn.occurred_at is None or turn.occurred_at.tzinfo for turn in turns)
    for text in strings_in(asdict(parsed)):
        assert "\0" not in text
        text.encode()
    json.dumps([dict(turn.metadata) for turn in turns], allow_nan=False)


@each_agent
def test_a_sound_file_is_read_whole_in_its_order(agent: Agent) -> None:
    parsed = read(agent, sample(agent))

    (session,) = parsed.sessions
    assert parsed.format == agent.format
    assert (parsed.skipped, parsed.notes, parsed.has_open_end) == ((), (), False)
    assert session.cwd == "/home/ann/weather"
    assert [turn.span.start for turn in session.turns] == sorted(
        turn.span.start for turn in session.turns
    )
    assert {turn.speaker for turn in session.turns} == set(Speaker)
    check_can_be_stored(parsed)


@each_agent
def test_a_span_is_the_lines_that_hold_the_turn(agent: Agent) -> None:
    written = [json.dumps(record, ensure_ascii=False) for record in agent.sample]

    for turn in turns_of(read(agent, sample(agent))):
        held = "\n".join(written[turn.span.start - 1 : turn.span.end])
        marks = [word.strip(".,") for word in turn.text.split() if "rime-" in word]
        assert turn.span.unit == "lines"
        assert marks
        assert all(mark in held for mark in marks)


@each_agent
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: repr(damage[:12]))
def test_a_damaged_line_costs_only_itself(agent: Agent, damage: bytes) -> None:
    whole = known_by(turns_of(read(agent, sample(agent))))

    for place in range(1, len(agent.sample) + 1):
        records = [*agent.sample[:place], damage, *agent.sample[place:]]
        parsed = read(agent, file_of(records))

        assert known_by(turns_of(parsed)) == whole
        (skipped,) = parsed.skipped
        assert (skipped.line, skipped.reason) == (place + 1, DAMAGE[damage])


@each_agent
def test_a_lost_line_costs_only_its_own_turns(agent: Agent) -> None:
    whole = turns_of(read(agent, sample(agent)))

    for place in range(1, len(agent.sample)):
        records = [*agent.sample[:place], b"{lost", *agent.sample[place + 1 :]]
        kept = known_by(turns_of(read(agent, file_of(records))))

        expected = known_by([turn for turn in whole if turn.span.start != place + 1])
        # Where a message is written twice, its copy stands in for it.
        assert [pair for pair in kept if pair in expected] == expected


@each_agent
def test_a_file_cut_at_any_byte_holds_a_beginning_of_its_turns(agent: Agent) -> None:
    data = sample(agent)
    whole = known_by(turns_of(read(agent, data)))

    for cut in range(len(data)):
        parsed = read(agent, data[:cut])

        kept = known_by(turns_of(parsed))
        assert kept == whole[: len(kept)]
        assert parsed.skipped == ()
        is_between_lines = data[:cut].endswith((b"\n", b"}")) or not cut
        assert parsed.has_open_end or is_between_lines


@each_agent
def test_a_last_line_without_its_end_is_read_once_it_is_whole(agent: Agent) -> None:
    data = sample(agent)

    assert read(agent, data.rstrip()).sessions == read(agent, data).sessions
    assert not read(agent, data.rstrip()).has_open_end
    assert read(agent, data.rstrip()[:-1]).has_open_end


@each_agent
@pytest.mark.parametrize(
    "written",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b"\r\n\r\n   \r\n"),
        lambda data: data.decode().encode("utf-16"),
        lambda data: b"\xfe\xff" + data.decode().encode("utf-16-be"),
        lambda data: data.decode().encode("utf-32"),
    ],
    ids=["bom", "crlf", "blank-lines", "utf-16", "utf-16-be", "utf-32"],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_encoding_of_a_file_changes_nothing(
    agent: Agent, written: Any, ascii_only: bool
) -> None:
    data = file_of(agent.sample, ascii_only=ascii_only)

    parsed = read(agent, written(data))

    assert known_by(turns_of(parsed)) == known_by(turns_of(read(agent, data)))
    assert parsed.skipped == ()


@each_agent
def test_nul_bytes_before_a_line_are_passed_over_and_told(agent: Agent) -> None:
    first, *rest = agent.sample
    torn = b"\0" * 100 + json.dumps(rest[0]).encode()

    parsed = read(agent, file_of([first, torn, *rest[1:]]))

    assert known_by(turns_of(parsed)) == known_by(turns_of(read(agent, sample(agent))))
    assert parsed.notes == ("NUL bytes beside a line passed over: 100 (first in line 2)",)


@each_agent
def test_what_cannot_be_stored_is_replaced_and_told(agent: Agent) -> None:
    broken = "a\0b \ud83d c \ude00 \U0001f600"
    data = file_of(agent.talk([("user", broken), ("assistant", "fine")]))

    parsed = read(agent, data)

    assert [text for _, text in spoken(parsed)] == ["ab \ufffd c \ufffd \U0001f600", "fine"]
    assert [note.split(" (")[0] for note in parsed.notes] == [
        "U+0000 removed, which PostgreSQL cannot store: 1",
        "halves of surrogate pairs read as U+FFFD: 2",
    ]
    check_can_be_stored(parsed)


@each_agent
def test_halves_that_are_no_escapes_are_replaced_and_told_too(agent: Agent) -> None:
    data = file_of(agent.talk([("user", "a HALF c"), ("assistant", "fine \u6728")]))
    data = data.replace(b"HALF", "\ud83d".encode("utf-8", "surrogatepass"))

    parsed = read(agent, data)

    assert [text for _, text in spoken(parsed)] == ["a \ufffd c", "fine \u6728"]
    (note,) = parsed.notes
    assert note.startswith("halves of surrogate pairs read as U+FFFD: 1")


@each_agent
def test_bytes_that_are_not_utf_8_cost_no_word(agent: Agent) -> None:
    data = file_of(agent.talk([("user", "a raven-word here"), ("assistant", "fine")]))
    data = data.replace(b"a raven", b"\x97 raven")

    parsed = read(agent, data)

    assert [text for _, text in spoken(parsed)] == ["\ufffd raven-word here", "fine"]
    assert len(parsed.notes) == 1
    assert "not UTF-8" in parsed.notes[0]


@each_agent
def test_pictures_are_never_text_however_they_are_written(agent: Agent) -> None:
    shown = f"see data:image/png;base64,{PICTURE} and {PICTURE} there"
    data = file_of(agent.talk([("user", shown), ("user", PICTURE), ("assistant", "fine")]))

    parsed = read(agent, data)

    texts = [text for _, text in spoken(parsed)]
    assert texts == ["see [base64] and [base64] there", "fine"]
    assert any("base64 left out: 3" in note for note in parsed.notes)


@each_agent
@pytest.mark.parametrize(
    "text",
    ["x" * 5_000, "ACGT" * 2_000, "0123456789abcdef" * 500, "/usr/lib/a_b-c/" * 60, "-" * 900],
)
def test_long_words_that_are_no_pictures_stay(agent: Agent, text: str) -> None:
    assert [text for _, text in spoken(read(agent, file_of(agent.talk([("user", text)]))))] == [
        text
    ]


@each_agent
def test_unknown_kinds_are_counted_and_cost_nothing(agent: Agent) -> None:
    whole = known_by(turns_of(read(agent, sample(agent))))
    unknown = {"type": "hologram", "timestamp": "2026-04-05T06:00:00Z", "payload": {"x": [1]}}
    records = [record for known in agent.sample for record in (known, unknown, {}, {"type": 5})]

    parsed = read(agent, file_of(records))

    assert known_by(turns_of(parsed)) == whole
    assert parsed.skipped == ()
    assert parsed.ignored["hologram"] == len(agent.sample)
    assert parsed.ignored["line without a type"] == 2 * len(agent.sample)


@each_agent
def test_kinds_without_end_do_not_fill_the_report(agent: Agent) -> None:
    strange = [{"type": f"kind-{number}" + "x" * 500, "payload": {}} for number in range(1_000)]

    parsed = read(agent, file_of([*agent.sample, *strange]))

    assert len(parsed.ignored) <= lines.MOST_KINDS + 1
    assert max(map(len, parsed.ignored)) <= 60
    assert sum(parsed.ignored.values()) >= 1_000


@each_agent
def test_skipped_lines_without_end_are_counted_beyond_those_listed(agent: Agent) -> None:
    parsed = read(agent, file_of([*agent.sample, *[b"torn"] * 3_000]))

    assert len(parsed.skipped) == lines.MOST_LISTED
    assert parsed.unlisted == 3_000 - lines.MOST_LISTED


@each_agent
def test_a_line_over_the_bound_is_skipped_with_its_reason(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = known_by(turns_of(read(agent, sample(agent))))
    monkeypatch.setattr(lines, "LONGEST_LINE", 2**20)

    parsed = read(agent, file_of([agent.sample[0], b" " * 2**21, *agent.sample[1:]]))

    assert known_by(turns_of(parsed)) == whole
    assert [(skip.line, skip.reason) for skip in parsed.skipped] == [(2, "is longer than 1 MiB")]


@each_agent
@pytest.mark.parametrize("value", [b"[]", b'{"a":1}', b'"\\\\\\"ab"'])
def test_a_line_of_too_many_values_is_skipped_before_it_fills_the_memory(
    agent: Agent, value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST_VALUES", 1_000)
    crowded = b'{"a": [' + b",".join([value] * 2_000) + b"]}"
    wordy = b'{"a": "' + b"one, two, [three], {four}, " * 2_000 + b'"}'

    parsed = read(agent, file_of([*agent.sample, crowded, wordy]))

    assert [skip.reason for skip in parsed.skipped] == ["holds more than 1,000 values"]


@each_agent
def test_an_empty_file_is_no_session_and_no_failure(agent: Agent) -> None:
    for data in (b"", b"\n", b" \r\n\n", b"\0" * 99, b'{"typ'):
        assert read(agent, data).sessions == ()


@each_agent
def test_a_file_of_another_format_is_refused(agent: Agent) -> None:
    others = [file_of(other.sample) for other in AGENTS if other is not agent]

    for data in (*others, b"# A page\n\nof text\n", b'{"name": "poimen"}\n'):
        with pytest.raises(Unreadable, match="holds no"):
            read(agent, data)


@each_agent
@given(talk=talks)
def test_what_was_said_is_read_as_it_was_said(agent: Agent, talk: list[tuple[str, str]]) -> None:
    parsed = read(agent, file_of(agent.talk(talk)))

    expected = [(Speaker(role), text) for role, text in talk if text.strip()]
    assert spoken(parsed) == expected
    check_can_be_stored(parsed)
    assert read(agent, file_of(agent.talk(talk))) == parsed


@each_agent
@given(talk=talks, data=st.data())
def test_a_growing_file_keeps_its_keys_and_their_order(
    agent: Agent, talk: list[tuple[str, str]], data: st.DataObject
) -> None:
    written = file_of(agent.talk(talk))
    cut = data.draw(st.integers(0, len(written)))

    earlier = turns_of(read(agent, written[:cut]))

    later = turns_of(read(agent, written))
    assert known_by(earlier) == known_by(later[: len(earlier)])
    assert [turn.span for turn in earlier] == [turn.span for turn in later[: len(earlier)]]


@each_agent
@given(talk=talks, more=talks, data=st.data())
def test_a_file_that_was_rewound_keeps_the_keys_of_what_it_still_holds(
    agent: Agent, talk: list[tuple[str, str]], more: list[tuple[str, str]], data: st.DataObject
) -> None:
    kept = data.draw(st.integers(0, len(talk)))

    before = turns_of(read(agent, file_of(agent.talk(talk))))
    after = turns_of(read(agent, file_of(agent.talk([*talk[:kept], *more]))))

    shared = len([text for _, text in talk[:kept] if text.strip()])
    assert known_by(before[:shared]) == known_by(after[:shared])


@each_agent
@given(data=st.data())
def test_bytes_that_were_changed_never_end_the_reading(agent: Agent, data: st.DataObject) -> None:
    written = bytearray(sample(agent))
    for _ in range(data.draw(st.integers(1, 20))):
        place = data.draw(st.integers(0, len(written) - 1))
        written[place : place + data.draw(st.integers(1, 9))] = data.draw(st.binary(max_size=9))

    with suppress(Unreadable):
        check_can_be_stored(read(agent, bytes(written)))


@each_agent
@given(data=st.data())
def test_members_of_any_shape_never_end_the_reading(agent: Agent, data: st.DataObject) -> None:
    records = [json.loads(json.dumps(record)) for record in agent.sample]
    for _ in range(data.draw(st.integers(1, 4))):
        change_somewhere(data.draw(st.sampled_from(records)), data)

    with suppress(Unreadable):
        check_can_be_stored(read(agent, file_of(records)))


def change_somewhere(record: Record, data: st.DataObject) -> None:
    place: Any = record
    while True:
        names = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not names:
            return
        name = data.draw(st.sampled_from(names))
        inner = place[name]
        if not isinstance(inner, dict | list) or data.draw(st.booleans()):
            place[name] = data.draw(json_values)
            return
        place = inner


@each_agent
@pytest.mark.parametrize("text", ["yes", None], ids=["the-same-text", "other-texts"])
def test_time_grows_with_the_file_and_not_faster(agent: Agent, text: str | None) -> None:
    def took_s(count: int) -> float:
        roles = ("user", "assistant")
        talk = [(roles[turn % 2], text or f"turn {turn}") for turn in range(count)]
        data = file_of(agent.talk(talk))
        start = time.process_time()
        assert len(turns_of(read(agent, data))) == count
        return time.process_time() - start

    few, many = min(took_s(1_000) for _ in range(3)), took_s(8_000)

    assert many < 8 * few * 4
