"""The index: its fields, its two aliases, and what is written to it.

{alias}-{number}   an index; there is one, and a second one while the next is filled
{alias}-write      alias of all that are written to
{alias}            alias of the one that is read
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests
from opensearchpy import OpenSearch
from opensearchpy.helpers import streaming_bulk

from workers.deadline import Deadline
from workers.engines.opensearch.server import SearchServer, check_version
from workers.model import NodeKey

MOST_BYTES = 5_000_000  # of one request
_LONGEST = 8_191  # characters of a value that is looked for: Lucene takes 32,766 bytes

_VALUE = {"type": "keyword", "ignore_above": _LONGEST}
_DEFINITION: dict[str, Any] = {
    "settings": {"index": {"similarity": {"bm25": {"type": "BM25", "k1": 1.2, "b": 0.75}}}},
    "mappings": {
        "dynamic": "strict",
        "_routing": {"required": True},
        "_source": {"enabled": False},  # PostgreSQL has it
        "properties": {
            "project": {"type": "keyword"},
            "sha256": {"type": "keyword"},
            "level": {"type": "keyword"},
            "kind": {"type": "keyword"},
            "source": _VALUE,
            "standing_id": _VALUE,
            "tags": _VALUE,
            # Microseconds since 1970: `date` has milliseconds, and `date_nanos` ends in 2262.
            "occurred_at": {"type": "long"},
            "updated_at": {"type": "long"},
            # Terms of ours with spaces between them, each as often as it occurs.
            "terms": {
                "type": "text",
                "analyzer": "whitespace",
                "similarity": "bm25",
                "index_options": "freqs",
            },
        },
    },
}


@dataclass(frozen=True, slots=True)
class Aliases:
    """Which indexes stand behind each alias."""

    read: frozenset[str]
    written: frozenset[str]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch."""

    refused: Mapping[NodeKey, str]  # for good, as it is, and why
    put_off: frozenset[NodeKey]  # the server takes no more for now


class WordIndex:
    """Writing to the index. One process at a time does.

    Every method raises LexicalEngineUnavailable when the server fails or refuses, and
    DeadlineExceeded when it does not answer in time; what was begun may be begun again.
    """

    def __init__(self, server: SearchServer, alias: str, call_s: float) -> None:
        """call_s: that one call may take."""
        self._server = server
        self._alias = alias
        self._write_alias = f"{alias}-write"
        self._call_s = call_s

    def name_of(self, number: int) -> str:
        return f"{self._alias}-{number}"

    def aliases(self) -> Aliases:
        pattern = f"{self._alias}-*"

        def look(client: OpenSearch, seconds: float) -> Any:
            return client.indices.get_alias(index=pattern, params={"request_timeout": seconds})

        found = self._ask(look)

        def behind(alias: str) -> frozenset[str]:
            return frozenset(name for name, said in found.items() if alias in said["aliases"])

        return Aliases(behind(self._alias), behind(self._write_alias))

    def create(self, name: str) -> None:
        """A new index, which is written to from now on.

        Also raises LexicalEngineUnavailable where the server is too old: its scores would mislead.
        """
        check_version(self._server, Deadline.after(self._call_s))
        body = {**_DEFINITION, "aliases": {self._write_alias: {}}}

        def create(client: OpenSearch, seconds: float) -> None:
            client.indices.create(index=name, body=body, params={"request_timeout": seconds})

        self._ask(create)

    def drop(self, names: Collection[str]) -> None:
        def drop(client: OpenSearch, seconds: float) -> None:
            client.indices.delete(
                index=",".join(sorted(names)), params={"request_timeout": seconds}
            )

        if names:
            self._ask(drop)

    def publish(self, name: str, instead_of: Collection[str]) -> None:
        """From now on this index is read, and others are gone: in one step."""
        add = {"add": {"index": name, "alias": self._alias}}
        remove = [{"remove_index": {"index": other}} for other in sorted(instead_of)]

        def swap(client: OpenSearch, seconds: float) -> None:
            client.indices.refresh(index=name, params={"request_timeout": seconds})
            client.indices.update_aliases(
                body={"actions": [add, *remove]}, params={"request_timeout": seconds}
            )

        self._ask(swap)

    def write(
        self,
        nodes: Sequence[tuple[NodeKey, Mapping[str, Any] | None]],
        names: Collection[str],
        number: int,
    ) -> Written:
        """Bring nodes into these indexes as they are given, or out of them (None).

        Args:
            number: of this write; a later one has a larger number. An earlier one that arrives
                later changes nothing, though its sender gave it up or died long ago.
        """
        actions = [
            _action(key, fields, name, number) for key, fields in nodes for name in sorted(names)
        ]

        def send(client: OpenSearch, seconds: float) -> list[tuple[bool, Any]]:
            return list(
                streaming_bulk(
                    client,
                    actions,
                    chunk_size=len(actions),
                    max_chunk_bytes=MOST_BYTES,
                    raise_on_error=False,
                    params={"request_timeout": seconds},
                )
            )

        refused: dict[NodeKey, str] = {}
        put_off: set[NodeKey] = set()
        for _, said in self._ask(send):
            ((_, item),) = said.items()
            project, _, sha256 = item["_id"].partition("/")
            if item["status"] in _PUT_OFF:
                put_off.add((project, sha256))
            elif item["status"] not in _DONE:
                kind = item.get("error", {}).get("type", "unknown")
                refused[project, sha256] = f"HTTP {item['status']}, {kind}"
        return Written(refused, frozenset(put_off))

    def _ask(self, call: Any) -> Any:
        return self._server.ask(call, Deadline.after(self._call_s))


_DONE = (
    requests.codes.ok,
    requests.codes.created,
    requests.codes.not_found,  # of what is to be removed
    requests.codes.conflict,  # a later write has been there
)
_PUT_OFF = (
    requests.codes.too_many_requests,
    requests.codes.service_unavailable,
)


def document_id(project: str, sha256: str) -> str:
    """A node's name within the index."""
    return f"{project}/{sha256}"


def _action(
    key: NodeKey, fields: Mapping[str, Any] | None, name: str, number: int
) -> dict[str, Any]:
    project, sha256 = key
    action = {
        "_op_type": "delete" if fields is None else "index",
        "_index": name,
        "_id": document_id(project, sha256),
        "routing": project,
        "version": number,
        "version_type": "external_gte",
    }
    if fields is None:
        return action
    return action | {"_source": {"project": project, "sha256": sha256, **fields}}
