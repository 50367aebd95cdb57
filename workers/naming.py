"""Names of projects."""

import re
import unicodedata

from workers.model import PROJECT_NAME, ProjectName

_LONGEST = 64
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


def project_name(text: str) -> ProjectName | None:
    """A project's name that is as near to a text as names may be; None if nothing is left of it."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = _NOT_IN_NAMES.sub("-", plain).strip("-._")[:_LONGEST].rstrip("-._")
    return name if re.match(PROJECT_NAME, name) else None
