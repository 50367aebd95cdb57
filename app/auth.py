"""Who asks: an API key becomes a principal."""

from flask import Request

from workers.deadline import Deadline
from workers.errors import InvalidParameters, NotAuthenticated
from workers.model import Principal
from workers.ports import Keys

_LOOKUP_S = 2.0
_LONGEST_KEY = 200


def authenticate(request: Request, keys: Keys) -> Principal:
    """The principal of a request's one credential.

    Raises:
        NotAuthenticated: there is none, or it is not known (any more).
        InvalidParameters: there are two.
    """
    bearer, key = request.headers.get("Authorization"), request.headers.get("X-API-Key")
    if bearer is not None and key is not None:
        raise InvalidParameters.of("X-API-Key", "cannot be given together with Authorization")
    if bearer is not None:
        scheme, _, key = bearer.partition(" ")
        if scheme.lower() != "bearer":
            raise NotAuthenticated("Send Authorization: Bearer KEY, or X-API-Key: KEY.")
    if not key:
        raise NotAuthenticated(
            "Send Authorization: Bearer KEY, or X-API-Key: KEY; `mem keys create` makes one."
        )
    principal = None
    if len(key) <= _LONGEST_KEY:
        principal = keys.find_principal(key.strip(), Deadline.after(_LOOKUP_S))
    if principal is None:
        raise NotAuthenticated(
            "This key is not known, or was revoked; `mem keys create` makes one."
        )
    return principal
