"""Results with what stands beside them in their sources, each text once and within a budget."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from workers.model import Arranged, Context, InContext, Kept, Neighbour, NodeKey

BYTES_PER_TOKEN = 4
"""A tokenizer belongs to a model, and which one reads the answer is not known here."""


def count_tokens(text: str) -> int:
    """An estimate: a token is four bytes of UTF-8."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def arrange(
    results: Sequence[Kept],
    contexts: Mapping[NodeKey, Context] | None,
    most_tokens: int | None,
) -> Arranged:
    """Put each result beside its neighbours, and cut it all to a number of tokens.

    Args:
        results: best first.
        contexts: of those that have a place in a source; None: they could not be read.

    A neighbour that is a result itself, or was shown by a better one, comes without its text and
    says which result shows it. The texts of the results have the tokens first, best first; what is
    left goes to the neighbours, again of the best result first and the nearest first. The first
    text for which there is too little is cut, and what would come after it is left out.
    """
    budget = _Budget(most_tokens)
    shown = tuple(_cut_results(results, budget))
    places = {(one.hit.project, one.hit.sha256): at for at, one in enumerate(shown, start=1)}
    in_context = []
    chunks_omitted = 0
    for at, kept in enumerate(shown, start=1):
        if contexts is None:
            in_context.append(InContext(kept, None))
            continue
        known = contexts.get((kept.hit.project, kept.hit.sha256), Context())
        sides: dict[bool, list[Neighbour]] = {False: [], True: []}
        for is_next, neighbour in _nearest_first(known):
            told = _told(neighbour, at, places, budget)
            if told is None:
                chunks_omitted += 1
            else:
                sides[is_next].append(told)
        in_context.append(InContext(kept, Context(tuple(sides[False]), tuple(sides[True]))))
    return Arranged(
        results=tuple(in_context),
        tokens=budget.used,
        is_truncated=budget.is_exceeded,
        results_omitted=len(results) - len(shown),
        chunks_omitted=chunks_omitted,
    )


class _Budget:
    """Tokens that may be used, by texts in the order in which they are taken."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self.used = 0
        self.is_exceeded = False

    def take(self, text: str) -> str | None:
        """The text, or as much of it as there is room for; None once there is none."""
        if self.is_exceeded:
            return None
        wanted = count_tokens(text)
        if self._most is None or self.used + wanted <= self._most:
            self.used += wanted
            return text
        self.is_exceeded = True
        room = (self._most - self.used) * BYTES_PER_TOKEN
        cut = text.encode()[:room].decode(errors="ignore")
        self.used += count_tokens(cut)
        return cut or None


def _cut_results(results: Iterable[Kept], budget: _Budget) -> Iterator[Kept]:
    for kept in results:
        text = budget.take(kept.hit.text)
        if text is None:
            return
        is_excerpt = kept.hit.is_excerpt or text != kept.hit.text
        yield replace(kept, hit=replace(kept.hit, text=text, is_excerpt=is_excerpt))


def _nearest_first(context: Context) -> Iterator[tuple[bool, Neighbour]]:
    """Every neighbour from the nearest outwards, each with whether it comes after the hit."""
    for before, after in zip_longest(context.previous, context.next):
        if before is not None:
            yield False, before
        if after is not None:
            yield True, after


def _told(
    neighbour: Neighbour, at: int, places: dict[NodeKey, int], budget: _Budget
) -> Neighbour | None:
    """A neighbour as the result at this place shows it; None: there is no room for it."""
    key = (neighbour.project, neighbour.sha256)
    if key in places:
        return replace(neighbour, text=None, is_excerpt=False, is_shown_at=places[key])
    text = budget.take(neighbour.text or "")
    if text is None:
        return None
    places[key] = at
    return replace(neighbour, text=text, is_excerpt=neighbour.is_excerpt or text != neighbour.text)
