"""The broker's refusals, in its own words.

The flows raise these and know no wire. Each wire turns them into its answers in one place:
:mod:`broker.remoting.error_responses` and :mod:`broker.http.errors`.
"""

from __future__ import annotations

from dledger.errors import ProposeError
from store.errors import EntryTooLargeError
from store.quoting import shortened


class RefusedError(Exception):
    """Base of all refusals. The text is for the caller. It is one line of bounded length, as many
    repeat a name or a text of the request, which is as long as its sender likes."""

    def __init__(self, what: str) -> None:
        super().__init__(shortened(what))


class IllegalMessageError(RefusedError):
    """A message is not what a message may be."""


class BodyTooLargeError(IllegalMessageError):
    """The body of a message, or of a batch, is longer than the settings allow."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"the body has {size} bytes, at most {size_max} are allowed")


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
    """The topic is not there, and does not come into being by being used."""


class UnknownGroupError(RefusedError):
    """The subscription group is not there, and does not come into being by being used."""


class UnknownQueueError(RefusedError):
    """The topic has no queue of that number."""


class UnknownSubscriptionError(RefusedError):
    """No member of the group that is connected here has said what it wants of the topic."""


class StaleSubscriptionError(RefusedError):
    """The filter of the group for the topic is known in an earlier version only."""


class UnsupportedFilterError(RefusedError):
    """Messages are not filtered in that way here."""


class QuotaExceededError(RefusedError):
    """The replicated state has no room for more of that (:class:`~broker.limits.StateLimits`)."""


class TransactionMismatchError(RefusedError):
    """The named transaction is none of the producer's open ones."""


class UnavailableError(RefusedError):
    """It cannot be done now. Another try may succeed, here or on another node."""


class WrongStateError(UnavailableError):
    """The state of this node is not that of its group, so nothing is told of it."""

    def __init__(self) -> None:
        super().__init__(
            "the state of this broker is not that of its group; it is being taken again from the "
            "log"
        )


Refusal = RefusedError | ProposeError | EntryTooLargeError
REFUSALS = (RefusedError, ProposeError, EntryTooLargeError)
"""All that says no: the broker's own refusals, and those of the layers below."""
