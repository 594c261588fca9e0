"""Which response code a refusal of our own becomes; the remark is the error's text."""

from __future__ import annotations

from broker.errors import (
    ForbiddenError,
    RefusedError,
    StaleSubscriptionError,
    UnavailableError,
    UnknownSubscriptionError,
    UnknownTopicError,
)
from broker.filter.subscription import ExpressionError
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.topics_and_groups import NameRefusedError
from dledger.errors import BusyError, ProposeError
from store.errors import EntryTooLargeError

Refusal = RefusedError | ProposeError | EntryTooLargeError | NameRefusedError | ExpressionError
REFUSALS = (RefusedError, ProposeError, EntryTooLargeError, NameRefusedError, ExpressionError)


_CODES: tuple[tuple[type[Exception], ResponseCode], ...] = (
    (ForbiddenError, ResponseCode.NO_PERMISSION),
    (UnavailableError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (UnknownTopicError, ResponseCode.TOPIC_NOT_EXIST),
    (UnknownSubscriptionError, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    (StaleSubscriptionError, ResponseCode.SUBSCRIPTION_NOT_LATEST),
)


def response_code_of(error: Refusal) -> ResponseCode:
    """Everything that another leader, or this one later, may accept is 14: clients retry it.

    That includes an unknown outcome: RocketMQ's producers send again, as after a timeout. A busy
    broker says 2, so that they do not.
    """
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if isinstance(error, BusyError):
        return ResponseCode.SYSTEM_BUSY
    if isinstance(error, ProposeError):
        return ResponseCode.SERVICE_NOT_AVAILABLE
    if isinstance(error, EntryTooLargeError):
        return ResponseCode.MESSAGE_ILLEGAL
    if isinstance(error, ExpressionError):
        return ResponseCode.SUBSCRIPTION_PARSE_FAILED
    return ResponseCode.SYSTEM_ERROR


def remark_of(error: Refusal) -> str:
    """What is told to the client; RocketMQ's prefix marks what clients may take for overload."""
    return f"[OVERLOAD]{error}" if isinstance(error, BusyError) else str(error)


def refused(error: Refusal) -> RequestError:
    """The error as one that the remoting server answers by itself."""
    return RequestError(response_code_of(error), remark_of(error))
