"""What is said of results."""

from http import HTTPStatus

from flask import Blueprint, request
from flask.typing import ResponseReturnValue

from app.parameters import (
    FeedbackParameters,
    FeedbackReportParameters,
    JudgementParameters,
    NoParameters,
    read_parameters,
    validate,
)
from app.routes import feedback_service, json_body, principal, reply
from app.schemas import (
    DoubtfulResult,
    FeedbackRecorded,
    FeedbackReport,
    Judgement,
    JudgementList,
)

bp = Blueprint("feedback", __name__)

_TIED = "Thank you. It is kept with the rank and scores that the result had."
_UNTIED = "Thank you. The answer is not known any more, so it is kept without rank and scores."


@bp.post("/memory/query/feedback")
def give_feedback() -> ResponseReturnValue:
    """Keep what is said of a result, durably."""
    who = principal()
    feedback_service().check_writer(who)  # before anything is read of the body
    read_parameters(NoParameters, request.args)
    parameters = validate(FeedbackParameters, json_body())
    is_tied = feedback_service().give(parameters, who)
    said = _TIED if is_tied else _UNTIED
    body = FeedbackRecorded(query_id=parameters.query_id, is_tied=is_tied, message=said)
    return reply(body, HTTPStatus.CREATED)


@bp.get("/memory/query/feedback")
def report_feedback() -> ResponseReturnValue:
    """Results that are doubtful by what was said of them, or by what has become of them."""
    who = principal()
    parameters = read_parameters(FeedbackReportParameters, request.args)
    rows, cursor = feedback_service().report(parameters, who)
    results = [DoubtfulResult.model_validate(row) for row in rows]
    return reply(FeedbackReport(results=results, next_cursor=cursor))


@bp.get("/memory/query/feedback/judgements")
def list_judgements() -> ResponseReturnValue:
    """What was said of results that are still there, one by one, to measure with."""
    who = principal()
    parameters = read_parameters(JudgementParameters, request.args)
    rows, cursor = feedback_service().judgements(parameters, who)
    judgements = [Judgement.model_validate(row) for row in rows]
    return reply(JudgementList(judgements=judgements, next_cursor=cursor))
