"""The operations of the clients of a run and their answers, in order.

Unknown stays unknown. A send that timed out, or lost its process, may be in the log later, once or
more often, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.client.message import MessageQueue
from store.message.record import MessageRecord

NUMBER_BYTES = 8

Place = tuple[str, int, int]
"""Topic, queue id, offset."""


class Content(NamedTuple):
    """The fields of a message except its body. ``born_ms``: the sender's wall clock."""

    born_ms: int
    flag: int
    tags: str
    keys: str
    properties: Mapping[str, str]


@dataclass(slots=True)
class Sent:
    """One message: its producer, the digest of its body, and its outcome."""

    number: int
    client: str
    body: bytes
    lane: str
    """Sends of one lane wait for each other; empty for no lane."""
    place: Place | None = None
    ended: bool = False
    content: Content | None = None
    """Its fields except the body; ``None`` until they are decided."""
    delay_level: int = 0
    """The delay level; 0 without one, or with a delivery time."""


class Listener:
    """Gets what clients do. A check overrides the methods that it needs."""

    def sent(self, sent: Sent) -> None:
        """A client gave a message to its producer."""

    def stored(self, sent: Sent) -> None:
        """The producer got the answer that the message is stored, and where."""

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """A member of a group got a message."""

    def recalled(self, sent: Sent) -> None:
        """The producer got the answer that the message is recalled."""

    def assigned(self, consumer: str, queue: MessageQueue) -> None:
        """The next delivery of the queue to this consumer may begin anywhere."""


@dataclass(slots=True)
class History:
    """Numbers the messages, and calls the checks."""

    note: Callable[[str, str], None]
    listeners: list[Listener] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    open: dict[int, Sent] = field(default_factory=dict)
    operations: int = 0
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    delivered: int = 0
    recalled: int = 0

    def send(self, client: str, filler: int, lane: str = "") -> Sent:
        """A new message. Its body is a number and ``filler`` bytes."""
        number = len(self.sent)
        self.operations += 1
        body = number.to_bytes(NUMBER_BYTES, "big") + bytes((number * 7 & 0xFF,)) * filler
        sent = Sent(number, client, body, lane)
        self.sent.append(sent)
        self.open[number] = sent
        for listener in self.all_listeners:
            listener.sent(sent)
        return sent

    @property
    def all_listeners(self) -> Sequence[Listener]:
        """The listeners of all broker groups."""
        return self.listeners

    def listeners_of(self, _queue: MessageQueue) -> Sequence[Listener]:
        """The listeners for a queue of this broker group."""
        return self.listeners

    def acknowledge(self, sent: Sent, queue: MessageQueue, offset: int) -> None:
        """The client got the answer that the message is stored there."""
        self._end(sent)
        self.acknowledged += 1
        sent.place = (queue.topic, queue.queue_id, offset)
        self.note(sent.client, f"message {sent.number} is stored as {sent.place}")
        for listener in self.listeners_of(queue):
            listener.stored(sent)

    def recall(self, sent: Sent, queue: MessageQueue) -> None:
        """The client got the answer that the message is recalled."""
        self.recalled += 1
        self.note(sent.client, f"message {sent.number} is recalled")
        for listener in self.listeners_of(queue):
            listener.recalled(sent)

    def reply(self, sent: Sent) -> None:
        """The client got an answer without the place of the message."""
        self._end(sent)
        self.acknowledged += 1
        self.note(sent.client, f"message {sent.number} is answered")

    def fail(self, sent: Sent, why: str, *, unknown: bool) -> None:
        """The client got an error, or no answer."""
        self._end(sent)
        if unknown:
            self.unknown += 1
        else:
            self.refused += 1
        self.note(sent.client, f"message {sent.number}: {why}")

    def deliver(
        self, consumer: str, queue: MessageQueue, offset: int, record: MessageRecord
    ) -> None:
        """A consumer got a message."""
        self.delivered += 1
        self.operations += 1
        place = (queue.topic, queue.queue_id, offset)
        for listener in self.listeners_of(queue):
            listener.delivered(consumer, place, record)

    def assign(self, consumer: str, queue: MessageQueue) -> None:
        """A consumer begins with a queue, again or for the first time."""
        for listener in self.listeners_of(queue):
            listener.assigned(consumer, queue)

    def client_ended(self, client: str) -> None:
        """The client's process died, so its sends are unknown."""
        for sent in [sent for sent in self.open.values() if sent.client == client]:
            self.fail(sent, "its process has died", unknown=True)

    def _end(self, sent: Sent) -> None:
        sent.ended = True
        del self.open[sent.number]


def number_of(body: bytes | memoryview) -> int:
    """The number of the message with this body."""
    return int.from_bytes(body[:NUMBER_BYTES], "big")
