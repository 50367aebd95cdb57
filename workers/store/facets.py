"""How many nodes of one project have each value of each facet."""

from typing import Any

from workers.deadline import Deadline
from workers.engines.search_text import SearchText
from workers.model import FACETS, Facets, Method, ProjectName, Query
from workers.store.database import Database, Statement
from workers.store.filters import filtered, filtering
from workers.store.lexical import SCORED, WEIGHED, asking
from workers.store.queries import load_queries

QUERIES = load_queries("facets.sql")
COUNT = filtered(QUERIES["asked"] + QUERIES["tallied"])
COUNT_BY_WORDS = filtered(SCORED + QUERIES["asked_by_words"] + QUERIES["tallied"])
HOLDERS = WEIGHED + QUERIES["holders"]
HOLDERS_FILTERED = filtered(SCORED + QUERIES["holders_filtered"])

MOST_CARRIED = 1_000  # values of a facet and project
LONGEST_VALUE = 1_000  # characters; longer ones cannot be filtered by


class ProjectCounts:
    """Counts of one project. Implements `workers.ports.Countable`."""

    def __init__(self, database: Database, project: ProjectName, search_text: SearchText) -> None:
        self._database = database
        self._project = project
        self._search_text = search_text

    def facets(self, query: Query, deadline: Deadline) -> Facets:
        arguments = {
            "project": self._project,
            "levels": list(query.levels),
            "most": MOST_CARRIED,
            "longest": LONGEST_VALUE,
        }
        text = COUNT
        if query.method is Method.LEXICAL:
            text = COUNT_BY_WORDS
            arguments |= self._asking(query)
        arguments |= filtering(query.filters)
        statement = Statement(text, arguments, is_planned_anew=True)
        (rows,) = self._database.read([statement], deadline)
        counts: dict[str, dict[str, int]] = {facet: {} for facet in FACETS}
        in_all = dict.fromkeys(FACETS, 0)
        for row in rows:
            counts[row["facet"]][row["value"]] = row["nodes"]
            in_all[row["facet"]] = row["in_all"]
        truncated = tuple(facet for facet in FACETS if len(counts[facet]) < in_all[facet])
        return Facets(counts, truncated)

    def holders(self, query: Query, deadline: Deadline) -> int:
        if query.filters:
            arguments = self._asking(query) | filtering(query.filters)
            statement = Statement(HOLDERS_FILTERED, arguments, is_planned_anew=True)
            (rows,) = self._database.read([statement], deadline)
        else:
            statement = Statement(HOLDERS, self._asking(query))
            (rows,) = self._database.read([statement], deadline, "force_generic_plan")
        return int(rows[0]["nodes"])

    def _asking(self, query: Query) -> dict[str, Any]:
        terms = self._search_text.query_terms(query.text)
        return asking(self._project, terms, query.levels, query.recall_depth)
