"""How deep a value read from JSON is nested. Without recursion: the value may be hostile."""

DEEPEST_NODE = 100
"""Levels of a node: answers carry metadata, and their serializer gives up at 255."""
DEEPEST_READ = 110
"""Levels of a submitted node that are read at all, to refuse that node alone."""


def is_nested_beyond(value: object, levels: int) -> bool:
    """Whether it has more than so many levels of objects and arrays in each other.

    A lone number or text has one.
    """
    layer = [value]
    for _ in range(levels):
        if not layer:
            return False
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(layer)
