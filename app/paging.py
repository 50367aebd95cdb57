"""Cursors of lists that are newest first."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime
from uuid import UUID

from workers.errors import InvalidParameters


def cursor_after(at: datetime, last: UUID) -> str:
    """The cursor of the page after the one that ends with this."""
    return urlsafe_b64encode(f"{at.isoformat()} {last.hex}".encode()).decode()


def read_cursor(cursor: str) -> tuple[datetime, str]:
    """When the last one seen was made, and its id.

    Raises:
        InvalidParameters: it is no cursor.
    """
    try:
        instant, last = urlsafe_b64decode(cursor.encode()).decode().split(" ")
        at = datetime.fromisoformat(instant)
        return at.astimezone(at.tzinfo or UTC), UUID(last).hex
    except (ValueError, OverflowError) as error:
        raise InvalidParameters.of("cursor", "is not a next_cursor of this list") from error
