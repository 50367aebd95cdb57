"""Texts sent to a server in batches that it takes, and cut to what its model reads."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from workers.engines.http_calls import TooLarge
from workers.model import Refused

# A tokenizer of another model would be exact about the wrong thing. English is about 4 bytes a
# token with every tokenizer in use, other languages and code less; what is still too long is
# refused, and then halved.
BYTES_PER_TOKEN = 4
LEAST_BYTES = 64  # a text of so few bytes is not refused for its length
HOPELESS = 3  # texts refused one by one, and none taken: it is not the texts

T = TypeVar("T")


def cut(text: str, most_bytes: int) -> str:
    """The beginning of a text, at most so many bytes in UTF-8, never half a character."""
    if len(text) <= most_bytes // 4:
        return text
    return text[:most_bytes].encode()[:most_bytes].decode(errors="ignore")


class Batches:
    """How many texts a server takes at once: a number that falls when it is refused.

    It is remembered as long as the process lives, so a refused batch is a cost paid once.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def send(
        self, texts: Sequence[str], post: Callable[[Sequence[str]], Sequence[T | Refused]]
    ) -> list[T | Refused]:
        """What `post` returns for every text, in order.

        Args:
            post: one request, one result per text; raises TooLarge where the server refuses it. The
                request is halved, down to single texts, and those are cut in half until they are
                taken. One that never is comes back as refused.

        Raises:
            TooLarge: the server refuses whatever is sent.
        """
        return _Sending(self, post).all(texts)


class _Sending(Generic[T]):
    """One call of `Batches.send`, and what it has learned so far."""

    def __init__(
        self, batches: Batches, post: Callable[[Sequence[str]], Sequence[T | Refused]]
    ) -> None:
        self._batches = batches
        self._post = post
        self._taken = 0
        self._refused = 0

    def all(self, texts: Sequence[str]) -> list[T | Refused]:
        results: list[T | Refused] = []
        while len(results) < len(texts):
            results += self._some(texts[len(results) :][: self._batches.size])[0]
        return results

    def _some(self, texts: Sequence[str]) -> tuple[list[T | Refused], bool]:
        """Their results, and whether they were taken as they were."""
        if len(texts) > self._batches.size:
            return self.all(texts), False
        try:
            return self._sent(texts), True
        except TooLarge as error:
            if len(texts) == 1:
                return [self._shortened(texts[0], error)], False
        half = (len(texts) + 1) // 2
        left, is_left_whole = self._some(texts[:half])
        right, is_right_whole = self._some(texts[half:])
        # If a half was refused as well, it may be one text in it, which says nothing of the number.
        if is_left_whole and is_right_whole:
            self._batches.size = min(self._batches.size, half)
        return left + right, False

    def _sent(self, texts: Sequence[str]) -> list[T | Refused]:
        results = self._post(texts)
        self._taken += len(texts)
        return list(results)

    def _shortened(self, text: str, error: TooLarge) -> T | Refused:
        length = len(text.encode(errors="replace"))
        while length > LEAST_BYTES:
            length //= 2
            try:
                return self._sent([cut(text, length)])[0]
            except TooLarge as again:
                error = again
        self._refused += 1
        if self._refused >= HOPELESS and not self._taken:
            raise error
        return Refused(f"the server refuses it, however short it is cut (HTTP {error.status})")
