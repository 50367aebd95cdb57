"""When an answer is one, and which error it is otherwise."""

import pytest

from workers.errors import PoimenError
from workers.model import Answer, Notice, Outcome, Silence, Status
from workers.verdict import verdict

OK = ("successful", None)
CUT_SHORT = ("partial", "rerank_truncated")
LATE = ("timed_out", "recall_timeout")
UNSEEN = ("timed_out", "no_answer_by_deadline")
EXPIRED = ("timed_out", "expired_in_queue")
WAITED = ("timed_out", "queue_deadline")
BROKEN = ("failed", "internal_error")
NO_MODEL = ("failed", "embedding_service_unavailable")
NO_WORDS = ("failed", "lexical_engine_unavailable")
NO_DATABASE = ("failed", "store_unavailable")
GIVEN_UP = ("failed", "attempts_exhausted")
STOPPED = ("cancelled", "stopped_by_user")


def answer_of(*ends: tuple[str, str | None]) -> Answer:
    outcomes = [
        Outcome(f"project {n}", Status(status), reason=reason, message=reason and f"said {reason}")
        for n, (status, reason) in enumerate(ends)
    ]
    warnings = (Notice("a_code", None, "a warning"),)
    projects = tuple(outcome.project for outcome in outcomes)
    return Answer("an-id", projects, (), tuple(outcomes), warnings, "callback")


def code(answer: Answer, allow_partial: bool = True) -> str | None:
    error = verdict(answer, allow_partial)
    return error.code if error else None


@pytest.mark.parametrize("ends", [[], [OK], [OK, OK]])
def test_a_whole_answer_is_one_whatever_is_wanted(ends: list[tuple[str, str | None]]) -> None:
    assert code(answer_of(*ends)) is None
    assert code(answer_of(*ends), allow_partial=False) is None


@pytest.mark.parametrize(
    ("ends", "strictly"),
    [
        ([OK, LATE], "deadline_exceeded"),
        ([OK, BROKEN], "incomplete_answer"),
        ([OK, LATE, BROKEN], "incomplete_answer"),
        ([OK, STOPPED], "incomplete_answer"),
        ([CUT_SHORT], "incomplete_answer"),
        ([OK, CUT_SHORT], "incomplete_answer"),
        ([CUT_SHORT, WAITED], "incomplete_answer"),
    ],
)
def test_a_partial_answer_is_one_unless_only_a_whole_one_is_wanted(
    ends: list[tuple[str, str | None]], strictly: str
) -> None:
    assert code(answer_of(*ends)) is None
    assert code(answer_of(*ends), allow_partial=False) == strictly


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([LATE], "deadline_exceeded"),
        ([LATE, UNSEEN], "deadline_exceeded"),
        ([UNSEEN, EXPIRED], "deadline_exceeded"),
        ([WAITED, WAITED], "queue_deadline"),
        ([WAITED, LATE], "deadline_exceeded"),
        ([STOPPED], "stopped_by_user"),
        ([STOPPED, BROKEN], "all_projects_failed"),
        ([BROKEN], "all_projects_failed"),
        ([LATE, BROKEN], "all_projects_failed"),
        ([NO_MODEL, NO_MODEL], "embedding_service_unavailable"),
        ([NO_MODEL, LATE], "embedding_service_unavailable"),
        ([NO_DATABASE], "store_unavailable"),
        ([NO_WORDS, NO_WORDS], "lexical_engine_unavailable"),
        ([NO_MODEL, NO_DATABASE], "all_projects_failed"),
        ([GIVEN_UP], "attempts_exhausted"),
    ],
)
def test_nobody_s_answer_is_an_error_and_never_an_empty_success(
    ends: list[tuple[str, str | None]], expected: str
) -> None:
    for allow_partial in (True, False):
        assert code(answer_of(*ends), allow_partial) == expected


def test_an_error_names_its_query_and_its_warnings() -> None:
    error = verdict(answer_of(BROKEN))

    assert isinstance(error, PoimenError)
    assert vars(error) == {"query_id": "an-id", "warnings": ["a warning"]}
    assert str(error) == "said internal_error"


@pytest.mark.parametrize("silence", [one for one in Silence if one is not Silence.UNFINISHED])
def test_silence_of_every_kind_is_an_error(silence: Silence) -> None:
    assert code(answer_of((silence.status.value, silence.value))) is not None
