"""No message is skipped by a group: what it commits was delivered to one of its members (bug D8).

Only what retention has removed may never be delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.commands import CommitOffset, Expire, decode_commands
from simulator.brokerhost import BrokerHost
from simulator.invariants.base import Invariant
from simulator.violation import Violation
from simulator.workload.history import Listener, Place
from store.batch import decode_batch
from store.entry import Entry, EntryKind
from store.record import MessageRecord

if TYPE_CHECKING:
    from simulator.host import Host


class NothingSkipped(Invariant, Listener):
    """Follows how far the members of one group have got without a gap."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._next: dict[tuple[str, int], int] = {}
        self._beyond: dict[tuple[str, int], set[int]] = {}
        self._last_index = -1

    def delivered(self, _consumer: str, place: Place, _record: MessageRecord) -> None:
        """See :class:`Listener`."""
        topic, queue_id, offset = place
        beyond = self._beyond.setdefault((topic, queue_id), set())
        beyond.add(offset)
        self._advance((topic, queue_id))

    def reaches(self, topic: str, queue_id: int, end: int) -> bool:
        """Whether all messages before ``end`` were delivered, or removed."""
        return self._next.get((topic, queue_id), 0) >= end

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        if entry.index <= self._last_index:
            return
        self._last_index = entry.index
        if entry.kind is not EntryKind.DATA:
            return
        commands = decode_batch(entry.body).commands
        if not commands:
            return
        for command in decode_commands(commands):
            match command:
                case CommitOffset(self._group, topic, queue_id, offset):
                    if not self.reaches(topic, queue_id, offset):
                        raise Violation(
                            f"{self._group} commits {offset} in {topic}/{queue_id}, and "
                            f"{self._next.get((topic, queue_id), 0)} was delivered to nobody"
                        )
                case Expire():
                    self._expired(host)
                case _:
                    pass

    def _expired(self, host: Host) -> None:
        assert isinstance(host, BrokerHost)  # noqa: S101 - others know no such command
        host.mark("log expired")
        for topic, queue_id, first, _end in host.watched.queue_lengths():
            queue = (topic, queue_id)
            if first > self._next.get(queue, 0):
                host.mark("message removed before it was delivered")
                self._next[queue] = first
                self._advance(queue)

    def _advance(self, queue: tuple[str, int]) -> None:
        beyond = self._beyond.get(queue, set())
        offset = self._next.get(queue, 0)
        while offset in beyond:
            beyond.discard(offset)
            offset += 1
        self._next[queue] = offset
