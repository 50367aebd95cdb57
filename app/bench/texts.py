"""Texts from a seed, made of real words: phrases of the standard library's documentation."""

import importlib
import inspect
import random
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from app.bench.errors import BenchError

# Named one by one: which modules there are differs between machines, and some do things at import.
_MODULES = """
argparse asyncio base64 bisect calendar collections concurrent.futures configparser contextlib copy
csv dataclasses datetime decimal difflib email.message enum fractions functools gettext glob gzip
hashlib heapq hmac http.client http.server inspect io ipaddress itertools json linecache locale
logging logging.handlers mailbox mimetypes multiprocessing operator optparse os pathlib pickle
pprint queue random re sched secrets selectors shelve shlex shutil signal smtplib socket
socketserver sqlite3 ssl statistics string subprocess tarfile tempfile textwrap threading tokenize
traceback types unittest urllib.parse urllib.request uuid weakref xml.dom.minidom
xml.etree.ElementTree zipfile
"""
PHRASE_WORDS = range(3, 9)
FEWEST_PHRASES = 500
# With about 1.25 tokens a word: 20 to 60 tokens a passage, 8 to 15 a question.
PASSAGE_WORDS = (16, 48)
QUESTION_WORDS = (6, 12)

_SENTENCE_END = re.compile(r"[.;:!?()\n]\s+|\n\s*\n")
_WORD = re.compile(r"[A-Za-z][a-z]+(?:-[a-z]+)?")


class Writer:
    """Writes passages and questions; the same seed and Python version write the same ones."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._phrases = phrases()
        self._asked: set[str] = set()

    def passage(self) -> str:
        return self._text(*PASSAGE_WORDS).capitalize() + "."

    def question(self) -> str:
        """A question that this writer has not asked before: nobody can have remembered it."""
        while (text := self._text(*QUESTION_WORDS) + "?") in self._asked:
            continue
        self._asked.add(text)
        return text

    def choose(self, names: list[str], count: int) -> list[str]:
        """Some of these, each at most once."""
        return self._random.sample(names, min(count, len(names)))

    def _text(self, fewest: int, most: int) -> str:
        wanted = self._random.randint(fewest, most)
        words: list[str] = []
        while len(words) < wanted:
            words += self._random.choice(self._phrases).split()
        return " ".join(words[:wanted])


@cache
def phrases() -> tuple[str, ...]:
    """Runs of 3 to 8 words of the documentation, each once, in alphabetical order.

    Raises:
        BenchError: this Python runs without docstrings.
    """
    found: set[str] = set()
    for name in _MODULES.split():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue  # left out of this build of Python
        for text in _docstrings(module):
            found.update(_phrases_of(text))
    if len(found) < FEWEST_PHRASES:
        raise BenchError("This Python runs without docstrings: start it without -OO.")
    return tuple(sorted(found))


def _docstrings(module: ModuleType) -> Iterator[str]:
    for thing in (module, *_public(module)):
        yield inspect.getdoc(thing) or ""
        if inspect.isclass(thing):
            for member in _public(thing):
                yield inspect.getdoc(member) or ""


def _public(holder: object) -> Iterator[object]:
    for name, value in sorted(vars(holder).items()):
        if not name.startswith("_") and (inspect.isroutine(value) or inspect.isclass(value)):
            yield value


def _phrases_of(text: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(text):
        words = _WORD.findall(sentence)
        while len(words) >= PHRASE_WORDS.start:
            yield " ".join(words[: PHRASE_WORDS.stop - 1]).lower()
            words = words[PHRASE_WORDS.stop - 1 :]
