"""The queue offsets of the messages that a leader proposes.

They start from the applied state and continue from the last entry of this leader. That is exact: a
leader serves only after it has applied everything that earlier leaders committed, and its own
entries are applied in the order proposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.group_commit.pending_batch import PendingQueue
from broker.group_commit.ports import QueueEnds
from store.message.batch import QueueRun
from store.message.scheduled_topics import SCHEDULE_TOPIC, with_deliver_times


class NextOffsets:
    """For each queue, the offset behind the last message that this leader has proposed."""

    def __init__(self, applied: QueueEnds) -> None:
        self._applied = applied
        self._next: dict[tuple[str, int], int] = {}

    def end_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message. On a follower it may be behind the leader's."""
        end = self._next.get((topic, queue_id))
        return self._applied.end_offset(topic, queue_id) if end is None else end

    def runs_of(
        self, queues: Mapping[tuple[str, int], PendingQueue], timestamp_ms: int
    ) -> list[QueueRun]:
        """The messages of an entry with their offsets. ``timestamp_ms``: their store time."""
        runs = []
        following = self._next
        for key, queue in queues.items():
            topic, queue_id = key
            messages = queue.messages
            first = following.get(key)
            if first is None:
                first = self._applied.end_offset(topic, queue_id)
            following[key] = first + len(messages)
            if topic == SCHEDULE_TOPIC:
                messages = with_deliver_times(messages, queue_id, timestamp_ms)
            runs.append(QueueRun(topic, queue_id, first, messages))
        return runs

    def give_back(self, runs: Iterable[QueueRun]) -> None:
        """Takes back the offsets of the last runs, which are not proposed after all."""
        for run in runs:
            self._next[run.topic, run.queue_id] = run.first_offset

    def clear(self) -> None:
        """Starts a term from the applied state."""
        self._next.clear()
