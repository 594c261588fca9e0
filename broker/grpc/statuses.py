"""Errors for gRPC clients: a status with one of RocketMQ's codes.

Only this module turns errors into statuses. Calls and flows raise the errors.
"""

from __future__ import annotations

from collections import Counter

from broker.errors import (
    UNKNOWN,
    AccessDeniedError,
    Answered,
    BodyTooLargeError,
    DeliveryTimeError,
    ForbiddenError,
    IllegalKeysError,
    IllegalMessageError,
    IllegalOffsetError,
    InvisibleTimeError,
    LongTopicNameError,
    MessageTypeError,
    NothingToRecallError,
    PropertiesTooLargeError,
    QuotaExceededError,
    RefusedError,
    TransactionMismatchError,
    UnauthenticatedError,
    UnavailableError,
    UnknownGroupError,
    UnknownQueueError,
    UnknownTopicError,
    UnsupportedFilterError,
    refused,
)
from broker.filter.subscription import ExpressionError
from broker.grpc.protocol.definition_pb2 import Code, Status
from broker.topics_and_groups import IllegalGroupNameError, IllegalTopicNameError
from dledger.errors import BusyError, ProposeError
from store.errors import EntryTooLargeError, StoreError

OK = Status(code=Code.OK, message="OK")
DEFECT = Status(code=Code.INTERNAL_SERVER_ERROR, message="internal error")
"""Of a call that failed by a defect of the broker."""


class BadCallError(RefusedError):
    """An invalid call; ``code`` gives the reason."""

    def __init__(self, code: Code, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class PartlyStoredError(UnavailableError):
    """Some messages of a send may be stored, the others were refused by a leader that went."""

    def __init__(self) -> None:
        super().__init__("some messages may be stored, and the others are not")


DOUBTS = (*UNKNOWN, PartlyStoredError)
"""Errors after which a call may have been carried out, at least in part."""

_CODES: tuple[tuple[type[Exception], Code], ...] = (
    (BusyError, Code.TOO_MANY_REQUESTS),
    # The call may have been carried out. Clients retry after this code, as after a timeout.
    *((doubt, Code.MASTER_PERSISTENCE_TIMEOUT) for doubt in DOUBTS),
    (ProposeError, Code.HA_NOT_AVAILABLE),
    (UnavailableError, Code.HA_NOT_AVAILABLE),
    (UnauthenticatedError, Code.UNAUTHORIZED),
    (AccessDeniedError, Code.FORBIDDEN),
    (ForbiddenError, Code.FORBIDDEN),
    (BodyTooLargeError, Code.MESSAGE_BODY_TOO_LARGE),
    (EntryTooLargeError, Code.PAYLOAD_TOO_LARGE),
    (MessageTypeError, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    (DeliveryTimeError, Code.ILLEGAL_DELIVERY_TIME),
    (PropertiesTooLargeError, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    (IllegalKeysError, Code.ILLEGAL_MESSAGE_KEY),
    (LongTopicNameError, Code.ILLEGAL_TOPIC),
    (IllegalMessageError, Code.BAD_REQUEST),
    (InvisibleTimeError, Code.ILLEGAL_INVISIBLE_TIME),
    (IllegalTopicNameError, Code.ILLEGAL_TOPIC),
    (IllegalGroupNameError, Code.ILLEGAL_CONSUMER_GROUP),
    (UnknownTopicError, Code.TOPIC_NOT_FOUND),
    (UnknownGroupError, Code.CONSUMER_GROUP_NOT_FOUND),
    (UnknownQueueError, Code.NOT_FOUND),
    (IllegalOffsetError, Code.ILLEGAL_OFFSET),
    (TransactionMismatchError, Code.INVALID_TRANSACTION_ID),
    (NothingToRecallError, Code.NOT_FOUND),
    (ExpressionError, Code.ILLEGAL_FILTER_EXPRESSION),
    (UnsupportedFilterError, Code.ILLEGAL_FILTER_EXPRESSION),
    (QuotaExceededError, Code.TOO_MANY_REQUESTS),
    (StoreError, Code.INTERNAL_SERVER_ERROR),
)
"""The first matching row counts; any other error is a bad request."""


def refusal_status(error: Answered, refusals: Counter[str]) -> Status:
    """The status of a call, or of a message, that ended with an error. ``refusals`` counts errors
    by reason."""
    return Status(code=_code_of(error), message=refused(error, refusals))


def _code_of(error: Answered) -> Code:
    if isinstance(error, BadCallError):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), Code.BAD_REQUEST)
