"""What requests carry, checked and turned into domain values.

The OpenAPI document is generated from these same classes.
"""

import difflib
import json
import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from werkzeug.datastructures import MultiDict

from workers.errors import InvalidParameters
from workers.model import PROJECT_NAME, SEMANTIC_WEIGHT, Filters, Kind, Level, Method, Query
from workers.naming import document_name
from workers.nesting import DEEPEST_READ, is_nested_beyond
from workers.routing import Route, has_words, route
from workers.wording import (
    ABSOLUTE_FOLDER,
    QUERY_ID,
    SHA256,
    SHA256_PREFIX,
    place_of,
    wrong,
)

Model = TypeVar("Model", bound=BaseModel)

MOST_FAULTS = 50
"""Of one request that are named: a list may hold a fault in each member."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?")


def _integer(value: object) -> object:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise ValueError("is not a whole number")
        return int(value)
    return value


def _number(value: object) -> object:
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise ValueError("is not a number such as 0.6")
        return float(value)
    return value


def _boolean(value: object) -> object:
    if isinstance(value, str):
        known = {"true": True, "1": True, "false": False, "0": False}
        if value.lower() not in known:
            raise ValueError("is neither true nor false")
        return known[value.lower()]
    return value


def _list(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _no_nul(value: str) -> str:
    if "\x00" in value:
        raise ValueError("holds U+0000")
    return value


def _names_a_file(value: str) -> str:
    if document_name(value) is None:
        raise ValueError("names no file: give its path, such as notes/backup.md")
    return value


def _levels(value: list[str]) -> list[Level]:
    wrong = [name for name in value if name not in Level.__members__]
    if wrong or not value:
        raise ValueError("takes L0, L1 and L2, comma-separated")
    return sorted({Level(name) for name in value})


def _not_null(value: object) -> object:
    if value is None:
        raise ValueError("is null: leave it out instead")
    return value


_NOT_NULL = BeforeValidator(_not_null)


def _several(value: object) -> object:
    """One is as good as a list of one."""
    if not isinstance(value, str | list):
        raise ValueError("is neither text nor a list")  # noqa: TRY004  # pydantic knows this one
    return [value] if isinstance(value, str) else value


_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT = re.compile(
    rf"{_DAY.pattern}[Tt ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)


def _instant(value: object) -> datetime:
    """An instant in UTC, which is also what is meant where there is no zone: never the server's."""
    try:
        if not isinstance(value, str) or not (_DAY.fullmatch(value) or _INSTANT.fullmatch(value)):
            raise ValueError  # noqa: TRY301  # told as what is no date for another reason
        read = datetime.fromisoformat(value.upper())
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            "is neither a day such as 2026-07-21 nor an instant such as 2026-07-21T09:52:03Z"
        ) from error


def _json_object(value: object) -> object:
    """What a query string holds as JSON."""
    if not isinstance(value, str):
        return value
    try:
        read = json.loads(value, object_pairs_hook=_once)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError("is not valid JSON") from error
    if not isinstance(read, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004  # pydantic knows this one
    return read


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(members)) < len(members):
        raise ValueError("names something twice")
    return dict(members)


Integer = Annotated[int, BeforeValidator(_integer)]
Share = Annotated[float, Field(ge=0, le=1)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]


QueryText = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=4000),
    AfterValidator(_no_nul),
]
AskedMethod = Literal["auto", "hybrid", "semantic", "lexical"]
_NAMED = Annotated[str, StringConstraints(min_length=1)] | None

_SAYS = {
    "query": "the question, or words to look for",
    "project": "ask this project only, not together with `projects`;"
    " left out: every project you may read",
    "limit": "most results, cut to 1..50",
    "method": "how to search: by meaning (semantic), by words (lexical) or both (hybrid); auto:"
    " words for what holds # or @ or is fewer than three words, else both",
    "semantic_weight": (
        "what the meaning counts in a hybrid search, 0..1, and the words the rest;"
        f" null: what the project says, otherwise {SEMANTIC_WEIGHT}"
    ),
    "filters": "which nodes it is about: an object as FilterParameters, in a query string as JSON",
    "facets": "count what it is about, value by value; left out: with filters only",
    "explain": "add the recall candidates of every project",
    "allow_partial": "false: an error unless every project answers completely",
}


_Word = Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_no_nul)]
_Member = TypeVar("_Member", bound=str)
_Some = Annotated[
    list[_Member],
    Field(min_length=1, max_length=50),
    AfterValidator(lambda values: sorted(set(values))),
    BeforeValidator(_several, json_schema_input_type=str | list[str]),
]
_Instant = Annotated[datetime, BeforeValidator(_instant, json_schema_input_type=str)]
_WHEN = "a day, from its midnight in UTC, or an instant; without a zone in UTC"


class FilterParameters(BaseModel):
    """Which nodes a question is about. A node passes if it meets every condition."""

    model_config = ConfigDict(extra="forbid", strict=True)

    level: Annotated[_Some[Literal["L0", "L1", "L2"]] | None, _NOT_NULL] = Field(
        None, description="is one of these, which `level` has as well"
    )
    source_pattern: Annotated[_Word | None, _NOT_NULL] = Field(
        None,
        description="its source is like this: `*` stands for any characters, also `/`, `?` for one,"
        " and everything else for itself",
    )
    updated_since: Annotated[_Instant | None, _NOT_NULL] = Field(None, description=_WHEN)
    updated_before: Annotated[_Instant | None, _NOT_NULL] = Field(None, description=_WHEN)
    occurred_since: Annotated[_Instant | None, _NOT_NULL] = Field(None, description=_WHEN)
    occurred_before: Annotated[_Instant | None, _NOT_NULL] = Field(None, description=_WHEN)
    tags: Annotated[_Some[_Word] | None, _NOT_NULL] = Field(None, description="has all of these")
    kind: Annotated[
        _Some[Literal["turn", "document", "chunk", "note", "synthesis"]] | None, _NOT_NULL
    ] = Field(None, description="is one of these: turn, document, chunk, note, synthesis")
    standing_id: Annotated[_Some[_Word] | None, _NOT_NULL] = Field(
        None, description="answers one of these"
    )

    @model_serializer(mode="wrap")
    def _what_was_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}

    def to_filters(self) -> Filters:
        """What is asked of nodes beside their level."""
        return Filters(
            source_pattern=self.source_pattern,
            updated_since=self.updated_since,
            updated_before=self.updated_before,
            occurred_since=self.occurred_since,
            occurred_before=self.occurred_before,
            tags=tuple(self.tags or ()),
            kinds=tuple(Kind(kind) for kind in self.kind or ()),
            standing_ids=tuple(self.standing_id or ()),
        )


class Question(BaseModel):
    """What every way of asking takes."""

    model_config = ConfigDict(extra="forbid")

    longest_s: ClassVar[int] = 30  # of timeout_seconds

    query: QueryText = Field(description=_SAYS["query"])
    project: _NAMED = Field(None, description=_SAYS["project"])
    projects: list[str] | None
    level: Sequence[Level | str]  # levels, once it is validated
    limit: int
    timeout_seconds: int
    method: AskedMethod = Field("auto", description=_SAYS["method"])
    semantic_weight: float | None
    filters: FilterParameters | None
    facets: bool | None
    explain: bool
    allow_partial: bool

    @model_validator(mode="after")
    def _a_level_is_left(self) -> Self:
        if not self.levels:
            raise InvalidParameters.of(
                "filters.level", f"leaves no level: level is {','.join(self.level)}"
            )
        return self

    @model_validator(mode="after")
    def _one_way_to_name_projects(self) -> Self:
        if self.project is not None and self.projects is not None:
            raise InvalidParameters.of("projects", "cannot be given together with project")
        if self.projects is not None and "" in self.projects:
            raise InvalidParameters.of("projects", "has an empty name")
        return self

    @property
    def timeout_s(self) -> int:
        return min(self.longest_s, max(1, self.timeout_seconds))

    @property
    def levels(self) -> list[Level]:
        """Those that are searched."""
        wanted = self.filters.level if self.filters else None
        return [Level(level) for level in self.level if wanted is None or level in wanted]

    @property
    def filters_applied(self) -> dict[str, Any]:
        """The filters as they are understood."""
        applied = self.filters.model_dump(mode="json") if self.filters else {}
        return applied | ({"level": self.levels} if "level" in applied else {})

    @property
    def has_facets(self) -> bool:
        return bool(self.filters_applied) if self.facets is None else self.facets

    def to_query(self) -> Query:
        return Query(
            text=self.query,
            levels=tuple(self.levels),
            limit=min(50, max(1, self.limit)),
            is_explained=self.explain,
            method=self.route.method,
            semantic_weight=self.semantic_weight,
            filters=self.filters.to_filters() if self.filters else Filters(),
            has_facets=self.has_facets,
        )

    @property
    def route(self) -> Route:
        """The way that is gone, and why."""
        return route(self.query, None if self.method == "auto" else Method(self.method))

    def used(self) -> dict[str, int]:
        """The numbers that are cut to what is possible, as they are used."""
        return {"limit": self.to_query().limit, "timeout_seconds": self.timeout_s}

    def notes(self) -> list[str]:
        """What was taken otherwise than asked."""
        without = [] if has_words(self.query) else ["the question holds no word to look for"]
        return without + [
            f"{name} {getattr(self, name)} was cut to {value}"
            for name, value in self.used().items()
            if getattr(self, name) != value
        ]


class QueryParameters(Question):
    """What `GET /memory/query` takes."""

    projects: Annotated[list[str], BeforeValidator(_list), Field(min_length=1)] | None = Field(
        None, description="ask these projects, comma-separated; not together with `project`"
    )
    level: Annotated[list[str], BeforeValidator(_list), AfterValidator(_levels)] = Field(
        default=["L1", "L2"],
        description="levels to search, comma-separated: L0, L1, L2",
        validate_default=True,
    )
    limit: Integer = Field(5, description=_SAYS["limit"])
    timeout_seconds: Integer = Field(5, description="time for the whole answer, cut to 1..30")
    semantic_weight: Annotated[Share, BeforeValidator(_number)] | None = Field(
        None, description=_SAYS["semantic_weight"]
    )
    filters: Annotated[
        FilterParameters | None,
        BeforeValidator(_json_object),
        WithJsonSchema({"type": ["string", "null"], "contentMediaType": "application/json"}),
    ] = Field(None, description=_SAYS["filters"])
    facets: Boolean | None = Field(None, description=_SAYS["facets"])
    explain: Boolean = Field(False, description=_SAYS["explain"])
    allow_partial: Boolean = Field(True, description=_SAYS["allow_partial"])


MOST_CONTEXT_CHUNKS = 10
MOST_TOKENS = 1_000_000


class ContextParameters(QueryParameters):
    """What `GET /memory/query/with-context` takes."""

    context_chunks: Integer = Field(
        2, description="neighbours told on each side of a result, cut to 0..10"
    )
    max_tokens: Integer | None = Field(
        None,
        description="most tokens of all texts of results and contexts, by the estimate of 4 bytes"
        " a token; cut to 1..1000000; left out: no limit",
    )

    @property
    def chunks(self) -> int:
        return min(MOST_CONTEXT_CHUNKS, max(0, self.context_chunks))

    @property
    def most_tokens(self) -> int | None:
        return None if self.max_tokens is None else min(MOST_TOKENS, max(1, self.max_tokens))

    def used(self) -> dict[str, int]:
        own = {"context_chunks": self.chunks}
        if self.most_tokens is not None:
            own["max_tokens"] = self.most_tokens
        return super().used() | own


class JobParameters(Question):
    """What `POST /memory/query/jobs` takes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    longest_s: ClassVar[int] = 600

    projects: (
        Annotated[list[Annotated[str, StringConstraints(min_length=1)]], Field(min_length=1)] | None
    ) = Field(None, description="ask these projects; not together with `project`")
    level: Annotated[list[Literal["L0", "L1", "L2"]], AfterValidator(_levels)] = Field(
        default=["L1", "L2"],
        description="levels to search: L0, L1, L2",
        validate_default=True,
    )
    limit: int = Field(5, description=_SAYS["limit"])
    semantic_weight: Share | None = Field(None, description=_SAYS["semantic_weight"])
    filters: FilterParameters | None = Field(None, description=_SAYS["filters"])
    facets: bool | None = Field(None, description=_SAYS["facets"])
    timeout_seconds: int = Field(60, description="time for the whole answer, cut to 1..600")
    explain: bool = Field(False, description=_SAYS["explain"])
    allow_partial: bool = Field(True, description=_SAYS["allow_partial"])
    keep_alive_seconds: int = Field(
        86_400, description="how long the result is kept once it ended, cut to 60..604800"
    )
    wait_seconds: int = Field(0, description="wait for the end so long at first, cut to 0..25")

    @property
    def keep_alive_s(self) -> int:
        return min(604_800, max(60, self.keep_alive_seconds))

    @property
    def wait_s(self) -> int:
        return min(LONGEST_WAIT_S, max(0, self.wait_seconds))

    def used(self) -> dict[str, int]:
        own = {"keep_alive_seconds": self.keep_alive_s, "wait_seconds": self.wait_s}
        return super().used() | own


LONGEST_WAIT_S = 25


class PollParameters(BaseModel):
    """What `GET /memory/query/jobs/{id}` takes."""

    model_config = ConfigDict(extra="forbid")

    wait_seconds: Integer = Field(0, description="wait for news so long, cut to 0..25")
    since: Annotated[int, BeforeValidator(_integer), Field(ge=0)] | None = Field(
        None, description="news is a revision after this one; left out: the job's end"
    )

    @property
    def wait_s(self) -> int:
        return min(LONGEST_WAIT_S, max(0, self.wait_seconds))


class RemoveParameters(BaseModel):
    """What `DELETE /memory/query/jobs/{id}` takes."""

    model_config = ConfigDict(extra="forbid")

    if_running: Boolean = Field(False, description="leave a job that has ended as it is")


class NoParameters(BaseModel):
    """What takes no parameters takes."""

    model_config = ConfigDict(extra="forbid")


class Paged(BaseModel):
    """One page of a list that is newest first."""

    model_config = ConfigDict(extra="forbid")

    limit: Integer = Field(20, description="jobs of one page, cut to 1..100")
    cursor: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="`next_cursor` of the page before"
    )

    @property
    def page(self) -> int:
        return min(100, max(1, self.limit))


JobFilter = Literal["running", "ended", "completed", "partial", "failed", "cancelled"]


class JobListParameters(Paged):
    """What `GET /memory/query/jobs` takes."""

    status: JobFilter | None = Field(None, description="only these")


class FeedbackParameters(BaseModel):
    """What `POST /memory/query/feedback` takes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query_id: Annotated[str, Field(pattern=QUERY_ID)] = Field(
        description="of the answer, or the id of the job"
    )
    query_text: QueryText | None = Field(
        None, description="the question; required once the answer is not known any more"
    )
    result_id: Annotated[str, Field(pattern=SHA256)] = Field(description="`id` of a result")
    relevant: bool | None = Field(None, description="this or `rating` is required")
    rating: Annotated[int, Field(ge=1, le=5)] | None = Field(None, description="5 is the best")
    feedback_text: (
        Annotated[str, Field(min_length=1, max_length=4000), AfterValidator(_no_nul)] | None
    ) = Field(None, description="in words")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.relevant is None and self.rating is None:
            raise InvalidParameters.of("relevant", "is required, or rating, or both")
        return self


class FeedbackReportParameters(Paged):
    """What `GET /memory/query/feedback` takes."""

    limit: Integer = Field(20, description="results of one page, cut to 1..100")
    project: _NAMED = Field(None, description="only of this project")
    about: Literal["irrelevant", "unresolved"] | None = Field(
        None,
        description="only those called irrelevant, or only those that are not there any more",
    )
    keys: Integer = Field(
        2, description="how many keys must call a result irrelevant, cut to 1..100"
    )

    @property
    def least_keys(self) -> int:
        return min(100, max(1, self.keys))


class JudgementParameters(Paged):
    """What `GET /memory/query/feedback/judgements` takes."""

    limit: Integer = Field(20, description="judgements of one page, cut to 1..100")
    project: _NAMED = Field(None, description="only of this project")


class ProjectParameters(BaseModel):
    """What `POST /memory/projects` takes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    project: Annotated[str, Field(pattern=PROJECT_NAME)]
    title: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_no_nul)] | None = (
        None
    )
    roots: list[Annotated[str, Field(pattern=ABSOLUTE_FOLDER, max_length=4096)]] = Field(
        default=[],
        max_length=100,
        description="absolute folders whose questions go to this project",
    )
    semantic_weight: Share | None = Field(
        None, description="of its questions that do not say another"
    )


class NodeListParameters(BaseModel):
    """What `GET /memory/nodes/{project}` takes."""

    model_config = ConfigDict(extra="forbid")

    prefix: Annotated[str, Field(pattern=SHA256_PREFIX)] = Field(
        description="the first 8 or more hex digits of the sha256"
    )


class SourceListParameters(BaseModel):
    """What `GET /memory/projects/{project}/sources` takes."""

    model_config = ConfigDict(extra="forbid")

    after: Annotated[str, Field(max_length=1000), AfterValidator(_no_nul)] = Field(
        "", description="`next_after` of the page before"
    )


class ForgetSourceParameters(BaseModel):
    """What `DELETE /memory/projects/{project}/sources` takes."""

    model_config = ConfigDict(extra="forbid")

    source: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_no_nul)] = Field(
        description="the source's name, as the list and every hit tell it"
    )


FileFormat = Literal["auto", "claude_code", "codex", "pi", "markdown", "text"]


class FileBody(BaseModel):
    """One file of a submission: its name, and its content as text or as base64."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[
        str,
        Field(min_length=1, max_length=1000),
        AfterValidator(_no_nul),
        AfterValidator(_names_a_file),
    ] = Field(description="its path, by which a later version of it is known")
    text: str | None = None
    base64: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("needs either text or base64")
        return self

    def content(self, place: int) -> bytes:
        """
        Raises:
            InvalidParameters: it is not base64.
        """
        if self.text is not None:
            # Half of a pair is what a parser replaces and notes, not what ends a submission.
            return self.text.encode("utf-8", "surrogatepass")
        try:
            return b64decode(self.base64 or "", validate=True)
        except ValueError as error:
            raise InvalidParameters.of(f"files[{place}].base64", "is not base64") from error


class IngestParameters(BaseModel):
    """What `POST /memory/ingest` takes. Nodes are checked one by one while the job runs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    project: Annotated[str, Field(pattern=PROJECT_NAME)] | None = Field(
        None, description="where it is stored; a session without it goes by its folder"
    )
    format: Literal["nodes", "auto", "claude_code", "codex", "pi", "markdown", "text"] = Field(
        description="nodes, or what the files are; auto: each by its content"
    )
    nodes: Annotated[list[Any], Field(min_length=1)] | None = Field(
        None,
        description="with format nodes: each is checked by itself while the job runs; one that is"
        " none is refused there, by its place, and does not keep the others out",
        json_schema_extra={"items": {"$ref": "#/components/schemas/NodeBody"}},
    )
    files: Annotated[list[FileBody], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="with any other format"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        wanted, other = ("nodes", "files") if self.format == "nodes" else ("files", "nodes")
        if getattr(self, wanted) is None:
            raise InvalidParameters.of(wanted, f"is required with format {self.format}")
        if getattr(self, other) is not None:
            raise InvalidParameters.of(other, f"cannot be given with format {self.format}")
        return self


class UploadParameters(BaseModel):
    """The fields of a multipart submission, beside its files."""

    model_config = ConfigDict(extra="forbid")

    project: Annotated[str, Field(pattern=PROJECT_NAME)] | None = None
    format: FileFormat = "auto"


IngestFilter = Literal["open", "completed", "partial", "failed", "cancelled"]


class IngestListParameters(Paged):
    """What `GET /memory/ingest` takes."""

    status: IngestFilter | None = Field(None, description="only these; open: queued or running")


_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def check_idempotency_key(key: str | None) -> None:
    """
    Raises:
        InvalidParameters: there is one, and it cannot be used.
    """
    if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidParameters.of("Idempotency-Key", "is not 1 to 255 visible ASCII characters")


def check_file_names(names: Sequence[str]) -> None:
    """Refuse uploaded files as a whole if one has no name that it could be known by.

    Raises:
        InvalidParameters: naming each of these.
    """
    faults = []
    for place, name in enumerate(names):
        try:
            _names_a_file(_no_nul(name))
        except ValueError as error:
            faults.append({"parameter": f"files[{place}].name", "reason": str(error)})
    if faults:
        raise InvalidParameters(faults[:MOST_FAULTS])


def check_submission(nodes: list[Any], most: int) -> None:
    """Refuse as a whole what would be trouble before the first node can be looked at.

    Raises:
        InvalidParameters: too many nodes, or nested too deeply to be read again.
    """
    if len(nodes) > most:
        raise InvalidParameters.of(
            "nodes", f"are {len(nodes)}, at most {most} are taken at once: send them in parts"
        )
    if is_nested_beyond(nodes, DEEPEST_READ + 1):
        place = next(n for n, node in enumerate(nodes) if is_nested_beyond(node, DEEPEST_READ))
        raise InvalidParameters.of(
            f"nodes[{place}]", f"is nested more than {DEEPEST_READ} levels deep"
        )


def read_parameters(model: type[Model], arguments: "MultiDict[str, str]") -> Model:
    """Validate a query string.

    Raises:
        InvalidParameters: naming each wrong parameter, the nearest known one for an unknown.
    """
    twice = [name for name, values in arguments.lists() if len(values) > 1]
    if twice:
        raise InvalidParameters([{"parameter": n, "reason": "was given twice"} for n in twice])
    return validate(model, arguments.to_dict())


def validate(model: type[Model], data: object) -> Model:
    """Validate a body or a query string; errors name the parameter and what it takes.

    Raises:
        InvalidParameters: something is wrong.
    """
    if not isinstance(data, dict):
        raise InvalidParameters.of("body", "is not a JSON object")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        told = [_error(model, detail) for detail in details[:MOST_FAULTS]]
        if more := len(details) - len(told):
            told.append({"parameter": "body", "reason": f"has {more} more faults"})
        raise InvalidParameters(told) from error


def _error(model: type[BaseModel], detail: Any) -> dict[str, str]:
    parameter = place_of(detail["loc"]) or "body"
    if detail["type"] == "extra_forbidden":
        *above, name = detail["loc"]
        names = _model_at(model, above).model_fields
        known = difflib.get_close_matches(str(name), names, n=1, cutoff=0.0)
        meant = f"did you mean {known[0]}?" if known else "none is taken here"
        return {"parameter": parameter, "reason": f"is unknown; {meant}"}
    return {"parameter": parameter, "reason": wrong(detail)}


def _model_at(model: type[BaseModel], loc: Sequence[int | str]) -> type[BaseModel]:
    """The model of the object that stands there: of `files[0]`, that of a file."""
    for step in loc:
        if isinstance(step, str):
            inner = _models_in(model.model_fields[step].annotation)
            model = next(inner, model)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
