"""Text as lexical search compares it: the terms of a memory, and those of a question.

One analysis for both, here and not in the database, so that it is the same whatever the server's
locale. A question has no syntax: every sign in it is a sign, and any of its words may match.
"""

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import unquote

import regex

from workers.model import Kind

Cut = Any  # a compiled pattern of `regex`

VERSION = 2  # of the analysis: what another one made is not compared with well
SIMPLE = "simple"  # the language without stems and stop words

MOST_CHARACTERS = 100_000  # that are read of a text
MOST_OCCURRENCES = 10_000  # terms of a text, counted each time they occur
MOST_TERMS = 64  # different terms of a question
LONGEST_TERM = 128  # characters; a longer word is cut, a longer path has its parts only
LONGEST_NAME = 64  # characters of a word that is looked at for capitals within: others are data
_REMEMBERED = 16_384  # words whose terms are kept at hand
_LONGEST_REMEMBERED = 40

# Of English. In other languages frequent words are held back by how frequent they are.
_STOP_WORDS = """
a about above after again against all am an and any are as at be because been before being below
between both but by can could did do does doing don down during each few for from further had has
have having he her here hers herself him himself his how i if in into is it its itself just me more
most my myself no nor not now of off on once only or other our ours ourselves out over own s same
she should so some such t than that the their theirs them themselves then there these they this
those through to too under until up very was we were what when where which while who whom why will
with would you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# Soft hyphens, joiners, marks of direction, byte order marks, variation selectors.
_UNSEEN = regex.compile(r"[\p{Cf}\p{Variation_Selector}]+")
# Accents and the vowel points of Arabic and Hebrew; not the vowel signs of Indic scripts or of
# Thai, which tell words apart, nor the Japanese voicing marks.
_MARKS = regex.compile(
    r"[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u0655\u0670"
    r"\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
# Scripts that are written without spaces; Korean has them, and particles that cling to words.
_SCRIPTS = "Han Hiragana Katakana Hangul Bopomofo Yi Thai Lao Khmer Myanmar"
_DENSE_SCRIPTS = "".join(rf"\p{{{name}}}" for name in _SCRIPTS.split()) + "ー"
_DENSE = regex.compile(rf"[{_DENSE_SCRIPTS}]")
_RUN = regex.compile(rf"[{_DENSE_SCRIPTS}]++|[^{_DENSE_SCRIPTS}]++")
_WORD_SIGN = r"[\p{L}\p{N}\p{M}_]"
# A word, with the signs that belong to it: C++, C#.
_NAME = rf"(?:(?<!{_WORD_SIGN})\p{{L}}\#(?!{_WORD_SIGN})|{_WORD_SIGN}++(?:\+\+)?)"
# Names without a space between them: a path, an address, a number with its unit. Before them what
# makes a tag, a person or .NET of it.
_CHAIN = regex.compile(
    r"(?P<sign>(?<![\p{L}\p{N}\p{M}_.#@])(?:\#(?=[\p{L}\p{N}])|[.@](?=\p{L})))?"
    rf"(?P<names>{_NAME}(?:(?:://|::|->|[./\\:@&=?#%+~-]){_NAME})*+)"
)
# Where a chain is cut, one after the other: a path, its files' names, their parts.
_CUTS = (
    regex.compile(rf"://|::|->|[/\\:@&=?%~]|\#(?={_WORD_SIGN})|(?<!\+)\+(?={_WORD_SIGN})"),
    regex.compile(r"\."),
    regex.compile("-"),
    regex.compile("_"),
)
_HUMP = regex.compile(r"(?<=\p{Ll}\d{0,4})(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll}{2})")
_POSSESSIVE = regex.compile(rf"['’][sS](?!{_WORD_SIGN})")
# What an address carries in the place of characters that it may not hold.
_ENCODED = re.compile(r"(?:%[2-9A-Fa-f][0-9A-Fa-f])+")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class Term(NamedTuple):
    """A term of a text, and what a question does with it."""

    text: str
    is_stop: bool = False  # a question does without it if it has others
    is_single: bool = False  # a character beside others of its script: a question has pairs instead
    is_name: bool = False  # it has parts, which are terms as well


class SearchText:
    """The analysis for one language. Threads may share it."""

    def __init__(self, language: str) -> None:
        """language: `simple`, or one that Snowball knows."""
        self.language = language
        self.name = f"{language}-{VERSION}"
        self._stemmer = _stemmer(language)
        self._stop_words = STOP_WORDS if language == "english" else frozenset[str]()
        self._guard = threading.Lock()  # a stemmer has a state of its own
        self._remembered = lru_cache(_REMEMBERED)(self._read)

    def terms(self, text: str) -> Counter[str]:
        """The terms of a memory, each with how often it occurs."""
        counts: Counter[str] = Counter()
        left = MOST_OCCURRENCES
        for terms in self._words(text):
            counts.update(term.text for term in terms[:left])
            left -= len(terms)
            if left <= 0:
                break
        return counts

    def query_terms(self, text: str) -> list[str]:
        """The terms to look for, each once, in the order of the question.

        Stop words are left out, unless there is nothing else.
        """
        asked = [term for terms in self._words(text) for term in terms if not term.is_single]
        telling = [term for term in asked if not term.is_stop]
        return list(dict.fromkeys(term.text for term in telling or asked))[:MOST_TERMS]

    def query_names(self, text: str) -> list[str]:
        """The names with parts that a question consists of; none if it has any other word."""
        asked = [terms for terms in self._words(text) if not all(term.is_stop for term in terms)]
        names = [next((term.text for term in terms if term.is_name), None) for terms in asked]
        return [] if None in names else [name for name in names if name is not None]

    def _words(self, text: str) -> Iterator[tuple[Term, ...]]:
        for word in clean(text[:MOST_CHARACTERS]).split():
            yield self._remembered(word) if len(word) <= _LONGEST_REMEMBERED else self._read(word)

    def _read(self, word: str) -> tuple[Term, ...]:
        """The terms of what stands between two spaces."""
        return tuple(term for term in self._read_runs(_decoded(word)) if term.text)

    def _read_runs(self, word: str) -> Iterator[Term]:
        for run in _RUN.findall(_POSSESSIVE.sub("", word)):
            if _DENSE.match(run):
                yield from _pairs(run[:MOST_OCCURRENCES])
                continue
            for chain in _CHAIN.finditer(run):
                sign, names = chain["sign"], chain["names"]
                if sign:
                    yield from _whole(sign + names)
                yield from self._divided(names, _CUTS)

    def _divided(self, names: str, cuts: Sequence[Cut]) -> Iterator[Term]:
        """A chain whole, and its parts, which may be chains again. A part alone is the same."""
        if not cuts:
            yield from self._name_terms(names)
            return
        first, *others = cuts
        parts = [part for part in first.split(names) if part]
        is_data = _UUID.fullmatch(names) is not None
        if is_data or (parts and parts != [names]):
            yield from _whole(names)
        if not is_data:
            for part in parts:
                yield from self._divided(part, others)

    def _name_terms(self, name: str) -> Iterator[Term]:
        """A simple name, and what its capitals divide it into."""
        bare = name.rstrip("+#")
        if bare != name:
            yield from _whole(name)
            if len(bare) == 1:  # C++ and C# are no C; notepad++ is found as notepad as well
                return
        humps = [bare]
        if len(bare) <= LONGEST_NAME and not bare.islower():
            humps = _HUMP.split(bare)
        if len(humps) == 1:
            yield self._word_term(bare)
            return
        yield self._word_term(bare)._replace(is_name=True)
        yield from map(self._word_term, humps)

    def _word_term(self, word: str) -> Term:
        folded = fold(word)
        return Term(self._stem(word, folded)[:LONGEST_TERM], folded in self._stop_words)

    def _stem(self, word: str, folded: str) -> str:
        if self._stemmer is None or len(word) > LONGEST_NAME:
            return folded
        # Most languages' stemmers read accents. The English one does not, so that without them
        # `resumes` and `résumés` are the same.
        is_bare = self.language == "english"
        with self._guard:
            return fold(self._stemmer.stemWord(folded if is_bare else word.casefold()))


def searched_text(kind: Kind, title: str | None, breadcrumb: Iterable[str], text: str) -> str:
    """What is searched of a node: its text under its headings.

    A turn has the title of its whole session, which says nothing of this turn in particular.
    """
    if kind is Kind.TURN:
        return text
    return "\n".join((*breadcrumb, title or "", text))


def _decoded(word: str) -> str:
    """A word with what is percent-encoded in it decoded, once, where it is UTF-8."""
    return clean(_ENCODED.sub(_character, word)) if "%" in word else word


def _character(encoded: "re.Match[str]") -> str:
    try:
        return unquote(encoded[0], errors="strict")
    except UnicodeDecodeError:
        return encoded[0]


def _whole(names: str) -> Iterator[Term]:
    if len(names) <= LONGEST_TERM:
        yield Term(fold(names)[:LONGEST_TERM], is_name=True)


def _pairs(run: str) -> Iterator[Term]:
    """Each two neighbours of a run without spaces; and each character, for a question of one."""
    for character in run:
        yield Term(character, is_single=len(run) > 1)
    for first, second in pairwise(run):
        yield Term(first + second)


def clean(text: str) -> str:
    """Compatible characters become one, and what cannot be seen is gone."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", text))


def fold(word: str) -> str:
    """A word without its capitals and accents: people leave accents out far more often than two
    words differ by them only. İ so becomes i, and ß ss."""
    if word.isascii():
        return word.lower()
    bare = _MARKS.sub("", unicodedata.normalize("NFD", word.casefold()))
    return unicodedata.normalize("NFC", bare.casefold())


def _stemmer(language: str) -> Any:  # PyStemmer has no types
    if language == SIMPLE:
        return None
    import Stemmer

    return Stemmer.Stemmer(language, 0)
