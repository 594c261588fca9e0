"""Refusals for gRPC clients: a status with one of RocketMQ's codes.

Only this module turns the broker's own errors into statuses. Calls and flows raise the errors.
"""

from __future__ import annotations

from broker.errors import (
    AccessDeniedError,
    BodyTooLargeError,
    ForbiddenError,
    IllegalMessageError,
    InvisibleTimeError,
    LongTopicNameError,
    MessageTypeError,
    NothingToRecallError,
    QuotaExceededError,
    RefusedError,
    TransactionMismatchError,
    UnauthenticatedError,
    UnavailableError,
    UnknownGroupError,
    UnknownQueueError,
    UnknownTopicError,
    UnsupportedFilterError,
)
from broker.filter.subscription import ExpressionError
from broker.grpc.protocol.definition_pb2 import Code, Status
from broker.topics_and_groups import IllegalGroupNameError, IllegalTopicNameError
from dledger.errors import BusyError, OutcomeUnknownError, ProposeError
from store.errors import EntryTooLargeError, StoreError
from store.quoting import shortened

OK = Status(code=Code.OK, message="OK")


class BadCallError(RefusedError):
    """An invalid call; ``code`` gives the reason."""

    def __init__(self, code: Code, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class NoAnswerError(BadCallError):
    """The leader did not answer a forwarded call, which may have been carried out."""

    def __init__(self, why: object) -> None:
        super().__init__(Code.MASTER_PERSISTENCE_TIMEOUT, f"the leader did not answer: {why}")


_CODES: tuple[tuple[type[Exception], Code], ...] = (
    (BusyError, Code.TOO_MANY_REQUESTS),
    # The call may have been carried out. Clients retry after this code, as after a timeout.
    (OutcomeUnknownError, Code.MASTER_PERSISTENCE_TIMEOUT),
    (ProposeError, Code.HA_NOT_AVAILABLE),
    (UnavailableError, Code.HA_NOT_AVAILABLE),
    (UnauthenticatedError, Code.UNAUTHORIZED),
    (AccessDeniedError, Code.FORBIDDEN),
    (ForbiddenError, Code.FORBIDDEN),
    (BodyTooLargeError, Code.MESSAGE_BODY_TOO_LARGE),
    (EntryTooLargeError, Code.PAYLOAD_TOO_LARGE),
    (MessageTypeError, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (LongTopicNameError, Code.ILLEGAL_TOPIC),
    (IllegalMessageError, Code.BAD_REQUEST),
    (InvisibleTimeError, Code.ILLEGAL_INVISIBLE_TIME),
    (IllegalTopicNameError, Code.ILLEGAL_TOPIC),
    (IllegalGroupNameError, Code.ILLEGAL_CONSUMER_GROUP),
    (UnknownTopicError, Code.TOPIC_NOT_FOUND),
    (UnknownGroupError, Code.CONSUMER_GROUP_NOT_FOUND),
    (UnknownQueueError, Code.NOT_FOUND),
    (TransactionMismatchError, Code.INVALID_TRANSACTION_ID),
    (NothingToRecallError, Code.NOT_FOUND),
    (ExpressionError, Code.ILLEGAL_FILTER_EXPRESSION),
    (UnsupportedFilterError, Code.ILLEGAL_FILTER_EXPRESSION),
    (QuotaExceededError, Code.TOO_MANY_REQUESTS),
    (StoreError, Code.INTERNAL_SERVER_ERROR),
)
"""The first matching row counts; any other refusal is a bad request."""

ANSWERED = (RefusedError, ProposeError, EntryTooLargeError, StoreError)
"""Errors with which a call may end."""


def status_of(error: Exception) -> Status:
    """The status of a call that ended with one of :data:`ANSWERED`."""
    return Status(code=_code_of(error), message=shortened(error))


def _code_of(error: Exception) -> Code:
    if isinstance(error, BadCallError):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), Code.BAD_REQUEST)
