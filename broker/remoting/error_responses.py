"""Refusals for RocketMQ's clients: a response code, and the error's text as remark.

Only this module turns the broker's own errors into answers of the remoting port. Handlers and flows
raise the errors, or get them later from a completion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.errors import (
    NOT_HERE,
    ForbiddenError,
    IllegalMessageError,
    NothingToRecallError,
    RecallHandleError,
    Refusal,
    StaleSubscriptionError,
    UnavailableError,
    UnknownGroupError,
    UnknownSubscriptionError,
    UnknownTopicError,
    reason_of,
)
from broker.filter.subscription import ExpressionError
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import (
    OUTCOME,
    OUTCOME_NOT_LEADER,
    OUTCOME_UNKNOWN,
    ResponseCode,
)
from broker.remoting.protocol.frame import Frame
from dledger.errors import (
    BusyError,
    OutcomeUnknownError,
    ProposeError,
)
from store.errors import EntryTooLargeError

_CODES: tuple[tuple[type[Exception], ResponseCode], ...] = (
    # RocketMQ's producers do not retry after 2, but do after 14. So everything that another leader
    # may take, or this one later, is 14, and so is an unknown outcome, as after a timeout.
    (BusyError, ResponseCode.SYSTEM_BUSY),
    (ProposeError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (UnavailableError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (EntryTooLargeError, ResponseCode.MESSAGE_ILLEGAL),
    (IllegalMessageError, ResponseCode.MESSAGE_ILLEGAL),
    (ForbiddenError, ResponseCode.NO_PERMISSION),
    (UnknownTopicError, ResponseCode.TOPIC_NOT_EXIST),
    (UnknownSubscriptionError, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    (StaleSubscriptionError, ResponseCode.SUBSCRIPTION_NOT_LATEST),
    (UnknownGroupError, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    (ExpressionError, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    (RecallHandleError, ResponseCode.ILLEGAL_OPERATION),
    (NothingToRecallError, ResponseCode.ILLEGAL_OPERATION),
)
"""The first matching row counts; any other refusal is code 1."""


def response_code_of(error: Refusal) -> ResponseCode:
    """The response code of a refusal."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ResponseCode.SYSTEM_ERROR


def remark_of(error: Refusal) -> str:
    """The text for the client. RocketMQ's prefix marks the overload errors, because clients look
    for it."""
    return f"[OVERLOAD]{error}" if isinstance(error, BusyError) else str(error)


def respond_refusal(connection: Connection, request: Frame, error: Refusal) -> None:
    """Answers a request that is refused, or forwards it to the leader."""
    forward = connection.forward
    if forward is not None and isinstance(error, NOT_HERE) and forward(connection, request, error):
        return
    refuse(connection, request, error)


def refuse(connection: Connection, request: Frame, error: Refusal) -> None:
    """Answers a refused request. Our own programs learn its outcome too."""
    connection.refusals[reason_of(error)] += 1
    ext = None
    if isinstance(error, OutcomeUnknownError):
        ext = {OUTCOME: OUTCOME_UNKNOWN}
    elif isinstance(error, NOT_HERE):
        ext = {OUTCOME: OUTCOME_NOT_LEADER}
    connection.respond(request, response_code_of(error), remark_of(error), ext)


def respond_when_done(
    connection: Connection, request: Frame, body: Callable[[], Sequence[bytes]] = tuple
) -> Callable[[Refusal | None], None]:
    """A completion that answers the request: with ``body`` as it is then, or with the refusal."""

    def done(error: Refusal | None) -> None:
        if error is None:
            connection.respond(request, body=body())
        else:
            respond_refusal(connection, request, error)

    return done
