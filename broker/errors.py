"""The broker's refusals, in its own words.

The flows raise these and know no wire. Each wire turns them into its answers in one place:
:mod:`broker.remoting.error_responses` and :mod:`broker.http.errors`.
"""

from __future__ import annotations

import re

from dledger.errors import NotLeaderError, NotServingError, ProposeError, TransferringError
from store.errors import EntryTooLargeError
from store.quoting import shortened


class RefusedError(Exception):
    """Base of all refusals. The text is for the caller. It is one line of bounded length, because
    many repeat a name or a text of the request, which may be of any length."""

    def __init__(self, what: str) -> None:
        super().__init__(shortened(what))


class IllegalMessageError(RefusedError):
    """A message is not what a message may be."""


class BodyTooLargeError(IllegalMessageError):
    """The body of a message, or of a batch, is longer than the settings allow."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"the body has {size} bytes, at most {size_max} are allowed")


class MessageTypeError(IllegalMessageError):
    """A message is not of the type that its topic takes."""


class ForbiddenError(RefusedError):
    """The topic may not be written or read, or the group may not consume."""


class AccessDeniedError(RefusedError):
    """The caller is not known, or may not do that. RocketMQ's name for it is what clients, and
    those who read their logs, look for."""

    def __init__(self, why: str) -> None:
        super().__init__(f"AclException: {why}")


class UnauthenticatedError(AccessDeniedError):
    """It is not known who asks."""


class UnknownTopicError(RefusedError):
    """The topic does not exist, and use does not create it."""


class UnknownGroupError(RefusedError):
    """The subscription group does not exist, and use does not create it."""


class UnknownQueueError(RefusedError):
    """The topic has no queue of that number."""


class UnknownSubscriptionError(RefusedError):
    """No connected member of the group has subscribed to the topic."""


class StaleSubscriptionError(RefusedError):
    """The filter of the group for the topic is known in an earlier version only."""


class InvisibleTimeError(RefusedError):
    """A message cannot be invisible for so long, or so short a time."""

    def __init__(self, invisible_ms: int, least_ms: int, most_ms: int) -> None:
        super().__init__(
            f"the invisible time {invisible_ms} ms is not from {least_ms} to {most_ms} ms"
        )


class UnsupportedFilterError(RefusedError):
    """Messages are not filtered in that way here."""


class QuotaExceededError(RefusedError):
    """The replicated state has no room for more of that (:class:`~broker.limits.StateLimits`)."""


class TransactionMismatchError(RefusedError):
    """The named transaction is none of the producer's open ones."""


class RecallHandleError(RefusedError):
    """What should name a message that waits is no recall handle, or one of another topic."""


class NothingToRecallError(RefusedError):
    """The message to be recalled does not wait: it has been delivered, or there is none."""


class UnavailableError(RefusedError):
    """It is impossible now. Another try may succeed, here or on another node."""


class WrongStateError(UnavailableError):
    """The state of this node is not that of its group, so it gives no answer from it."""

    def __init__(self) -> None:
        super().__init__(
            "the state of this broker is not that of its group; it is being taken again from the "
            "log"
        )


def reason_of(error: Exception) -> str:
    """The word under which a refusal is counted: the name of its class, ``not_leader``."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


Refusal = RefusedError | ProposeError | EntryTooLargeError
REFUSALS = (RefusedError, ProposeError, EntryTooLargeError)
"""All refusals: the broker's own, and those of the layers below."""

NOT_HERE = (NotLeaderError, NotServingError, TransferringError)
"""Refusals that say that nothing was done: the leader can do it, now or in a moment."""
