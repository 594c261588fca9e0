"""What is asked of POP, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from broker.delivery.message_filter import MessageFilter
from broker.quotas.throttle import NOBODY, Caller
from store.io.filesystem import Bytes

EVERYTHING = MessageFilter()


@dataclass(frozen=True, slots=True)
class PopRequest:
    """A request for messages that nobody else of the group has now."""

    group: str
    topic: str
    queue: int | None
    """None: any queue of the topic on this broker."""
    max_messages: int
    invisible_ms: int
    """How long nobody else gets the messages, from 1 to ``CONSUME.pop_invisible_ms_max``."""
    deadline_ms: int = 0
    """By the event loop's clock (``loop.time() * 1000``): until then the request may wait for a
    message. 0: it is answered at once."""
    filter: MessageFilter = EVERYTHING
    fifo: bool = False
    """At most one message of a message group (the property ``__SHARDINGKEY``) is out at a time."""
    attempt_id: str = ""
    """The same id, asked again, gets the same messages, and no new ones, while they are invisible.
    Empty: each request is another one."""
    client_id: str = ""
    auto_renew: bool = False
    """The leader prolongs the invisible time while the client works
    (:mod:`broker.pop.auto_renewal`)."""
    caller: Caller = NOBODY
    """Whose quotas count."""
    from_end: bool = False
    """A group that has no offset in the queue yet begins behind its newest message. Otherwise it
    begins at the first message."""


class PopStatus(Enum):
    """How a request ended."""

    FOUND = "FOUND"
    NOTHING = "NOTHING"
    FULL = "FULL"
    """As many messages are out as may be (``STATE.pop_queue_deliveries_max``)."""


@dataclass(frozen=True, slots=True)
class PoppedMessage:
    """One delivery of a message. Times are ms of the store clock."""

    record: Bytes
    """As the log has it."""
    queue: int
    offset: int
    receipt_handle: str
    delivery_attempt: int
    """1 for the first."""
    delivered_ms: int
    invisible_until_ms: int


@dataclass(frozen=True, slots=True)
class PopResult:
    """The answer to a :class:`PopRequest`. ``rest``: messages that are stored behind the received
    ones, in the queues that were looked at."""

    status: PopStatus
    messages: tuple[PoppedMessage, ...] = ()
    rest: int = 0


class ReceiptStatus(Enum):
    """What became of a receipt handle."""

    OK = "OK"
    EXPIRED = "EXPIRED"
    """Its delivery is over: acknowledged, visible again, or given another handle."""
    INVALID = "INVALID"
    """It is no receipt handle of this broker for that group and topic."""


@dataclass(frozen=True, slots=True)
class ReceiptResult:
    """The answer for one handle; ``receipt_handle`` is the new one where there is one."""

    status: ReceiptStatus
    receipt_handle: str = ""
    invisible_until_ms: int = 0
