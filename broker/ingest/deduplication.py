"""Requests that may be retries: stored once, and answered with how the first try ended.

The send path comes here with a request whose first key hash it has seen lately. A retry has the
same topic, the same UNIQ_KEY (to our own producer that is its id and a sequence number), the same
other properties and the same bodies, whatever its queue. If the first try is still on its way, the
retry waits for what was staged before it, and is looked for then; a third one waits with it.

What was stored longer ago than the window, or is gone from the log, is stored again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from broker.delivery.message_reader import MessageReader, Range
from broker.group_commit.batcher import REQUEST_BYTES, Gatherer
from broker.group_commit.pending_batch import Waiter
from broker.limits import PRODUCE
from broker.scheduled.system_properties import REAL_QUEUE_ID, with_properties
from broker.state.deduplication_window import EntryPlace
from broker.state.state_machine import BrokerStateMachine
from broker.topics_and_groups import HALF_TOPIC
from dledger.errors import BusyError, NotServingError, ProposeError
from store.errors import StoreError
from store.io.filesystem import Bytes
from store.log.entry import HEADER, HEADER_SIZE, EntryKind
from store.message.batch import KEY_ROW, decode_batch, staged_bytes
from store.message.properties import UNIQUE_KEY, find_property
from store.message.record import MessageRecord, StagedMessage, decode_record
from store.message.scheduled_topics import DEFERRED_TOPICS, TIMER_OUT_MS

_WAITING_TOPICS = DEFERRED_TOPICS | {HALF_TOPIC}
_CHANGING: Mapping[bytes, None] = {REAL_QUEUE_ID: None, TIMER_OUT_MS: None}


class UndecidedError(ProposeError):
    """Whether the request is stored cannot be told now; nothing was written."""

    def __init__(self, fault: StoreError) -> None:
        super().__init__(f"whether this was sent before cannot be told now: {fault}")


class Sender(Waiter, Protocol):
    """Who waits for a request that may have been stored before."""

    def stored_before(
        self, host: bytes, queue_id: int, first_offset: int, positions: Sequence[int]
    ) -> None:
        """It was, by the broker at ``host`` (as in records), and in that queue."""


class _Doubt:
    """A request that is looked for, or being stored after all, and who waits for that."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[StagedMessage],
        waiter: Sender,
        term: int,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.messages = messages
        self.term = term
        self.waiters = [waiter]

    def is_same(self, messages: Sequence[StagedMessage]) -> bool:
        return len(messages) == len(self.messages) and all(
            mine.body == other.body and is_retry(self.topic, mine.properties, other.properties)
            for mine, other in zip(self.messages, messages, strict=True)
        )


class ResentRequests:
    """Finds out about retries, on the leader."""

    def __init__(
        self,
        gatherer: Gatherer,
        machine: BrokerStateMachine,
        reader: MessageReader,
        *,
        wall_clock: Callable[[], int],
        window_ms: int,
        store_host: bytes,
    ) -> None:
        self._gatherer = gatherer
        self._machine = machine
        self._reader = reader
        self._wall_clock = wall_clock
        self._window_ms = window_ms
        self._store_host = store_host
        self._doubts: dict[tuple[str, bytes], _Doubt] = {}
        self._doubt_bytes = 0

    def add(
        self, topic: str, queue_id: int, messages: Sequence[StagedMessage], waiter: Sender
    ) -> None:
        """Stages a request, or finds out whether it is a retry where that may be.

        Raises as :meth:`~broker.group_commit.batcher.Gatherer.add_messages`.
        """
        hashes = messages[0].key_hashes
        place = self._gatherer.known_requests.get(hashes[0]) if hashes else None
        key = find_property(messages[0].properties, UNIQUE_KEY) if place is not None else None
        if place is None or not key:
            self._gatherer.add_messages(topic, queue_id, messages, waiter)
            return
        known = self._doubts.get((topic, key))
        if known is None:
            size = staged_bytes(messages)
            self._gatherer.check_size(size + REQUEST_BYTES)
            if self._doubt_bytes + size > PRODUCE.doubt_bytes_max:
                raise BusyError(self._doubt_bytes, PRODUCE.doubt_bytes_max)
            doubt = _Doubt(topic, queue_id, messages, waiter, self._gatherer.term)
            self._gatherer.add_barrier(partial(self._settled, doubt, key, place))
            self._doubts[topic, key] = doubt
            self._doubt_bytes += size
        elif known.is_same(messages):
            known.waiters.append(waiter)
        else:
            self._gatherer.add_messages(topic, queue_id, messages, waiter)

    def _decided(self, doubt: _Doubt, key: bytes) -> None:
        del self._doubts[doubt.topic, key]
        self._doubt_bytes -= staged_bytes(doubt.messages)

    def _settled(
        self, doubt: _Doubt, key: bytes, place: EntryPlace, error: ProposeError | None
    ) -> None:
        """All that was staged before is applied, or refused."""
        if error is not None:
            self.fail(doubt, key, error)
            return
        position = place.position
        machine, load = self._machine, self._reader.load

        def unreadable(fault: StoreError) -> None:
            if position < machine.expired_position:
                self._store(doubt, key)
            else:
                self.fail(doubt, key, UndecidedError(fault))

        def found_header(parts: Sequence[Bytes], fault: StoreError | None) -> None:
            if fault is not None:
                unreadable(fault)
                return
            magic, _size, _index, _term, at, _channel, _chain, _crc, size = HEADER.unpack(parts[0])
            if magic != EntryKind.DATA or at != position:
                self._store(doubt, key)
                return
            load([Range(position + HEADER_SIZE, size)], found_body)

        def found_body(parts: Sequence[Bytes], fault: StoreError | None) -> None:
            first = None
            try:
                if fault is None:
                    first = self._find(doubt, parts[0], position + HEADER_SIZE)
            except StoreError as damage:
                fault = damage
            if fault is not None:
                unreadable(fault)
            elif first is None:
                self._store(doubt, key)
            else:
                self._answer(doubt, key, first)

        if machine.expired_position <= position < machine.applied_end:
            load([Range(position, HEADER_SIZE)], found_header)
        else:
            self._store(doubt, key)

    def _find(self, doubt: _Doubt, body: Bytes, start: int) -> MessageRecord | None:
        """The record of the first message among those of an entry, if all of them are there."""
        batch = decode_batch(body)
        wanted = doubt.messages[0].key_hashes[0]
        since = self._wall_clock() - self._window_ms
        for position in _positions(bytes(batch.key_rows), wanted):
            place = position - start
            first = None
            for message in doubt.messages:
                if place >= len(batch.records):
                    break
                record = decode_record(batch.records, place)
                if (
                    record.topic != doubt.topic
                    or record.store_timestamp < since
                    or record.body != message.body
                    or not is_retry(doubt.topic, record.properties, message.properties)
                ):
                    break
                first = first or record
                place += record.size
            else:
                return first
        return None

    def _answer(self, doubt: _Doubt, key: bytes, first: MessageRecord) -> None:
        self._decided(doubt, key)
        queue_id = _real_queue(doubt.topic, first.queue_id, first.properties)
        positions = [first.position]
        for message in doubt.messages[:-1]:
            positions.append(positions[-1] + message.size)
        for waiter in doubt.waiters:
            waiter.stored_before(first.store_host, queue_id, first.queue_offset, positions)

    def _store(self, doubt: _Doubt, key: bytes) -> None:
        """It was not stored: it is now, for all who wait.

        Unless another term began while it was looked for: who led in between may have stored it.
        """
        if self._gatherer.term != doubt.term:
            self.fail(doubt, key, NotServingError())
            return
        storing = _Storing(self, doubt, key)
        try:
            self._gatherer.add_messages(doubt.topic, doubt.queue_id, doubt.messages, storing)
        except ProposeError as error:
            self.fail(doubt, key, error)

    def stored(
        self, doubt: _Doubt, key: bytes, first_offset: int, positions: Sequence[int]
    ) -> None:
        """It was not stored before, and is now."""
        self._decided(doubt, key)
        queue_id = _real_queue(doubt.topic, doubt.queue_id, doubt.messages[0].properties)
        doubt.waiters[0].stored(first_offset, positions)
        for waiter in doubt.waiters[1:]:
            waiter.stored_before(self._store_host, queue_id, first_offset, positions)

    def fail(self, doubt: _Doubt, key: bytes, error: ProposeError) -> None:
        """Nobody knows, or it could not be stored."""
        self._decided(doubt, key)
        for waiter in doubt.waiters:
            waiter.failed(error)


class _Storing:
    """Waits for a request that was not stored before, for all who sent it meanwhile."""

    __slots__ = ("_doubt", "_key", "_requests")

    def __init__(self, requests: ResentRequests, doubt: _Doubt, key: bytes) -> None:
        self._requests = requests
        self._doubt = doubt
        self._key = key

    def stored(self, first_offset: int, positions: Sequence[int]) -> None:
        self._requests.stored(self._doubt, self._key, first_offset, positions)

    def failed(self, error: ProposeError) -> None:
        self._requests.fail(self._doubt, self._key, error)


def is_retry(topic: str, properties: bytes, others: bytes) -> bool:
    """Whether messages that are else the same are one and the same by their properties.

    What waits in a topic of its own has there what a retry may change: the queue it is meant for,
    and a time that was counted from when it came.
    """
    if properties == others:
        return True
    return topic in _WAITING_TOPICS and with_properties(properties, _CHANGING) == with_properties(
        others, _CHANGING
    )


def _real_queue(topic: str, queue_id: int, properties: bytes) -> int:
    """The queue for which a message is meant, which may wait in another."""
    if topic not in _WAITING_TOPICS:
        return queue_id
    return int(find_property(properties, REAL_QUEUE_ID) or queue_id)


def _positions(key_rows: bytes, wanted: int) -> Iterator[int]:
    """Positions of the records whose key hash is ``wanted``."""
    found = wanted.to_bytes(4, "big")
    place = key_rows.find(found)
    while place >= 0:
        if place % KEY_ROW.size == 0:
            _, position, _ = KEY_ROW.unpack_from(key_rows, place)
            yield position
        place = key_rows.find(found, place + 1)
