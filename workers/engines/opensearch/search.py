"""Questions to the index. They are built as objects: no word of them is ever syntax."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from opensearchpy import OpenSearch

from workers.deadline import Deadline
from workers.engines.opensearch.index import document_id
from workers.engines.opensearch.server import SearchServer
from workers.engines.search_text import SearchText
from workers.errors import DeadlineExceeded
from workers.model import Filters, Level, Match, Matched, ProjectName, Sha256
from workers.ports import NO_FILTERS

# Lucene leaves the factor k1 + 1 of BM25 out, as it changes no order. With it scores mean the same
# as those of PostgreSQL, and are mapped and fused alike.
FACTOR = 1.2 + 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WILDCARD = str.maketrans({"\\": "\\\\"})

Clause = dict[str, Any]


class ProjectIndex:
    """Reads of one project. Implements `workers.ports.LexicalIndex`."""

    engine = "opensearch"

    def __init__(
        self,
        server: SearchServer,
        alias: str,
        search_text: SearchText,
        project: ProjectName,
        bearer: str | None = None,
    ) -> None:
        """bearer: a token of whoever asks, presented instead of the service's own credential."""
        self._server = server
        self._alias = alias
        self._search_text = search_text
        self._project = project
        self._headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}

    def recall(
        self,
        text: str,
        levels: Sequence[Level],
        depth: int,
        deadline: Deadline,
        filters: Filters = NO_FILTERS,
    ) -> Matched:
        """Exact within the statistics of the shard; see docs/lexical.md."""
        passing = [*self._own(levels), *_conditions(filters)]
        counting = {
            "size": 0,
            "track_total_hits": True,
            "query": {"bool": {"filter": passing}},
        }
        terms = self._search_text.query_terms(text)
        matching = [
            {
                "size": depth,
                "track_total_hits": False,
                "track_scores": True,
                "sort": [{"_score": "desc"}, {"sha256": "asc"}],
                "docvalue_fields": ["level"],
                "query": _holding(terms, passing),
            }
        ]
        counted, *found = self._search([counting, *(matching if terms else [])], deadline)
        return Matched(
            tuple(
                Match(hit["sort"][1], Level(hit["fields"]["level"][0]), hit["_score"] * FACTOR)
                for hits in found
                for hit in hits["hits"]
            ),
            is_bounded=False,
            documents=counted["total"]["value"],
        )

    def scores(
        self, text: str, levels: Sequence[Level], nodes: Sequence[Sha256], deadline: Deadline
    ) -> list[float]:
        terms = self._search_text.query_terms(text)
        if not terms or not nodes:
            return [0.0] * len(nodes)
        search = {
            "size": len(nodes),
            "track_total_hits": False,
            "query": _holding(terms, [*self._own(levels), self._given(nodes)]),
        }
        (hits,) = self._search([search], deadline)
        scores = {hit["_id"]: hit["_score"] * FACTOR for hit in hits["hits"]}
        return [scores.get(document_id(self._project, sha256), 0.0) for sha256 in nodes]

    def holding(self, text: str, nodes: Sequence[Sha256], deadline: Deadline) -> frozenset[Sha256]:
        names = self._search_text.query_names(text)
        if not names or not nodes:
            return frozenset()
        search = {
            "size": len(nodes),
            "track_total_hits": False,
            "docvalue_fields": ["sha256"],
            "query": {"bool": {"filter": [self._given(nodes), {"terms": {"terms": names}}]}},
        }
        (hits,) = self._search([search], deadline)
        return frozenset(hit["fields"]["sha256"][0] for hit in hits["hits"])

    def _given(self, nodes: Sequence[Sha256]) -> Clause:
        return {"ids": {"values": [document_id(self._project, sha256) for sha256 in nodes]}}

    def _own(self, levels: Sequence[Level]) -> list[Clause]:
        return [
            {"term": {"project": self._project}},
            {"terms": {"level": [level.value for level in levels]}},
        ]

    def _search(self, searches: Sequence[Clause], deadline: Deadline) -> list[Mapping[str, Any]]:
        """The hits of each search, sent together; the server stops them at the deadline.

        Raises:
            DeadlineExceeded: out of time.
            LexicalEngineUnavailable: it failed, or answered for a part of the index only.
        """

        def send(client: OpenSearch, seconds: float) -> Any:
            # At least 1 ms, since 0 would mean no limit at all. One copy of the index for all
            # questions to a project: copies count removed nodes differently, and so would score.
            header = {"routing": self._project, "preference": self._project}
            limit = {"timeout": f"{max(1, int(seconds * 1000))}ms"}
            return client.msearch(
                body=[part for search in searches for part in (header, search | limit)],
                index=self._alias,
                params={"request_timeout": seconds},
                headers=self._headers,
            )

        answer = self._server.ask(send, deadline)
        try:
            asked = zip(searches, answer["responses"], strict=True)
            return [self._hits(response) for _, response in asked]
        except (KeyError, TypeError, ValueError) as error:
            raise self._server.failed("answered something else than asked; see its log") from error

    def _hits(self, response: Mapping[str, Any]) -> Mapping[str, Any]:
        if "error" in response:
            raise self._server.refusal(response.get("status", 500))
        if response["timed_out"]:
            raise DeadlineExceeded("OpenSearch was still searching at the deadline.")
        if response["_shards"]["failed"]:
            raise self._server.failed("searched a part of its index only; see its log")
        hits: Mapping[str, Any] = response["hits"]
        return hits


def _holding(terms: Sequence[str], passing: Sequence[Clause]) -> Clause:
    """What passes and has one of the terms, each of which adds to its score."""
    return {
        "bool": {
            "filter": passing,
            "should": [{"term": {"terms": {"value": term}}} for term in terms],
            "minimum_should_match": 1,
        }
    }


def _conditions(filters: Filters) -> list[Clause]:
    """The filters of a question; `workers.store.filters` has the same for PostgreSQL."""
    pattern = filters.source_pattern
    clauses: list[Clause] = []
    if pattern is not None and set(pattern) & set("*?"):
        clauses.append({"wildcard": {"source": {"value": pattern.translate(_WILDCARD)}}})
    elif pattern is not None:
        clauses.append({"term": {"source": pattern}})
    for field, since, before in (
        ("updated_at", filters.updated_since, filters.updated_before),
        ("occurred_at", filters.occurred_since, filters.occurred_before),
    ):
        bounds = {"gte": _micros(since), "lt": _micros(before)}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        if given:
            clauses.append({"range": {field: given}})
    clauses += [{"term": {"tags": tag}} for tag in filters.tags]
    if filters.kinds:
        clauses.append({"terms": {"kind": [kind.value for kind in filters.kinds]}})
    if filters.standing_ids:
        clauses.append({"terms": {"standing_id": list(filters.standing_ids)}})
    return clauses


def _micros(instant: datetime | None) -> int | None:
    return None if instant is None else (instant - _EPOCH) // timedelta(microseconds=1)
