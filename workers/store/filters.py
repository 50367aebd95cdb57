"""The filters of a question as SQL."""

from typing import Any

from workers.model import Filters
from workers.store.queries import load_queries

_PASSES = load_queries("filters.sql")["passes"]
_LIKE = str.maketrans({"*": "%", "?": "_", "%": r"\%", "_": r"\_", "\\": r"\\"})


def filtered(query: str) -> str:
    """A statement about the nodes that pass; it takes `filtering` among its arguments."""
    return query.replace("PASSES", _PASSES)


def filtering(filters: Filters) -> dict[str, Any]:
    """What the condition of a filtered statement takes."""
    pattern = filters.source_pattern
    is_exact = pattern is None or not set(pattern) & set("*?")
    return {
        "source": pattern if is_exact else None,  # an index finds it
        "source_like": None if is_exact else like(pattern or ""),
        "updated_since": filters.updated_since,
        "updated_before": filters.updated_before,
        "occurred_since": filters.occurred_since,
        "occurred_before": filters.occurred_before,
        "tags": list(filters.tags) or None,
        "kinds": [kind.value for kind in filters.kinds] or None,
        "standing_ids": list(filters.standing_ids) or None,
    }


def like(pattern: str) -> str:
    """A glob as LIKE has it: `*` any characters, also none and also slashes, `?` one character."""
    return pattern.translate(_LIKE)
