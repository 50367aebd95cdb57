"""Names of projects and of documents."""

import re
import unicodedata

from workers.model import PROJECT_NAME, ProjectName

LONGEST_DOCUMENT = 1_000  # characters
_LONGEST = 64
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


def project_name(text: str) -> ProjectName | None:
    """A project's name that is as near to a text as names may be; None if nothing is left of it."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = _NOT_IN_NAMES.sub("-", plain).strip("-._")[:_LONGEST].rstrip("-._")
    return name if re.match(PROJECT_NAME, name) else None


def document_name(path: str) -> str | None:
    """A path with plain slashes and nothing that leads upwards; None if that names nothing."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return "/".join(parts)[-LONGEST_DOCUMENT:].lstrip("/") or None
