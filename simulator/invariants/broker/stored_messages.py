"""Stored messages and their places: promises 1 to 3 of docs/safety.md.

Offsets of a queue are dense and never name another message (bugs D2, D6). An acknowledged message
is where its producer was told, on the disks of a majority, and in the end on every replica. A
delivered message is committed (D9). A producer's retry is stored once (D5). The ConsumeQueues of
each replica equal those that follow from the log (D1), and begin with its first message (D3), or
later if the topic keeps its messages for less time: never without one that is young enough. An
entry that deletes a topic has no messages, because it would delete them, whichever came first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.state.commands import DeleteTopic, Expire, Trim, decode_commands
from simulator.engine.violation import Violation
from simulator.hosts.broker_host import TOPIC_RETENTION_MS, BrokerHost
from simulator.hosts.durable_state import held_entry
from simulator.invariants.broker.batch_invariant import BatchInvariant, LoggedMessage, messages_of
from simulator.workload.history import Listener, Place, Sent, number_of
from store.log.entry import Entry
from store.message.batch import QUEUE_ROW, Batch
from store.message.record import HEAD, MessageRecord, decode_record

if TYPE_CHECKING:
    from simulator.hosts.host import Host

BODY_SIZE_FIELD = -1  # the last of HEAD
RETRY_MS = 60_000
"""How long brokers remember requests: ``dedup_window_seconds``."""


MESSAGES_MANY = 10
"""In one entry: more than one request of the clients holds."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in the log: its body, its record and row, and the entry that holds them."""

    body: bytes
    record: bytes
    row: bytes
    position: int
    entry: Entry


class StoredMessages(BatchInvariant, Listener):
    """Takes each committed entry apart once, at the first node that applies it."""

    def __init__(self, hosts: Sequence[Host], topics: Sequence[str]) -> None:
        """``topics``: those to which the clients of the history send."""
        self.places: dict[Place, Stored] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self._by_number: dict[int, Place] = {}
        self._hosts = hosts
        self._topics = topics
        self._expired_position = 0
        self._trimmed: dict[tuple[str, int], int] = {}
        self._clock_ms = 0
        self._acknowledged: dict[Place, Sent] = {}

    def applies(self, host: Host, entry: Entry, digest: bytes) -> None:
        """See :class:`Invariant`."""
        if isinstance(host, BrokerHost) and host.settings.trimmed_topic:
            clocks = (each.clock.wall_ms() for each in self._hosts)
            self._clock_ms = max(self._clock_ms, *clocks)
        super().applies(host, entry, digest)

    def committed_batch(self, host: Host, entry: Entry, batch: Batch) -> None:
        """See :class:`BatchInvariant`."""
        if sum(run.row_count for run in batch.runs) >= MESSAGES_MANY:
            host.coverage_mark("entry of many messages")
        for run in batch.runs:
            queue = (run.topic, run.queue_id)
            end = self.ends.get(queue, 0)
            if run.first_offset != end:
                raise Violation(
                    f"entry {entry.index} gives offsets from {run.first_offset} on in {queue}, "
                    f"the next was {end}"
                )
            self.ends[queue] = end + run.row_count
        for message in messages_of(entry, batch, self._topics):
            self._add(host, entry, message)
        for command in decode_commands(batch.commands):
            if isinstance(command, Expire):
                self._expired_position = max(self._expired_position, command.position)
            elif isinstance(command, Trim):
                self._trim(host, (command.topic, command.queue_id), command.offset)
            elif isinstance(command, DeleteTopic) and batch.runs:
                raise Violation(f"entry {entry.index} deletes a topic and has messages")

    def _trim(self, host: Host, queue: tuple[str, int], end: int) -> None:
        """The queue begins at ``end``: what is before must be too old, by a clock that some node
        had."""
        first = self._trimmed.get(queue, 0)
        for offset in range(first, min(end, self.ends.get(queue, 0))):
            stored_ms = decode_record(self.places[*queue, offset].record).store_timestamp
            if stored_ms > self._clock_ms - TOPIC_RETENTION_MS:
                raise Violation(f"{queue} begins at {end}, though {offset} is not old enough")
            host.coverage_mark("message given up by the retention of its topic")
        self._trimmed[queue] = max(first, end)

    def _add(self, host: Host, entry: Entry, message: LoggedMessage) -> None:
        place, position, code, record = message
        body_size = HEAD.unpack_from(record)[BODY_SIZE_FIELD]
        body = record[HEAD.size : HEAD.size + body_size]
        row = QUEUE_ROW.pack(position, len(record), code)
        self.places[place] = Stored(body, record, row, position, entry)
        number = number_of(body)
        before = self._by_number.get(number)
        if before is not None:
            self._stored_again(host, number, self.places[before], self.places[place])
        self._by_number[number] = place

    def _stored_again(self, host: Host, number: int, first: Stored, again: Stored) -> None:
        """Allowed if nobody can still know that it was stored, or if the leaders' clocks say that
        it was long ago."""
        before = decode_record(first.record).store_timestamp
        since = decode_record(again.record).store_timestamp - before
        if first.entry.position < self._expired_position:
            host.coverage_mark("message sent again after it was removed")
        elif since > RETRY_MS:
            host.coverage_mark("message sent again after clocks had jumped")
        else:
            raise Violation(
                f"message {number} is stored twice, by entries {first.entry.index} and "
                f"{again.entry.index}, {since} ms later"
            )

    def stored(self, sent: Sent) -> None:
        """See :class:`Listener`."""
        place = sent.place
        assert place is not None  # noqa: S101 - it is acknowledged
        stored = self.places.get(place)
        if stored is None:
            raise Violation(f"message {sent.number} is acknowledged as {place}; nobody applied it")
        if stored.body != sent.body:
            raise Violation(
                f"message {sent.number} is acknowledged as {place}; message "
                f"{number_of(stored.body)} is there"
            )
        self._acknowledged[place] = sent
        holding = [
            each.name for each in self._hosts if held_entry(each, stored.entry, each.segment_size)
        ]
        if 2 * len(holding) <= len(self._hosts):
            raise Violation(
                f"message {sent.number} is acknowledged, and only the disks of {holding} hold its "
                f"entry {stored.entry.index}"
            )

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`Listener`."""
        stored = self.places.get(place)
        if stored is None:
            raise Violation(f"{consumer} is given {place}, which is not committed")
        if stored.body != record.body:
            raise Violation(f"{consumer} is given another message for {place}")

    def healed(self, host: Host) -> None:
        """See :class:`Invariant`."""
        assert isinstance(host, BrokerHost)  # noqa: S101 - others have no queues
        machine, store = host.broker.context.machine, host.broker.context.node.store
        for (topic, queue_id), end in self.ends.items():
            if topic not in self._topics:
                continue
            queue = machine.queue(topic, queue_id)
            if queue is None or queue.end_offset != end:
                raise Violation(f"{host.name}: {topic}/{queue_id} does not end at {end}")
            first = queue.first_offset
            for offset in range(first):
                if offset < self._trimmed.get((topic, queue_id), 0):
                    continue
                given_up = self.places.get((topic, queue_id, offset))
                if given_up is None or given_up.position >= self._expired_position:
                    raise Violation(
                        f"{host.name}: {topic}/{queue_id} begins at {first} and ends at {end}; it "
                        f"has given up {offset}, which the log still has"
                    )
            expected = [self.places[topic, queue_id, offset] for offset in range(first, end)]
            rows = b""
            while part := queue.read(first + len(rows) // QUEUE_ROW.size, end - first):
                rows += part
            if rows != b"".join(each.row for each in expected):
                raise Violation(f"{host.name}: the rows of {topic}/{queue_id} are not the log's")
            for each in expected:
                if store.read(each.position, len(each.record)) != each.record:
                    raise Violation(
                        f"{host.name} has another record at {each.position}, "
                        f"of message {number_of(each.body)}"
                    )
            for place in self._acknowledged:
                if place[:2] == (topic, queue_id) and not place[2] < end:
                    raise Violation(f"{host.name} lacks {place}, which was acknowledged")
