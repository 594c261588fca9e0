"""A request from a wire to ingest: one message or one batch, and the waiter for the answer."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.group_commit.pending_batch import SendWaiter
from broker.quotas.throttle import Caller
from broker.scheduled.recall_handle import RecallHandle
from broker.topics_and_groups import AUTO_CREATE_TOPIC


class SendOptions(NamedTuple):
    """Settings that few requests need: most go to a topic that exists."""

    default_topic: str = AUTO_CREATE_TOPIC
    """The template from which a missing topic is created."""

    default_queues: int = 4
    """The number of queues of a created topic, at most as many as its template has."""

    times_max: int = -1
    """The attempts that a message to a retry topic may have; below 0: as its group says."""

    message_group: bytes = b""
    """The message group. If any queue will do, messages of one group go to the same queue."""


class SendRequest(NamedTuple):
    """One request. The wire has checked the ranges of its numbers; the properties are as sent."""

    topic: str
    queue_id: int
    """Below 0: any queue."""

    sys_flag: int
    born_timestamp: int
    """Milliseconds since 1970."""

    flag: int
    reconsume_times: int
    properties: bytes
    """Of a batch: properties that are added to each message that lacks them."""

    options: SendOptions = SendOptions()


class Sender(SendWaiter, Protocol):
    """The sender of a request, which waits for the answer."""

    queue_id: int
    """Set by ingest: the queue of the message, also while it waits in another."""

    recall_handle: RecallHandle | None
    """Set by ingest for a timed message: the sender can recall the message by it."""

    def caller(self) -> Caller:
        """Who sent the request. Called only where there are quotas."""
