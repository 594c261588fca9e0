"""A request from a wire to ingest: one message or one batch, and the waiter for the answer."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.group_commit.pending_batch import SendWaiter
from broker.quotas.throttle import Caller
from broker.scheduled.recall_handle import RecallHandle
from broker.topics_and_groups import AUTO_CREATE_TOPIC


class SendOptions(NamedTuple):
    """Settings for few requests: most go to a topic that exists, and are no retries."""

    default_topic: str = AUTO_CREATE_TOPIC
    """The template of the topic where that does not exist."""

    default_queues: int = 4
    """The queues of that topic, at most as many as its template has."""

    times_max: int = -1
    """The attempts of a message to a retry topic; below 0 as its group says."""

    message_group: bytes = b""
    """If the message may go to any queue, those of one group go to the same."""


class SendRequest(NamedTuple):
    """One request: its numbers are in their range, its properties as sent."""

    topic: str
    queue_id: int
    """Below 0 if any queue will do."""

    sys_flag: int
    born_timestamp: int
    """Milliseconds since 1970."""

    flag: int
    reconsume_times: int
    properties: bytes
    """Of a batch: properties that are added to those of each message."""

    options: SendOptions = SendOptions()


class Sender(SendWaiter, Protocol):
    """The submitter of a request, who waits for its answer."""

    queue_id: int
    """Set by ingest: the real queue of the message."""

    recall_handle: RecallHandle | None
    """Set by ingest for a message that waits for a time: by it the sender can take it back."""

    def caller(self) -> Caller:
        """Whose request it is. Asked only where there are quotas."""
