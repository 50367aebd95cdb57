"""Whether an answer is one, or an error."""

from workers.errors import (
    AllProjectsFailed,
    AttemptsExhausted,
    DeadlineExceeded,
    EmbeddingServiceUnavailable,
    IncompleteAnswer,
    LexicalEngineUnavailable,
    ModelMismatch,
    PoimenError,
    QueueDeadline,
    QueueUnavailable,
    StoppedByUser,
    StoreUnavailable,
)
from workers.model import Answer, Silence, Status


def verdict(answer: Answer, allow_partial: bool = True) -> PoimenError | None:
    """The error of a query that nobody answered, or not everybody where only that is of use.

    An answer without a single answering project is never an empty success.
    """
    outcomes = answer.outcomes
    missing = [outcome for outcome in outcomes if outcome.status is not Status.SUCCESSFUL]
    has_answer = not outcomes or any(outcome.status.has_answered for outcome in outcomes)
    if not missing or (has_answer and allow_partial):
        return None
    statuses = {outcome.status for outcome in missing}
    reasons = {outcome.reason for outcome in missing}
    if statuses == {Status.TIMED_OUT}:
        error: PoimenError = _late(reasons)
    elif has_answer:
        error = IncompleteAnswer(
            f"{len(missing)} of {len(outcomes)} projects did not answer completely;"
            " `warnings` says how. Ask again, or allow a partial answer."
        )
    elif statuses == {Status.CANCELLED}:
        error = StoppedByUser("No project had answered when it was stopped; submit it again.")
    else:
        failed = [outcome for outcome in missing if outcome.status is Status.FAILED]
        known = {outcome.reason for outcome in failed}
        kind = _COMMON.get(next(iter(known)) or "") if len(known) == 1 else None
        said = next((outcome.message for outcome in failed if outcome.message), None)
        error = (kind or AllProjectsFailed)(said or "Every project failed; `warnings` says how.")
    warnings = [warning.message for warning in answer.warnings]
    return error.with_facts(warnings=warnings, query_id=answer.query_id)


_UNSEEN = {"no_answer_by_deadline", "expired_in_queue"}
_COMMON: dict[str, type[PoimenError]] = {
    kind.code: kind
    for kind in (
        AttemptsExhausted,
        EmbeddingServiceUnavailable,
        LexicalEngineUnavailable,
        StoreUnavailable,
        QueueUnavailable,
        ModelMismatch,
    )
}


def _late(reasons: set[str | None]) -> PoimenError:
    if reasons == {Silence.NEVER_BEGUN.value}:
        return QueueDeadline("Its turn did not come in time; allow it a larger timeout_seconds.")
    if reasons <= _UNSEEN:
        return DeadlineExceeded(
            "No worker took the question in time; see GET /health/ready, then ask again."
        )
    return DeadlineExceeded(
        "Projects did not answer in time; ask again with a larger timeout_seconds."
    )
