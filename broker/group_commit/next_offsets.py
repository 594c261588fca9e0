"""The queue offsets of the messages that a leader proposes.

They continue from the last entry of this leader, and at first from the applied state. That is
exact: a leader serves only after it has applied everything that earlier leaders committed, and its
own entries are applied in the order proposed.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.group_commit.ports import QueueEnds
from store.message.batch import QueueRun


class NextOffsets:
    """Behind the last message of each queue that this leader has proposed."""

    def __init__(self, applied: QueueEnds) -> None:
        self._applied = applied
        self._next: dict[tuple[str, int], int] = {}

    def end_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message. A follower may have applied less than the
        leader."""
        end = self._next.get((topic, queue_id))
        return self._applied.end_offset(topic, queue_id) if end is None else end

    def take(self, topic: str, queue_id: int, count: int) -> int:
        """Gives offsets to ``count`` messages; returns the first."""
        first = self.end_offset(topic, queue_id)
        self._next[topic, queue_id] = first + count
        return first

    def give_back(self, runs: Iterable[QueueRun]) -> None:
        """The runs that were numbered last are not proposed after all."""
        for run in runs:
            self._next[run.topic, run.queue_id] = run.first_offset

    def clear(self) -> None:
        """A term begins with the applied state."""
        self._next.clear()
