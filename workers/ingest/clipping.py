"""Cutting a text to a length without leaving half of a character."""

import regex

# What a reader takes for one character: a letter with its accents, a flag, a family of emoji.
_CLUSTER = regex.compile(r"\X")


def cluster_starts(text: str, start: int, end: int) -> list[int]:
    """Where clusters begin after `start`, up to and without `end`."""
    return [found.end() for found in _CLUSTER.finditer(text, start, end)][:-1]


def clip(text: str, most_bytes: int) -> str:
    """The longest beginning of at most so many bytes of UTF-8, cut between clusters.

    A single cluster that is longer is cut between code points.
    """
    data = text.encode()
    if len(data) <= most_bytes:
        return text
    start = data[:most_bytes].decode(errors="ignore")
    # With the next character seen, the last cluster is whole only if it ends where we cut.
    clusters = cluster_starts(text, 0, min(len(text), len(start) + 1))
    return start[: clusters[-1]] if clusters else start
