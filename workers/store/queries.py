"""Named SQL, read once from sql/*.sql."""

import re
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_queries(file: str) -> dict[str, str]:
    """The statements of one file under sql/, by their `-- name:` line.

    Raises:
        FileNotFoundError: no such file.
    """
    text = (Path(__file__).parent / "sql" / file).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))
