"""Errors for RocketMQ's clients: a response code, and the error's text as remark.

Only this module turns errors into answers of the remoting port. Handlers and flows raise the
errors, or get them later from a completion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.errors import (
    ANSWERED,
    NOT_HERE,
    UNKNOWN,
    Answered,
    ForbiddenError,
    IllegalMessageError,
    MissingMessageError,
    NothingToRecallError,
    RecallHandleError,
    StaleSubscriptionError,
    UnavailableError,
    UnknownGroupError,
    UnknownQueueError,
    UnknownSubscriptionError,
    UnknownTopicError,
    refused,
)
from broker.filter.subscription import ExpressionError
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import (
    MISSING,
    OUTCOME,
    OUTCOME_NOT_LEADER,
    OUTCOME_UNKNOWN,
    RequestCode,
    ResponseCode,
)
from broker.remoting.protocol.errors import HANDLER_FAULTS, RequestError
from broker.remoting.protocol.frame import Frame
from dledger.errors import BusyError, ProposeError
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
"""The first matching row counts; any other error is code 1."""

_CODES_OF_REQUESTS: dict[tuple[int, type[Exception]], ResponseCode] = {
    # As RocketMQ, whose pulls are refused with 1 for it.
    (RequestCode.POP_MESSAGE, UnknownQueueError): ResponseCode.INVALID_PARAMETER,
    (RequestCode.NOTIFICATION, UnknownQueueError): ResponseCode.INVALID_PARAMETER,
}
"""By request code and error: these come first."""

HANDLED = (RequestError, *ANSWERED, *HANDLER_FAULTS)
"""What a handler may raise without harm to other requests of its connection."""


def response_code_of(error: Answered, request_code: int = 0) -> ResponseCode:
    """The response code of an error."""
    special = _CODES_OF_REQUESTS.get((request_code, type(error)))
    if special is not None:
        return special
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ResponseCode.SYSTEM_ERROR


def respond_error(connection: Connection, request: Frame, error: Exception) -> None:
    """Answers a request whose handler raised one of :data:`HANDLED`."""
    if isinstance(error, (RequestError, *ANSWERED)):
        respond_refusal(connection, request, error)
    else:
        connection.respond_fault(request, error)


def respond_refusal(connection: Connection, request: Frame, error: Answered | RequestError) -> None:
    """Answers a request that is refused, or forwards it to the leader."""
    forward = connection.forward
    if forward is not None and isinstance(error, NOT_HERE) and forward(connection, request, error):
        return
    refuse(connection, request, error)


def refuse(connection: Connection, request: Frame, error: Answered | RequestError) -> None:
    """Answers a refused request, and counts it. Our own programs learn its outcome too."""
    if isinstance(error, RequestError):
        connection.respond_refused(request, error)
        return
    ext = None
    if isinstance(error, UNKNOWN):
        ext = {OUTCOME: OUTCOME_UNKNOWN}
    elif isinstance(error, NOT_HERE):
        ext = {OUTCOME: OUTCOME_NOT_LEADER}
    elif isinstance(error, MissingMessageError):
        ext = {MISSING: "true"}
    remark = refused(error, connection.refusals)
    if isinstance(error, BusyError):
        remark = f"[OVERLOAD]{remark}"  # RocketMQ's prefix, for which clients look
    connection.respond(request, response_code_of(error, request.code), remark, ext)


def respond_when_done(
    connection: Connection, request: Frame, body: Callable[[], Sequence[bytes]] = tuple
) -> Callable[[Answered | None], None]:
    """A completion that answers the request: with ``body`` as it is then, or with the refusal."""

    def done(error: Answered | None) -> None:
        if error is None:
            connection.respond(request, body=body())
        else:
            respond_refusal(connection, request, error)

    return done
