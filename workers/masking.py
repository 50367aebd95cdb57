"""Masking secrets, for every process that stores what somebody wrote."""

import os
from collections.abc import Mapping
from pathlib import Path

from workers.ingest.drafts import Mask as Mask
from workers.ingest.redact import Redactor


def build_mask(folder: Path, *, is_wanted: bool) -> Mask:
    """Compiles the rules, which may take seconds; not wanted: every text stays as it is.

    folder: of the embedded stack, which keeps the compiled rules.
    """
    if not is_wanted:
        return lambda text: (text, {})
    # Where there is no embedded stack there is no folder of ours either.
    redactor = Redactor(folder / "rules" if os.access(folder, os.W_OK) else None)

    def mask(text: str) -> tuple[str, Mapping[str, int]]:
        found = redactor.redact(text)
        return found.text, found.counts

    return mask
