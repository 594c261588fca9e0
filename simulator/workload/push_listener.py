"""Events of the consumers of ``workload/push_consumer.py``, for checks."""

from __future__ import annotations

from dataclasses import dataclass

from broker.client.message import MessageQueue
from simulator.workload.history import Place
from store.message.record import MessageRecord


@dataclass(frozen=True, slots=True)
class LockRequest:
    """A request for a lock: when, and at which leader (address and term)."""

    at: float
    address: str
    term: int


class PushListener:
    """Hears what the members of a group do. Each method raises its violation; here there is
    none."""

    def given(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """A broker gave a message."""

    def answered(self, consumer: str, address: str, place: Place, asked_at: float) -> None:
        """A pull that was asked then, in virtual seconds, is answered; the message there is the
        first of the answer."""

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """The program got a message."""

    def fails(self, _record: MessageRecord) -> bool:
        """Whether the program cannot consume it."""
        return False

    def sends_back(self, record: MessageRecord) -> None:
        """A message is about to be sent back."""

    def sent_back(self, record: MessageRecord) -> None:
        """A broker confirmed that the message is stored for the next attempt."""

    def is_gone(self, _record: MessageRecord) -> bool:
        """Whether retention may have removed it."""
        return False

    def asks(self, _consumer: str, _queue: MessageQueue, address: str) -> LockRequest:
        """A lock is about to be asked for."""
        return LockRequest(0.0, address, -1)

    def locked(
        self, _consumer: str, _queue: MessageQueue, _asked: LockRequest
    ) -> LockRequest | None:
        """A lock is granted; ``None`` if it is unknown by which leader."""
        return None

    def unlocks(self, consumer: str, queue: MessageQueue) -> None:
        """A lock is about to be released."""

    def takes(self, consumer: str, queue: MessageQueue) -> None:
        """The consumer begins with a queue, at the group's offset."""

    def begins(
        self, consumer: str, queue: MessageQueue, offset: int, lock: LockRequest | None
    ) -> None:
        """The program begins with a message of a locked queue."""

    def ends(self, consumer: str, queue: MessageQueue) -> None:
        """The program is done with the message."""
