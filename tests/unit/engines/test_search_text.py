"""What lexical search makes of texts and questions: the same of both."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workers.engines.search_text import (
    LONGEST_TERM,
    MOST_OCCURRENCES,
    MOST_TERMS,
    SearchText,
    clean,
    fold,
    searched_text,
)
from workers.model import Kind

ENGLISH = SearchText("english")
SIMPLE = SearchText("simple")
GERMAN = SearchText("german")

# Letters, signs and scripts that analysis looks at, beside whatever Unicode holds.
TEXTS = st.text() | st.text("aA1é.-_/\\:@#+'’ß漢字かうแม게임\u0301\u200b\u00ad \n", max_size=60)


def finds(question: str, text: str, search: SearchText = ENGLISH) -> bool:
    """Whether any word of the question is in the text, as any may match."""
    return bool(search.terms(text).keys() & set(search.query_terms(question)))


@given(TEXTS)
def test_no_text_is_refused_and_no_term_is_empty_or_too_long(text: str) -> None:
    for search in (ENGLISH, SIMPLE, GERMAN):
        terms = search.terms(text)
        asked = search.query_terms(text)

        assert all(0 < len(term) <= LONGEST_TERM for term in (*terms, *asked))
        assert not any(re.search(r"\s|\x00", term) for term in terms)
        assert len(asked) == len(set(asked)) <= MOST_TERMS


@given(TEXTS)
@example("İ")
@example("ŉ\u0345")
def test_folding_and_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert clean(clean(text)) == clean(text)


@given(st.lists(TEXTS, max_size=5))
def test_a_text_has_the_terms_of_a_question_for_any_of_its_words(texts: list[str]) -> None:
    text = " ".join(texts)
    for search in (ENGLISH, SIMPLE, GERMAN):
        terms = search.terms(text).keys()
        for word in text.split():
            assert set(search.query_terms(word)) <= terms


@given(TEXTS)
def test_composed_and_decomposed_forms_are_the_same(text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))

    assert ENGLISH.terms(composed) == ENGLISH.terms(decomposed)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("backup", "Backups failed"),
        ("failing", "Backups failed"),
        ("biometrics", "Call unlockWithBiometrics() then"),
        ("unlockWithBiometrics", "Call unlockWithBiometrics() then"),
        ("unlockwithbiometrics", "Call unlockWithBiometrics() then"),
        ("logout", "then `soft_logout`."),
        ("http response", "parseHTTPResponse"),
        ("atomic_write_json", "Use atomic_write_json and"),
        ("max_tries", "app.config.retry.max_tries"),
        ("retry", "app.config.retry.max_tries"),
        ("HCA060T", "OvertimeService, HCA060T,"),
        ("hca060t", "OvertimeService, HCA060T,"),
        ("0042_add_index.sql", "is src/db/migrations/0042_add_index.sql, see"),
        ("migrations", "is src/db/migrations/0042_add_index.sql, see"),
        ("add_index", "is src/db/migrations/0042_add_index.sql, see"),
        ("foo", "see foo.png,"),
        ("canlii", "www.canlii.org/stuff?bar=1&baz=2"),
        ("www.canlii.org/stuff?bar=1&baz=2", "at www.canlii.org/stuff?bar=1&baz=2."),
        ("café", "see https://x.test/wiki/Caf%C3%A9"),
        ("https://x.test/wiki/Caf%C3%A9", "das Café"),
        ("plan", "at https://x.test/old%20plan.md"),
        ("old%20plan.md", "the old plan.md"),
        ("c++", "https://x.test/?q=C%2B%2B"),
        ("100%", "100% of it"),
        ("LIKE '%ad%'", "LIKE '%ad%'"),
        ("user@example.test", "or user@example.test."),
        ("John Doe <john@provider.test>", "mail john@provider.test"),
        ("ORA-00942", "failed with ORA-00942: table"),
        ("00942", "failed with ORA-00942: table"),
        ("E1101", "pylint: E1101 no-member"),
        ("v1.2.3", "since v1.2.3,"),
        ("kebab-case", "a kebab-case name"),
        ("std::vector", "a std::vector<int>"),
        ("#deploy", "see #deploy"),
        ("deploy", "see #deploy"),
        ("@alice", "asked @alice."),
        ("alice", "asked @alice."),
        ("back\\slash", "the path back\\slash"),
        ("WS24/25", "in WS24/25"),
        ("C++", "The engine is in C++."),
        ("C#", "The tool is in C#."),
        ("F#", "The site is in F# and .NET"),
        (".NET", "The site is in F# and .NET"),
        ("node.js", "and node.js."),
        ("it's", "it's"),
        ("John", "John's backup"),
        ("dont", "don\u00adt"),
        ("don't", "I don’t know"),
        ("cafe", "Das Café öffnet"),
        ("café", "Das Cafe öffnet"),
        ("resumes", "two résumés"),
        ("istanbul", "İSTANBUL notları"),
        ("İSTANBUL", "istanbul"),
        ("strasse", "STRAßE"),
        ("ｆｕｌｌ width", "full"),
        ("zero", "ze\u200bro"),
        ("止损线", "财务护城河。止损线是百分之五。"),
        ("财", "财务护城河"),
        ("字幕", "字幕を出す"),
        ("게임", "끝말잇기 게임을 했다"),
        ("สวัสดี", "เขาพูดสวัสดีครับ"),
        ("语言", "C语言"),
        ("c", "C语言"),
        ("%", "nothing but 100% of %"),
    ],
)
def test_a_question_finds_a_text(question: str, text: str) -> None:
    assert finds(question, text) == (question != "%")


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("C", "The engine is in C++."),
        ("C", "The tool is in C#."),
        ("C++", "The tool is in C#, the shim in C."),
        ("财物", "财务护城河"),
        ("損切", "财务护城河"),
        ("4567", "123e4567-e89b-12d3-a456-426614174000"),
        ("dead", "commit deadbeefcafe"),
        ("the backup", "the the the"),
        ("é", "Caf%25C3%25A9"),  # decoded once
    ],
)
def test_a_question_does_not_find_another_text(question: str, text: str) -> None:
    assert not finds(question, text)


@pytest.mark.parametrize(
    "signs", ["", "   ", "?!", "...", "-- --", "*", "%", "_", "( ) [ ]", "'", '"']
)
def test_signs_alone_ask_for_nothing(signs: str) -> None:
    assert ENGLISH.query_terms(signs) == []


def test_a_question_has_no_syntax() -> None:
    plain = {"disk", "backup", "snapshot"}

    for question in (
        '"disk backup" snapshots',
        "(disk | backup) & snapshots",
        "disk* backup~2 snapshots^3",
        "disk, [backup TO snapshots}",
        "'disk' backup: snapshots;",
        "+disk -backup !snapshots",
    ):
        assert plain <= set(ENGLISH.query_terms(question))

    assert set(ENGLISH.query_terms("disk AND backup OR NOT snapshots")) == plain


def test_stop_words_are_asked_for_only_where_there_is_nothing_else() -> None:
    assert ENGLISH.query_terms("what is the backup") == ["backup"]
    assert ENGLISH.query_terms("to be or not to be") == ["to", "be", "or", "not"]
    assert ENGLISH.query_terms("John Doe does it") == ["john", "doe"]
    assert SIMPLE.query_terms("what is the backup") == ["what", "is", "the", "backup"]


def test_a_whole_name_is_worth_more_than_its_parts() -> None:
    asked = set(ENGLISH.query_terms("soft_logout"))
    whole, parts = ENGLISH.terms("soft_logout"), ENGLISH.terms("soft, then logout")

    assert asked & parts.keys() < asked & whole.keys()


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("soft_logout", ["soft_logout"]),
        ("`unlockWithBiometrics()`?", ["unlockwithbiometr"]),
        ("the app.config.retry.max_tries", ["app.config.retry.max_tries"]),
        ("max_tries soft_logout", ["max_tries", "soft_logout"]),
        ("C++", ["c++"]),
        ("logout", []),
        ("why soft_logout", ["soft_logout"]),
        ("where soft_logout fails", []),
        ("the", []),
        ("?!", []),
        ("财务", []),
    ],
)
def test_a_question_may_consist_of_names(question: str, names: list[str]) -> None:
    assert ENGLISH.query_names(question) == names
    assert set(names) <= ENGLISH.terms(question).keys()


def test_terms_are_counted() -> None:
    assert ENGLISH.terms("disk Disks DISK full") == {"disk": 3, "full": 1}
    assert ENGLISH.terms("一一一") == {"一": 3, "一一": 2}


def test_a_language_has_its_own_stems() -> None:
    assert finds("Häuser", "das Haus", GERMAN)
    assert finds("hauser", "die Häuser", GERMAN)
    assert not finds("backup", "backups", SIMPLE)


@pytest.mark.parametrize(
    "text",
    [part * 50_000 for part in ("a-", "aB", "漢", ".", "a+", "'s", "#a@", "a://", "_a", "é\u0301")],
    ids=lambda text: text[:4],
)
def test_no_text_has_too_many_terms(text: str) -> None:
    assert ENGLISH.terms(text).total() <= MOST_OCCURRENCES


def test_a_turn_is_searched_by_its_text_and_a_chunk_by_its_headings_too() -> None:
    where = ("Guide", "Network")

    assert searched_text(Kind.TURN, "the talk", where, "own words") == "own words"
    assert searched_text(Kind.CHUNK, "Ports", where, "text") == "Guide\nNetwork\nPorts\ntext"
    assert ENGLISH.terms(searched_text(Kind.NOTE, None, (), "text")) == {"text": 1}
