"""The times of session files, whatever they are written as."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.ingest.lines import instant

MOMENT = datetime(2026, 4, 5, 6, 0, 1, tzinfo=UTC)
SECONDS = 1_775_368_801


@pytest.mark.parametrize(
    "value",
    [
        "2026-04-05T06:00:01.000Z",
        "2026-04-05T06:00:01Z",
        "2026-04-05 06:00:01",
        "2026-04-05T06:00:01",
        "2026-04-05T20:00:01+14:00",
        "2026-04-05T06:00:01.000000000Z",
        SECONDS,
        float(SECONDS),
        str(SECONDS),
        SECONDS * 10**3,
        str(SECONDS * 10**3),
        SECONDS * 10**6,
        SECONDS * 10**9,
    ],
)
def test_a_moment_is_the_same_in_every_notation(value: object) -> None:
    assert instant(value) == MOMENT


@pytest.mark.parametrize(
    "value",
    [
        None, True, "", "soon", [], {}, 0, 12, -5, 10**30, float("nan"), float("inf"),
        "1970-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
        "58000-01-01", "2026-13-45", "²³⁴⁵⁶⁷⁸⁹⁰¹",
    ],
)  # fmt: skip
def test_what_is_no_moment_of_this_century_is_none(value: object) -> None:
    assert instant(value) is None


@given(st.text() | st.integers() | st.floats())
def test_any_value_is_a_moment_in_utc_or_none(value: object) -> None:
    at = instant(value)

    assert at is None or (at.tzinfo is UTC and 2000 <= at.year < 2100)


@given(
    st.integers(946_684_800_000_000 + 10**12, 4_102_444_800_000_000 - 10**12),
    st.integers(-14 * 60, 14 * 60),
)
def test_any_moment_of_this_century_is_read_exactly(microseconds: int, offset: int) -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)

    assert instant(at.astimezone(timezone(timedelta(minutes=offset))).isoformat()) == at
    assert instant(microseconds) == at
