"""The error tree. No HTTP in it: `app.problems` maps each class to a status."""

from typing import ClassVar, Self


class PoimenError(Exception):
    """Base of every error this service raises on purpose."""

    code: ClassVar[str]
    title: ClassVar[str]

    def with_facts(self, **facts: object) -> Self:
        """The same error, with more attributes to report."""
        vars(self).update(facts)
        return self


class InvalidParameters(PoimenError):
    """A request carried values that cannot be used."""

    code, title = "invalid_parameters", "A parameter is wrong"

    def __init__(self, errors: list[dict[str, str]]) -> None:
        said = "; ".join(f"{error['parameter']}: {error['reason']}" for error in errors)
        super().__init__(said if said.endswith(("?", ".")) else f"{said}.")
        self.errors = errors

    @classmethod
    def of(cls, parameter: str, reason: str) -> "InvalidParameters":
        return cls([{"parameter": parameter, "reason": reason}])


class NotAuthenticated(PoimenError):
    """No credential, or one this memory does not know."""

    code, title = "not_authenticated", "Sign in first"


class NotPermitted(PoimenError):
    """A known principal asked for what its key does not allow."""

    code, title = "not_permitted", "Not allowed"


class ProjectNotFound(PoimenError):
    """A project does not exist, or this principal may not know that it does."""

    code, title = "project_not_found", "No such project"

    def __init__(self, project: str, parameter: str = "project") -> None:
        shown = project if len(project) <= 100 else f"{project[:100]}…"
        super().__init__(f"No project {shown!r}; list them with GET /memory/projects.")
        self.project = shown
        self.errors = [{"parameter": parameter, "reason": f"{shown!r} is not known"}]


class NodeNotFound(PoimenError):
    """A node does not exist, or this principal may not know that it does."""

    code, title = "node_not_found", "No such node"


class SourceNotFound(PoimenError):
    """A project has nothing that came from this source."""

    code, title = "source_not_found", "No such source"


class IngestNotFound(PoimenError):
    """An ingest job does not exist, or is someone else's."""

    code, title = "ingest_not_found", "No such ingest job"


class JobNotFound(PoimenError):
    """A query job does not exist, or is someone else's."""

    code, title = "job_not_found", "No such query job"


class QueryNotFound(PoimenError):
    """A query is someone else's, so that nothing can be said of its results."""

    code, title = "query_not_found", "No such query"


class JobExpired(PoimenError):
    """A query job ended, and its result was kept as long as was asked, or was removed."""

    code, title = "job_expired", "The job's result is no longer kept"


class IdempotencyConflict(PoimenError):
    """An idempotency key was used before, for another request."""

    code, title = "idempotency_conflict", "This idempotency key belongs to another request"


class IdempotencyInProgress(PoimenError):
    """The first request with this idempotency key is still being accepted."""

    code, title = "idempotency_in_progress", "The first request with this key is being accepted"
    retry_after_s = 1.0


class TooManyJobs(PoimenError):
    """This principal has as many unfinished query jobs as it may have."""

    code, title = "too_many_jobs", "Too many unfinished jobs"


class Overloaded(PoimenError):
    """What was asked could not be done in time: too much waits already."""

    code, title = "overloaded", "Too much to do"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NothingToRetry(PoimenError):
    """An ingest job has nothing that failed and could go better a second time."""

    code, title = "nothing_to_retry", "Nothing to try again"


class RouteNotFound(PoimenError):
    """No resource at this address."""

    code, title = "route_not_found", "No such address"


class MethodNotAllowed(PoimenError):
    """The resource exists and does not take this HTTP method."""

    code, title = "method_not_allowed", "Method not allowed"


class BodyTooLarge(PoimenError):
    """The request body is over the configured limit."""

    code, title = "body_too_large", "The body is too large"


class UnsupportedMediaType(PoimenError):
    """The request body is not JSON."""

    code, title = "unsupported_media_type", "The body has no JSON content type"


class DeadlineExceeded(PoimenError):
    """No project answered within the timeout."""

    code, title = "deadline_exceeded", "Out of time"


class QueueDeadline(PoimenError):
    """A query job's timeout passed before any of its work was begun."""

    code, title = "queue_deadline", "Out of time before it began"


class StoppedByUser(PoimenError):
    """A query job was stopped before any project had answered."""

    code, title = "stopped_by_user", "Stopped before anything was found"


class AttemptsExhausted(PoimenError):
    """Workers were lost as often as a query job may be tried."""

    code, title = "attempts_exhausted", "Given up"


class IncompleteAnswer(PoimenError):
    """Some projects did not answer, and the caller wants all or nothing."""

    code, title = "incomplete_answer", "Not every project answered"


class EmbeddingServiceUnavailable(PoimenError):
    """The question could not be embedded."""

    code, title = "embedding_service_unavailable", "The embedding service does not answer"
    retry_after_s: float | None = None  # as the service asked


class LexicalEngineUnavailable(PoimenError):
    """OpenSearch, where it is the lexical engine, could not be searched or written to."""

    code, title = "lexical_engine_unavailable", "The lexical engine does not answer"


class NotReranked(Exception):
    """A reranker gave no scores. Not an error of a query: it is answered in the order it had."""

    def __init__(self, reason: str, message: str) -> None:
        """reason: reranker_unavailable or rerank_limited."""
        super().__init__(message)
        self.reason = reason


class CannotReindex(Exception):
    """There is nothing to bring to another model. An error of a command, never of a request."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


class ModelMismatch(PoimenError):
    """Stored vectors and the configured model cannot be compared."""

    code, title = "model_mismatch", "The embedding model changed"


class StoreUnavailable(PoimenError):
    """PostgreSQL cannot be reached, or is too old."""

    code, title = "store_unavailable", "The database does not answer"


class QueueUnavailable(PoimenError):
    """Redis cannot be reached, or is too old."""

    code, title = "queue_unavailable", "The queue does not answer"


class AllProjectsFailed(PoimenError):
    """Every project failed, not all of them for want of time."""

    code, title = "all_projects_failed", "No project could be searched"


class InternalError(PoimenError):
    """A fault of this service."""

    code, title = "internal_error", "Something broke here"
