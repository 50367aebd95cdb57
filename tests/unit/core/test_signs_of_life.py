"""What reads a large file can be told from what hangs, long before it stores something."""

import itertools
import json
import zlib
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

import pytest

from tests.unit.ingest.session_files import AGENTS, file_of
from workers import wiring
from workers.store.ingest_jobs import Claim, SubmittedFile
from workers.tasks.files import EXPORT, take_file
from workers.tasks.report import Report, now_and_then

SESSION = file_of(AGENTS[0].sample)
PAGE = b"# One\n\n" + b"".join(b"## Part %d\n\nSome words.\n\n" % n for n in range(50))
EXPORTED = b"".join(json.dumps({"type": "node", "odd": n}).encode() + b"\n" for n in range(50))


class Ended(Exception):
    """What a beat raises once the job is another's."""


class Encoder:
    most_tokens = 100

    def count_tokens(self, text: str) -> int:
        return len(text)


def taken(data: bytes, form: str, beats: int) -> list[str]:
    """What is said while a file is read, if the job is taken away after so many beats.

    There is no database: whatever is said here is said before anything is stored.
    """
    said: list[str] = []
    slow = itertools.count(0.0, 60.0).__next__  # a minute goes by between two looks at the clock

    def beat(stage: str) -> None:
        said.append(stage)
        if len(said) == beats:
            raise Ended

    nothing = cast(Any, None)
    work = wiring.Ingest(
        encoder=cast(Any, Encoder()),
        database=nothing,
        jobs=nothing,
        model=1,
        mask=lambda text: (text, {}),
        tool_output="all",
        keeps_thinking=True,
        most_bytes=10**7,
        search_text=nothing,
    )
    claim = Claim(UUID(int=1), 1, "key", "p", form, None, None)
    file = SubmittedFile(1, "a", zlib.compress(data))
    with pytest.raises(Ended):
        take_file(work, claim, file, Report("a"), beat, slow)
    return said


@pytest.mark.parametrize(
    ("data", "form"),
    [(SESSION, "auto"), (PAGE, "markdown"), (PAGE, "text"), (EXPORTED, EXPORT)],
)
def test_a_file_gives_signs_of_life_while_it_is_read(data: bytes, form: str) -> None:
    assert taken(data, form, beats=3) == ["reading a"] * 3


def test_of_many_signs_only_one_now_and_then_is_passed_on() -> None:
    now = 100.0
    said: list[float] = []
    alive = now_and_then(lambda _: said.append(now), "reading", lambda: now)
    for _ in range(1000):
        now += 0.1
        alive()

    assert 15 <= len(said) <= 20
    assert all(5.0 <= later - earlier < 6.0 for earlier, later in pairwise(said))
