"""A query by key, position or time returns everything in the log that matches, and nothing else.

Any broker may be asked. It must know what it had applied at that time, and may know what was
committed since. It need not know what retention may have removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.state.commands import Expire, decode_commands
from simulator.engine.violation import Violation
from simulator.faults.derived_file_damage import KEYS
from simulator.invariants.broker.batch_invariant import BatchInvariant, messages_of
from simulator.workload.message_lookup import keys_of
from store.log.entry import Entry
from store.message.batch import Batch
from store.message.record import MessageRecord

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class Known(NamedTuple):
    """A record in the log, its bytes, and the entry that holds it."""

    record: MessageRecord
    data: bytes
    entry_index: int


class MessageLookups(BatchInvariant):
    """Follows the messages of some topics."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.by_position: dict[int, Known] = {}
        self.queues: dict[tuple[str, int], list[Known]] = {}
        self._by_key: dict[tuple[str, str], list[Known]] = {}
        self._topics = topics
        self._applied: dict[str, int] = {}
        self._hosts: dict[str, Host] = {}
        self._expired_position = 0

    def restored(self, host: Host, index: int, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        self._applied[host.addresses[1]] = index
        self._hosts[host.addresses[1]] = host

    def applies(self, host: Host, entry: Entry, digest: bytes) -> None:
        """See :class:`Invariant`."""
        self._applied[host.addresses[1]] = entry.index
        super().applies(host, entry, digest)

    def committed_batch(self, _host: Host, entry: Entry, batch: Batch) -> None:
        """See :class:`BatchInvariant`."""
        for message in messages_of(entry, batch, self._topics):
            self._add(Known(message.record, message.data, entry.index))
        for command in decode_commands(batch.commands):
            if isinstance(command, Expire):
                self._expired_position = max(self._expired_position, command.position)

    def _add(self, known: Known) -> None:
        record = known.record
        self.by_position[record.position] = known
        self.queues.setdefault((record.topic, record.queue_id), []).append(known)
        for key in keys_of(record):
            self._by_key.setdefault((record.topic, key), []).append(known)

    def committed(self) -> Sequence[MessageRecord]:
        """All records, in the order of the log."""
        return [known.record for known in self.by_position.values()]

    def applied(self, address: str) -> int:
        """The entry up to which the broker there has applied the log."""
        return self._applied.get(address, -1)

    def indexed(self, address: str) -> int:
        """The entry up to which it has all keys. While rows of its key index may be corrupt, a miss
        is none: a query may miss some until the scrub has been there (``docs/safety.md``)."""
        host = self._hosts.get(address)
        if host is None or host.part_is_doubtful(KEYS):
            return -1
        return self.applied(address)

    def _must_know(self, known: Known, applied: int) -> bool:
        return known.entry_index <= applied and known.record.position >= self._expired_position

    def found_by_key(
        self, topic: str, key: str, applied: int, records: Sequence[tuple[MessageRecord, bytes]]
    ) -> None:
        """The answer of a broker that had applied that much when it was asked."""
        given: set[int] = set()
        for record, data in records:
            known = self.by_position.get(record.position)
            if known is None or known.data != data:
                raise Violation(f"a query for {key!r} gives {record}, which the log does not have")
            if record.topic != topic or key not in keys_of(record):
                raise Violation(f"a query for {key!r} of {topic} gives {record}, without that key")
            given.add(record.position)
        if len(given) != len(records):
            raise Violation(f"a query for {key!r} of {topic} gives a message twice")
        for known in self._by_key.get((topic, key), ()):
            if known.record.position not in given and self._must_know(known, applied):
                raise Violation(f"a query for {key!r} of {topic} does not give {known.record}")

    def found_at(self, position: int, applied: int, data: bytes | None) -> None:
        """The record at a position; None if a broker says that none begins there."""
        known = self.by_position.get(position)
        if data is None:
            if known is not None and self._must_know(known, applied):
                raise Violation(f"nothing is found at position {position}, where {known.record} is")
        elif known is None or known.data != data:
            raise Violation(f"another message is found at position {position} than the log has")

    def found_by_time(
        self, topic: str, queue_id: int, time_ms: int, applied: int, offset: int
    ) -> None:
        """The first message of a queue that is not older than that, by a lower boundary."""
        queue = self.queues.get((topic, queue_id), [])
        where = f"of {topic}/{queue_id} for the time {time_ms}"
        for known in queue[:offset]:
            if known.record.store_timestamp >= time_ms and self._must_know(known, applied):
                raise Violation(f"offset {offset} {where} leaves out {known.record}")
        if offset > len(queue):
            raise Violation(f"offset {offset} {where} is beyond the end {len(queue)}")
        for known in queue[offset : offset + 1]:
            if known.record.store_timestamp < time_ms and self._must_know(known, applied):
                raise Violation(f"offset {offset} {where} is of {known.record}, which is older")
