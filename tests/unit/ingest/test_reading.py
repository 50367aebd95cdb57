"""One file, packed or not, of whatever format."""

import gzip
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ingest.session_files import AGENTS, Agent, file_of
from workers.ingest.parsed import Unreadable
from workers.ingest.reading import expand, read_file
from workers.naming import project_name

PACKED: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "gzip twice": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    "zstd twice": lambda data: zstandard.compress(data[:9]) + zstandard.compress(data[9:]),
}


def mask(text: str) -> tuple[str, Mapping[str, int]]:
    return text.replace("hunter2", "***"), {"password": text.count("hunter2")}


@pytest.mark.parametrize("how", PACKED)
@given(data=st.binary(max_size=2000))
def test_what_was_packed_is_as_it_was(how: str, data: bytes) -> None:
    assert expand(PACKED[how](data), 3000) == data


@pytest.mark.parametrize("how", PACKED)
def test_what_expands_too_far_is_refused_without_being_expanded(how: str) -> None:
    with pytest.raises(Unreadable, match="expands to more than 1 MB"):
        expand(PACKED[how](b"\0" * 200_000_000), 1_000_000)


@pytest.mark.parametrize("how", PACKED)
@given(cut=st.integers(5, 90), change=st.integers(0, 255))
def test_damaged_packing_is_told_or_read_but_never_anything_else(
    how: str, cut: int, change: int
) -> None:
    packed = bytearray(PACKED[how](bytes(range(256)) * 8))
    packed[min(cut, len(packed) - 1)] = change
    for damaged in (bytes(packed), bytes(packed[:cut])):
        with suppress(Unreadable):
            assert len(expand(damaged, 100_000)) <= 100_000


@pytest.mark.parametrize("agent", AGENTS, ids=str)
def test_a_packed_session_is_told_by_its_content(agent: Agent) -> None:
    parsed, _ = read_file(gzip.compress(file_of(agent.sample)), "x.gz", "auto", mask, 10**7)

    assert parsed.format == agent.format
    assert parsed.sessions


def test_a_document_is_masked_before_its_places_are_told() -> None:
    parsed, masked = read_file(b"# hunter2\n\nhunter2 is it\n", "a.md", "auto", mask, 1000)

    (document,) = parsed.documents
    assert "hunter2" not in repr(document)
    assert masked["password"] == 2
    last = document.sections[-1].span.end
    assert last == len(document.text.encode()) - 1


@pytest.mark.parametrize("form", ["claude_code", "codex", "pi", "markdown", "text", "auto"])
@given(data=st.binary(max_size=500))
def test_bytes_of_any_kind_are_read_or_refused(form: str, data: bytes) -> None:
    with suppress(Unreadable):
        parsed, _ = read_file(data, "a", form, mask, 10_000)
        for document in parsed.documents:
            assert "\0" not in document.text
            assert document.text.strip()


@given(st.text(max_size=200))
def test_a_projects_name_can_be_one_or_is_none(text: str) -> None:
    name = project_name(text)

    assert name is None or (0 < len(name) <= 64 and project_name(name) == name)


class Ended(Exception):
    """What a sign of life raises once the work is no longer wanted."""


@pytest.mark.parametrize("agent", AGENTS, ids=str)
def test_a_session_gives_a_sign_of_life_at_every_line_and_can_be_ended_there(agent: Agent) -> None:
    data = file_of(agent.sample)
    signs: list[int] = []

    read_file(data, "x.jsonl", agent.format, mask, 10**7, lambda: signs.append(1))

    assert len(signs) >= len(agent.sample)

    def end() -> None:
        raise Ended

    with pytest.raises(Ended):
        read_file(data, "x.jsonl", agent.format, mask, 10**7, end)


@pytest.mark.parametrize("how", PACKED)
def test_what_is_expanded_gives_a_sign_of_life_at_every_piece(how: str) -> None:
    signs: list[int] = []

    expand(PACKED[how](bytes(10_000_000)), 10_000_000, lambda: signs.append(1))

    assert len(signs) >= 10
