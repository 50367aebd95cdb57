"""Stands between a client and its search server, and answers in its place where a test wants."""

import json
from collections.abc import Callable
from typing import Any

import requests

from tests.integration.model_stub import ModelStub, Reply, StubHandler, reply

Request = dict[str, Any]
"""method, path, authorization, and the body as `lines` of JSON."""
Instead = Callable[[Request], Reply | None]
"""The answer to a request; None: what the server behind says."""


class SearchStub(ModelStub):
    """Keeps what it was asked, as `ModelStub`, and can let nobody have an answer."""

    def __init__(self, behind: str | None, instead: Instead = lambda _: None) -> None:
        """behind: the server's address; None: there is none."""
        super().__init__(self._answer, _Handler)
        self._behind = behind
        self.instead = instead

    def asked(self, what: str) -> list[Request]:
        return [request for request in self.requests if what in request["path"]]

    def _answer(self, request: Request) -> Reply:
        said = self.instead(request)
        if said is not None or self._behind is None:
            return said or reply({}, 500)
        found = requests.request(
            request["method"],
            self._behind + request["path"],
            data="".join(json.dumps(line) + "\n" for line in request["lines"]).encode(),
            headers={"Content-Type": "application/json"},
            timeout=30,
        )
        return Reply(found.content, found.status_code, {"Content-Type": "application/json"})


class _Handler(StubHandler):
    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = {
            "path": self.path,
            "method": self.command,
            "authorization": self.headers.get("Authorization"),
            "lines": [json.loads(line) for line in raw.splitlines() if line.strip()],
        }
        self.say(self.server.take(self.path, request, self.client_address[1]))

    do_GET = do_PUT = do_DELETE = do_POST


def only(what: str, said: Reply) -> Instead:
    """This answer to requests whose path holds that."""
    return lambda request: said if what in request["path"] else None


def hits(*found: Any, **others: Any) -> dict[str, Any]:
    """One response of a search."""
    shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
    total = {"value": len(found), "relation": "eq"}
    own = {"took": 1, "timed_out": False, "_shards": shards, "status": 200}
    return own | {"hits": {"total": total, "max_score": None, "hits": list(found)}} | others
