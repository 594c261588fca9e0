"""A group skips no message: what it commits was delivered to one of its members (bug D8).

Only messages that retention has removed may stay undelivered.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from broker.state.commands import CommitOffset, Expire, Trim, decode_commands
from simulator.engine.violation import Violation
from simulator.invariants.broker.batch_invariant import BatchInvariant
from simulator.workload.history import Listener, Place
from store.log.entry import Entry
from store.message.batch import QUEUE_ROW, Batch
from store.message.record import MessageRecord

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class NothingSkipped(BatchInvariant, Listener):
    """Follows how far the members of one group have got without a gap."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._next: dict[tuple[str, int], int] = {}
        self._beyond: dict[tuple[str, int], set[int]] = {}
        self._positions: dict[tuple[str, int], list[int]] = {}

    def delivered(self, _consumer: str, place: Place, _record: MessageRecord) -> None:
        """See :class:`Listener`."""
        topic, queue_id, offset = place
        beyond = self._beyond.setdefault((topic, queue_id), set())
        beyond.add(offset)
        self._advance((topic, queue_id))

    def reaches(self, topic: str, queue_id: int, end: int) -> bool:
        """Whether all messages before ``end`` were delivered, or removed."""
        return self._next.get((topic, queue_id), 0) >= end

    def committed_batch(self, host: Host, _entry: Entry, batch: Batch) -> None:
        """See :class:`BatchInvariant`."""
        for run in batch.runs:
            rows = batch.rows_of(run)
            positions = self._positions.setdefault((run.topic, run.queue_id), [])
            positions += [position for position, _size, _code in QUEUE_ROW.iter_unpack(rows)]
        for command in decode_commands(batch.commands):
            match command:
                case CommitOffset(self._group, topic, queue_id, offset):
                    if not self.reaches(topic, queue_id, offset):
                        raise Violation(
                            f"{self._group} commits {offset} in {topic}/{queue_id}, and "
                            f"{self._next.get((topic, queue_id), 0)} was delivered to nobody"
                        )
                case Expire(position):
                    self._expired(host, position)
                case Trim(topic, queue_id, offset):
                    self._removed(host, (topic, queue_id), offset)
                case _:
                    pass

    def _expired(self, host: Host, position: int) -> None:
        """The log below that position has expired, in each queue."""
        host.coverage_mark("log expired")
        for queue, positions in self._positions.items():
            self._removed(host, queue, bisect_left(positions, position))

    def _removed(self, host: Host, queue: tuple[str, int], first: int) -> None:
        """The queue begins at that offset, or behind it."""
        if first > self._next.get(queue, 0):
            host.coverage_mark("message removed before it was delivered")
            self._next[queue] = first
            self._advance(queue)

    def _advance(self, queue: tuple[str, int]) -> None:
        beyond = self._beyond.get(queue, set())
        offset = self._next.get(queue, 0)
        while offset in beyond:
            beyond.discard(offset)
            offset += 1
        self._next[queue] = offset
