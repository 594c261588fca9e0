"""The broker's own refusals.

The flows raise these errors and know no wire. Each wire makes answers of them in one place:
:mod:`broker.remoting.error_responses`, :mod:`broker.http.errors` and :mod:`broker.grpc.statuses`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TypeAlias

from dledger.errors import (
    NotLeaderError,
    NotServingError,
    OutcomeUnknownError,
    ProposeError,
    TransferringError,
)
from store.errors import EntryTooLargeError, OutOfRangeError, StoreError
from store.quoting import FROM_OUTSIDE, shortened

log = logging.getLogger(__name__)


class RefusedError(Exception):
    """Base of all refusals. The text is for the caller. It is cut to one line of bounded length,
    because it may repeat a name of the request, which may be of any length."""

    def __init__(self, reason: str) -> None:
        super().__init__(shortened(reason))


class IllegalMessageError(RefusedError):
    """A message breaks a rule for messages."""


class BodyTooLargeError(IllegalMessageError):
    """The body of a message, or of a batch, is longer than the settings allow."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"the body has {size} bytes, at most {size_max} are allowed")


class DeliveryTimeError(IllegalMessageError):
    """No message can be delivered at that time, or at no such delay level."""


class PropertiesTooLargeError(IllegalMessageError):
    """The properties of a message have more bytes than a record has room for."""


class IllegalKeysError(IllegalMessageError):
    """A message has too many keys, or one that is too long."""


class LongTopicNameError(IllegalMessageError):
    """No record can hold the name of the message's topic."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"the topic name has {size} characters, at most {size_max} are allowed")


class MessageTypeError(IllegalMessageError):
    """The topic does not take messages of this type."""


class ForbiddenError(RefusedError):
    """The topic may not be written or read, or the group may not consume."""


class AccessDeniedError(RefusedError):
    """The caller is unknown, or lacks the permission. The text starts with RocketMQ's name for it,
    because clients and readers of logs look for that."""

    def __init__(self, why: str) -> None:
        super().__init__(f"AclException: {why}")


class UnauthenticatedError(AccessDeniedError):
    """The caller is unknown."""


class UnknownTopicError(RefusedError):
    """The topic does not exist, and is not created on first use."""


def unknown_topic(name: str) -> UnknownTopicError:
    """The refusal in RocketMQ's words."""
    return UnknownTopicError(f"topic[{name}] not exist, apply first please!")


class UnknownGroupError(RefusedError):
    """The subscription group does not exist, and is not created on first use."""


class UnknownQueueError(RefusedError):
    """The topic has no queue of that number."""


class IllegalOffsetError(RefusedError):
    """The offset lies behind the end of its queue."""


class MissingMessageError(RefusedError):
    """The log certainly holds no message at that position."""

    def __init__(self, position: int, error: OutOfRangeError) -> None:
        super().__init__(f"can not find message by the offset {position}: {error}")


class UnknownSubscriptionError(RefusedError):
    """No connected member of the group has subscribed to the topic."""


class StaleSubscriptionError(RefusedError):
    """The broker knows only an older version of the group's subscription to the topic."""


class InvisibleTimeError(RefusedError):
    """The invisible time is too short or too long."""

    def __init__(self, invisible_ms: int, least_ms: int, most_ms: int) -> None:
        super().__init__(
            f"the invisible time {invisible_ms} ms is not from {least_ms} to {most_ms} ms"
        )


class UnsupportedFilterError(RefusedError):
    """The broker does not support this filter."""


class QuotaExceededError(RefusedError):
    """A limit of the replicated state is reached (:class:`~broker.limits.StateLimits`)."""


class TransactionMismatchError(RefusedError):
    """The producer has no open transaction of that name."""


class RecallHandleError(RefusedError):
    """The recall handle is not valid, or is one of another topic."""


class NothingToRecallError(RefusedError):
    """The message to recall is not waiting: it was delivered, or never existed."""


class UnavailableError(RefusedError):
    """The request is impossible now. A retry may succeed, here or on another node."""


class NoAnswerError(UnavailableError):
    """The leader did not answer a forwarded request, which may have been carried out."""

    def __init__(self, why: object) -> None:
        super().__init__(f"the leader did not answer, and may have done it: {why}")


class WrongStateError(UnavailableError):
    """The state of this node differs from its group's, so the node gives no answer from it."""

    def __init__(self) -> None:
        super().__init__(
            "the state of this broker differs from its group's; it is being rebuilt from the log"
        )


def unavailable(what: str, fault: StoreError) -> UnavailableError:
    """The refusal of a request for which data of this node cannot be read now."""
    error = UnavailableError(f"{what}: {fault.told}")
    error.__cause__ = fault
    return error


def refused(error: Answered, refusals: Counter[str]) -> str:
    """Counts a refusal, and returns its text for the client. The log gets what the client is not
    told."""
    refusals[reason_of(error)] += 1
    fault = error if isinstance(error, StoreError) else error.__cause__
    if isinstance(fault, StoreError) and fault.told != str(fault):
        log.warning("a request is refused: %s", fault, extra=FROM_OUTSIDE)
    return shortened(error.told if isinstance(error, StoreError) else error)


def reason_of(error: Exception) -> str:
    """The reason under which a refusal is counted: its class name, such as ``not_leader``."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


Refusal = RefusedError | ProposeError | EntryTooLargeError
REFUSALS = (RefusedError, ProposeError, EntryTooLargeError)
"""All refusals: the broker's own, and those of the layers below."""

Answered: TypeAlias = RefusedError | ProposeError | StoreError
ANSWERED = (RefusedError, ProposeError, StoreError)
"""What every wire answers: refusals, and that this node cannot read its data."""

UNKNOWN = (OutcomeUnknownError, NoAnswerError)
"""Errors after which the request may have been carried out."""

NOT_HERE = (NotLeaderError, NotServingError, TransferringError)
"""Refusals that changed nothing: the leader can serve the request, now or in a moment."""
