"""Look-ups of single messages: by position, by key, by time.

A look-up first uses the memory. The read executor reads the missing parts, and the look-up
continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TypeAlias

from broker.delivery.message_reader import LogRange, MessageReader, row_range
from broker.limits import CONSUME
from broker.state.state_machine import STORE_TIMESTAMP_AT, BrokerStateMachine
from store.errors import CorruptRecordError, OutOfRangeError, StoreError
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes
from store.message.batch import QUEUE_ROW
from store.message.record import (
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    MessageRecord,
    decode_record,
    key_hash,
)

_START = Struct(">ii20xq")
"""The parts of a record that are read: total size, magic, and at byte 28 its own position."""

_I32 = Struct(">i")
_I64 = Struct(">q")

RecordDone: TypeAlias = Callable[[Bytes, StoreError | None], None]
NumberDone: TypeAlias = Callable[[int, StoreError | None], None]


class _NotInMemoryError(Exception):
    """The store time of the record at ``position`` must be read from the disk first."""

    def __init__(self, position: int) -> None:
        self.position = position
        super().__init__(position)


class MessageLookup:
    """Looks up messages that this node has applied."""

    def __init__(self, machine: BrokerStateMachine, reader: MessageReader) -> None:
        self._machine = machine
        self._reader = reader

    def record(self, position: int, done: RecordDone) -> None:
        """Calls ``done`` with the record of the message at ``position``. The error is
        :class:`~store.errors.OutOfRangeError` if no row of a queue leads there.

        Clients name positions, and a client can put a made-up record into the body of a message. No
        row leads to it. This is the only way from a position to a message.
        """
        end = self._machine.applied_end

        def started(parts: Sequence[Bytes], error: StoreError | None) -> None:
            if error is not None:
                done(b"", error)
                return
            size, magic, own_position = _START.unpack(parts[0])
            if (
                magic != RECORD_MAGIC
                or own_position != position
                or not RECORD_FIXED_SIZE <= size <= end - position
            ):
                done(b"", OutOfRangeError(f"no message begins at position {position}"))
                return
            self._reader.load([LogRange(position, size)], loaded)

        def loaded(parts: Sequence[Bytes], error: StoreError | None) -> None:
            if error is None:
                self._confirm(position, parts[0], done)
            else:
                done(b"", error)

        if 0 <= position <= end - RECORD_FIXED_SIZE:
            self._reader.load([LogRange(position, _START.size)], started)
        else:
            done(b"", OutOfRangeError(f"the log holds no message at position {position}"))

    def _confirm(self, position: int, data: Bytes, done: RecordDone) -> None:
        """Gives out the record at ``position`` if a row leads to it. The row may be trimmed: a
        consumer may still work on the message.

        If the row of its offset leads elsewhere, either the record is made up or the row is
        corrupt. So the row is compared with the record to which it leads.
        """
        no_message = OutOfRangeError(f"no queue has a message at position {position}")
        try:
            record = decode_record(data)
            queue = self._machine.queue(record.topic, record.queue_id)
            row = b"" if queue is None else queue.read(record.queue_offset, 1)
        except CorruptRecordError:  # made up: the checksum of its entry was right
            done(b"", no_message)
            return
        except StoreError as fault:
            done(b"", fault)
            return
        if queue is None or not row:
            if queue is not None and self._is_trimmed(queue, record, position):
                done(data, None)
            else:
                done(b"", no_message)
            return
        told, size, _code = QUEUE_ROW.unpack(row)
        if (told, size) == (position, record.size):
            done(data, None)
            return
        other = row_range(queue, record.queue_id, record.queue_offset, told, size)
        self._reader.load([other], lambda _parts, error: done(b"", error or no_message))

    def _is_trimmed(self, queue: ConsumeQueue, record: MessageRecord, position: int) -> bool:
        """Whether the topic keeps the message no longer, and the log does."""
        topic = self._machine.state.topics.get(record.topic)
        if topic is None or not topic.retention_ms or position < self._machine.expired_position:
            return False
        row = queue.read_trimmed(record.queue_offset)
        return bool(row) and QUEUE_ROW.unpack(row)[:2] == (position, record.size)

    def by_key(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        *,
        count: int,
        done: Callable[[Sequence[Bytes], StoreError | None], None],
    ) -> None:
        """The newest records of ``topic`` whose key has the hash of ``key``, newest first: at most
        ``count`` records and ``query_bytes_max`` bytes, but always one.

        A hash has only 32 bits. A caller who may read one topic could make a key with the hash of a
        key of another topic. So records of other topics are left out.
        """
        try:
            found = self._machine.keys.lookup(
                key_hash(topic, key.encode()), begin_ms, end_ms, count
            )
        except StoreError as error:
            done((), error)
            return
        # The index drops whole files, so it may still have rows of expired messages.
        positions = [position for position in found if position >= self._machine.expired_position]

        def sized(parts: Sequence[Bytes], error: StoreError | None) -> None:
            if error is not None:
                done((), error)
                return
            sizes = [_I32.unpack(part)[0] for part in parts]
            ranges: list[LogRange] = []
            left = CONSUME.query_bytes_max
            for position, size in zip(positions, sizes, strict=True):
                left -= size
                if left < 0 and ranges:
                    break
                ranges.append(LogRange(position, size))
            self._reader.load(ranges, loaded)

        def loaded(parts: Sequence[Bytes], error: StoreError | None) -> None:
            try:
                own = [part for part in parts if decode_record(part).topic == topic]
            except StoreError as damage:
                own, error = [], damage
            done(own, error)

        self._reader.load([LogRange(position, _I32.size) for position in positions], sized)

    def store_time(self, topic: str, queue_id: int, offset: int, done: NumberDone) -> None:
        """The store time of the message at ``offset`` in ms; -1 if there is none."""

        def find(store_time: Callable[[int, int], int]) -> int:
            queue = self._machine.queue(topic, queue_id)
            row = b"" if queue is None else queue.read(offset, 1)
            return store_time(_I64.unpack_from(row)[0], 0) if row else -1

        self._with_store_times(find, {}, done)

    def search_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: str, done: NumberDone
    ) -> None:
        """The offset for a store time. ``boundary`` is ``lower`` or ``upper`` as in RocketMQ 5, or
        empty for the nearest message as in RocketMQ 4.9."""

        def find(store_time: Callable[[int, int], int]) -> int:
            queue = self._machine.queue(topic, queue_id)
            if queue is None:
                return 0
            if boundary == "lower":
                return queue.first_from(timestamp_ms, store_time)
            if boundary == "upper":
                return queue.last_until(timestamp_ms, store_time)
            return queue.search_time(timestamp_ms, store_time)

        self._with_store_times(find, {}, done)

    def _with_store_times(
        self,
        find: Callable[[Callable[[int, int], int]], int],
        known: dict[int, int],
        done: NumberDone,
    ) -> None:
        """Repeats ``find`` until all store times that it needs are known."""

        def store_time(position: int, _size: int) -> int:
            if position not in known:
                raise _NotInMemoryError(position)
            return known[position]

        try:
            found = find(store_time)
        except StoreError as error:
            done(0, error)
            return
        except _NotInMemoryError as missing:
            position = missing.position
        else:
            done(found, None)
            return

        def loaded(parts: Sequence[Bytes], error: StoreError | None) -> None:
            if error is not None:
                done(0, error)
                return
            known[position] = _I64.unpack(parts[0])[0]
            self._with_store_times(find, known, done)

        self._reader.load([LogRange(position + STORE_TIMESTAMP_AT, _I64.size)], loaded)
