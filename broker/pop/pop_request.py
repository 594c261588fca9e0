"""The requests of POP, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from broker.delivery.message_filter import MessageFilter
from broker.quotas.throttle import NOBODY, Caller
from store.io.filesystem import Bytes

EVERYTHING = MessageFilter()


class PopRequest(NamedTuple):
    """A request to receive messages."""

    group: str
    topic: str
    queue: int | None
    """None: any queue of the topic on this broker."""
    max_messages: int
    invisible_ms: int
    """The invisible time, from 1 to ``CONSUME.pop_invisible_ms_max``."""
    deadline_ms: int = 0
    """Until when the request may wait for a message, by the event loop's clock (``loop.time() *
    1000``). 0: it is answered at once."""
    filter: MessageFilter = EVERYTHING
    fifo: bool = False
    """FIFO order: at most one message of a message group (the property ``__SHARDINGKEY``) is
    delivered at a time."""
    attempt_id: str = ""
    """A repeated request with the same id gets the same messages while they are invisible, and no
    new ones. Empty: no request is a repeated one."""
    client_id: str = ""
    auto_renew: bool = False
    """The leader renews the invisible time while the client works
    (:mod:`broker.pop.auto_renewal`)."""
    caller: Caller = NOBODY
    """The caller whose quotas count."""
    retries: bool = False
    """Whether the messages of the group's retry topic that were first sent to the topic come too,
    from any queue. Clients of RocketMQ 4 pull that topic themselves."""
    from_end: bool = False
    """A group without an offset in the queue begins at its end; otherwise at its first message."""
    size_of: Callable[[Bytes], int] = len
    """The bytes that a record takes in the answer."""


class PopStatus(Enum):
    """How a request ended."""

    FOUND = "FOUND"
    NOTHING = "NOTHING"
    FULL = "FULL"
    """The group has as many deliveries as allowed (``STATE.pop_queue_deliveries_max``)."""


class PoppedMessage(NamedTuple):
    """One delivery of a message. Times are ms of the store clock."""

    record: Bytes
    """The record as in the log."""
    topic: str
    """The topic of the request, or the group's retry topic."""
    queue: int
    offset: int
    receipt_handle: str
    delivery_attempt: int
    """How often the group got it (:func:`~broker.retry.attempts.attempts`): 1 for the first
    time."""
    delivery_number: int
    """How often it was received from this queue."""
    delivered_ms: int
    invisible_until_ms: int


class PopResult(NamedTuple):
    """The answer to a :class:`PopRequest`. ``rest``: the number of messages behind the received
    ones, in the queues that were looked at."""

    status: PopStatus
    messages: tuple[PoppedMessage, ...] = ()
    rest: int = 0


class ReceiptStatus(Enum):
    """The outcome for a receipt handle."""

    OK = "OK"
    EXPIRED = "EXPIRED"
    """Its delivery has ended: it is acknowledged, visible again, or has another handle."""
    INVALID = "INVALID"
    """It is not a receipt handle of this broker for that group and topic."""


class ReceiptResult(NamedTuple):
    """The answer for one handle; ``receipt_handle`` is the new one, if there is one."""

    status: ReceiptStatus
    receipt_handle: str = ""
    invisible_until_ms: int = 0
