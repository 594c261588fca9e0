"""Look-ups of single messages: by position, by key, by time.

A look-up first uses the memory. The read executor reads the missing parts, and the look-up
continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TypeAlias

from broker.delivery.message_reader import LogRange, MessageReader
from broker.limits import CONSUME
from broker.state.state_machine import STORE_TIMESTAMP_AT, BrokerStateMachine
from store.errors import OutOfRangeError, StoreError
from store.io.filesystem import Bytes
from store.message.record import (
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    V6_HOSTS,
    decode_record,
    key_hash,
)

_START = Struct(">ii20xqi")
"""The parts of a record that are read: total size, magic, and at byte 28 its own position and its
system flag."""

_I32 = Struct(">i")
_I64 = Struct(">q")

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

    def record(self, position: int, done: Callable[[Bytes, StoreError | None], None]) -> None:
        """Calls ``done`` with the record that begins at ``position``. The error is
        :class:`~store.errors.OutOfRangeError` if no applied record begins there.

        A client may put a made-up record into the body of a message, and name its position. If it
        has IPv6 hosts, it is none of this broker's, and no copy of it could be stored.
        """
        end = self._machine.applied_end

        def started(parts: Sequence[Bytes], error: StoreError | None) -> None:
            if error is not None:
                done(b"", error)
                return
            size, magic, own_position, sys_flag = _START.unpack(parts[0])
            if (
                magic != RECORD_MAGIC
                or own_position != position
                or sys_flag & V6_HOSTS
                or not RECORD_FIXED_SIZE <= size <= end - position
            ):
                done(b"", OutOfRangeError(f"no message begins at position {position}"))
                return
            self._reader.load([LogRange(position, size)], loaded)

        def loaded(parts: Sequence[Bytes], error: StoreError | None) -> None:
            done(b"" if error else parts[0], error)

        if 0 <= position <= end - RECORD_FIXED_SIZE:
            self._reader.load([LogRange(position, _START.size)], started)
        else:
            done(b"", OutOfRangeError(f"the log holds no message at position {position}"))

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
