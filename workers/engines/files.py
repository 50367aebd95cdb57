"""Model files, read only if they are exactly the ones this version was built for."""

import hashlib
from pathlib import Path

from workers.errors import ModelMismatch

DATA = Path(__file__).parent / "data"


def load_verified(path: Path, sha256: str) -> bytes:
    """The content of a file whose SHA-256 is `sha256`.

    Raises:
        ModelMismatch: the file is missing, unreadable or another one.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelMismatch(
            f"The model file {path.name} cannot be read ({error.strerror}); "
            "install poimen-memory and its dependencies again."
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ModelMismatch(
            f"The model file {path.name} is not the one this version was built with (SHA-256 "
            f"{found[:12]}…, not {sha256[:12]}…); install the pinned dependencies again."
        )
    return content
