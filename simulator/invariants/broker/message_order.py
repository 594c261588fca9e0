"""Order (docs/safety.md, promise 3): of a producer that sends one by one, and of a consumer.

A consumer's queue never goes back. It acknowledges each message at once, so nothing comes again in
its life, not even after the queue went to another member and returned.
"""

from __future__ import annotations

from simulator.engine.violation import Violation
from simulator.workload.history import Listener, Place, Sent
from store.message.record import MessageRecord


class Ordering(Listener):
    """Remembers the last offset of each lane and each consumer in each queue."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, str, int], int] = {}
        self._given: dict[tuple[str, str, int], int] = {}

    def stored(self, sent: Sent) -> None:
        """See :class:`Listener`."""
        if not sent.lane or sent.place is None:
            return
        topic, queue_id, offset = sent.place
        before = self._sent.get((sent.lane, topic, queue_id), -1)
        if offset <= before:
            raise Violation(
                f"message {sent.number} of {sent.lane} is stored as {sent.place}, "
                f"an earlier one at {before}"
            )
        self._sent[sent.lane, topic, queue_id] = offset

    def delivered(self, consumer: str, place: Place, _record: MessageRecord) -> None:
        """See :class:`Listener`."""
        topic, queue_id, offset = place
        before = self._given.get((consumer, topic, queue_id), -1)
        if offset <= before:
            raise Violation(f"{consumer} is given {place} after offset {before}")
        self._given[consumer, topic, queue_id] = offset
