"""Finds the messages that a member of a group may receive from one queue now.

Messages that are visible again come first, by offset, then new ones. In FIFO order a message waits
while an earlier one of its message group is not acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from broker.delivery.fetch import BYTES_USUAL
from broker.delivery.message_filter import (
    SCAN_LIMITS,
    MessageFilter,
    properties_of,
    selected,
)
from broker.delivery.message_reader import LogRange, MessageReader, PullLimits, row_range
from broker.group_commit.pending_pop import PendingPopQueue
from broker.limits import CONSUME
from broker.retry.attempts import attempts, retries_exhausted
from broker.state.pop_queues import PopDelivery, PopKey
from broker.state.state_machine import BrokerStateMachine
from broker.topics_and_groups import GroupConfig
from dledger.settle import settle
from store.io.filesystem import Bytes
from store.message.batch import QUEUE_ROW
from store.message.record import RECONSUME_TIMES, RECONSUME_TIMES_AT, record_bounds

MESSAGE_GROUP = "__SHARDINGKEY"
RETRY_TOPIC = "RETRY_TOPIC"
"""The property with the first topic of a message in a retry topic."""
EXHAUSTED_MAX = 32
"""Pace: the most messages of one queue that become dead letters in one look."""

_QUEUE_OFFSET = Struct(">20xq")


class Candidate(NamedTuple):
    """A message that may be received; ``delivery`` is its last delivery, None for a new message."""

    offset: int
    record: Bytes
    delivery: PopDelivery | None

    @property
    def attempts(self) -> int:
        """How often the group got it: as :func:`~broker.retry.attempts.attempts`."""
        deliveries = 0 if self.delivery is None else self.delivery.attempt
        return attempts(reconsume_times_of(self.record), deliveries)


@dataclass(slots=True)
class ReceivableMessages:
    """The messages found in one queue."""

    next_offset: int
    """The offset behind the new messages."""
    receive: list[Candidate] = field(default_factory=list)
    exhausted: list[Candidate] = field(default_factory=list)
    """Messages that were received too often."""
    learned: bool = False
    """Whether the record of one of these says so, and no look before has seen that."""
    unwanted: list[int] = field(default_factory=list)
    """Offsets of visible deliveries that the filter does not match."""
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """New messages that wait for their message group: (offset, hash of the group)."""

    def is_still_in(self, pending: PendingPopQueue) -> bool:
        """Whether the deliveries are still those that were found."""
        deliveries = pending.queue.deliveries
        found = (*self.receive, *self.exhausted)
        return all(deliveries.get(each.offset) == each.delivery for each in found)

    def fit(self, size_max: int, size_of: Callable[[Bytes], int], *, alone: bool) -> int:
        """Leaves out the messages that do not fit into ``size_max`` bytes of an answer, to be found
        again. Returns the bytes that are left: 0 once a message was left out.

        ``alone``: the answer has no message yet, so its first one fits whatever its size.
        """
        for at, each in enumerate(self.receive):
            size = size_of(each.record)
            if size > size_max and (at or not alone):
                self._leave_out(at)
                return 0
            size_max = max(size_max - size, 0)
        return size_max

    def _leave_out(self, start: int) -> None:
        """Leaves out the messages to receive from the ``start``-th on. New ones stay behind the
        cursor, or wait as others do in FIFO order."""
        new = [each.offset for each in self.receive[start:] if each.delivery is None]
        if new and not self.waiting:
            self.next_offset = new[0]
        del self.receive[start:]


class Search(NamedTuple):
    """The parameters of a search."""

    key: PopKey
    wanted: MessageFilter
    fifo: bool
    group: GroupConfig
    now_ms: int
    messages: int
    """The most messages to receive."""
    room: int
    """The most new deliveries to make."""
    only: int = 0
    """In a retry topic, the :func:`topic_hash` of the wanted messages' first topic; otherwise 0.
    There the first topic of a message takes the place of its message group. So in FIFO order one
    message of a topic goes at a time."""

    def is_exhausted(self, delivery: PopDelivery | None, reconsume_times: int) -> bool:
        """Whether a message becomes a dead letter; never before its first delivery."""
        return (
            delivery is not None
            and delivery.attempt > 0
            and retries_exhausted(self.group, attempts(reconsume_times, delivery.attempt))
        )

    def may_find(self, delivery: PopDelivery) -> bool:
        return not self.only or delivery.group_hash == self.only

    def hash_of(self, record: Bytes) -> int:
        """The hash by which a new message waits; one without a first topic is for any request."""
        if not self.only:
            return message_group_hash(record)
        first_topic = properties_of(record).get(RETRY_TOPIC)
        return topic_hash(first_topic) if first_topic else self.only


class ReceivableMessageFinder:
    """Finds and loads messages on the leader."""

    def __init__(
        self, machine: BrokerStateMachine, reader: MessageReader, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._machine = machine
        self._reader = reader
        self._loop = loop

    async def find(self, search: Search, pending: PendingPopQueue) -> ReceivableMessages:
        """The messages that may be received. Raises :class:`~store.errors.StoreError`.

        The deliveries may change while records are read from disk. The caller checks whether
        ``pending`` is still valid.
        """
        blocked: set[int] = set()
        if search.fifo:
            again, blocked, waiting = _turns(search, pending)
            left = 0
            if len(again) < search.messages and 0 not in blocked:
                left = min(CONSUME.pop_messages_max, CONSUME.pop_waiting_rows_max - waiting)
        else:
            again = _visible(search, pending)
            known = pending.exhausted
            fresh = sum(not search.is_exhausted(each, known.get(at, 0)) for at, each in again)
            left = search.messages - fresh
        ranges, codes = self._rows(search.key, [offset for offset, _ in again])
        codes_wanted = search.wanted.codes
        first, messages = pending.next_offset, min(left, search.room)
        limits = PullLimits(messages, BYTES_USUAL)
        found = None
        if messages > 0:
            scanned = limits if search.wanted.selector is None else SCAN_LIMITS
            found = self._reader.find(*search.key[1:], first, scanned, codes_wanted)
            if found.next_offset < first:
                found = None  # the queue ends before the cursor
        receivable = ReceivableMessages(first if found is None else found.next_offset)
        new_ranges = () if found is None else found.ranges
        parts = await self._load([*ranges, *new_ranges])
        for (offset, delivery), code, record in zip(again, codes, parts, strict=False):
            self._sort(search, pending, receivable, Candidate(offset, record, delivery), code)
        if found is not None and new_ranges:
            new = parts[len(ranges) :]
            if search.wanted.selector is not None:
                found, new = selected(search.wanted.selector, first, found, new, limits)
                receivable.next_offset = found.next_offset
            self._add_new(search, receivable, new, blocked)
        return receivable

    async def records(self, key: PopKey, offsets: Sequence[int]) -> Sequence[Bytes]:
        """The records of a queue at these offsets. Raises :class:`~store.errors.StoreError`."""
        ranges, _codes = self._rows(key, offsets)
        return await self._load(ranges)

    def _rows(self, key: PopKey, offsets: Sequence[int]) -> tuple[list[LogRange], list[int]]:
        """The ranges of the records and their tags codes; only of the first records, if there are
        too many bytes."""
        _group, topic, queue_id = key
        queue = self._machine.queue(topic, queue_id)
        ranges: list[LogRange] = []
        codes: list[int] = []
        total = 0
        for offset in offsets:
            row = b"" if queue is None else queue.read(offset, 1)
            if queue is None or not row:
                break
            position, size, code = QUEUE_ROW.unpack(row)
            total += size
            if ranges and total > CONSUME.pull_bytes_max:
                break
            ranges.append(row_range(queue, queue_id, offset, position, size))
            codes.append(code)
        return ranges, codes

    async def _load(self, ranges: Sequence[LogRange]) -> Sequence[Bytes]:
        """Loads records, without a turn of the event loop if all are in memory."""
        if not ranges:
            return ()
        loaded: asyncio.Future[Sequence[Bytes]] = self._loop.create_future()
        self._reader.load(ranges, partial(settle, loaded))
        return await loaded

    @staticmethod
    def _sort(
        search: Search,
        pending: PendingPopQueue,
        receivable: ReceivableMessages,
        each: Candidate,
        code: int,
    ) -> None:
        """Adds a message that was received before, or waited, to its part of the result."""
        wanted = search.wanted
        codes, selector = wanted.codes, wanted.selector
        times = reconsume_times_of(each.record)
        if search.is_exhausted(each.delivery, times):
            receivable.exhausted.append(each)
            if times > pending.exhausted.get(each.offset, 0):
                pending.note_exhausted(each.offset, times)
                receivable.learned = True
        elif (
            (codes is not None and code not in codes)
            or not wanted.has_tag(each.record)
            or (selector is not None and not selector.matches(properties_of(each.record)))
        ):
            receivable.unwanted.append(each.offset)
        else:
            receivable.receive.append(each)

    @staticmethod
    def _add_new(
        search: Search, receivable: ReceivableMessages, parts: Sequence[Bytes], blocked: set[int]
    ) -> None:
        for part in parts:
            for start, end in record_bounds(part):
                record = memoryview(part)[start:end]
                if not search.wanted.has_tag(record):
                    continue
                (offset,) = _QUEUE_OFFSET.unpack_from(record)
                if search.fifo or search.only:
                    group_hash = search.hash_of(record)
                    receivable.waiting.append((offset, group_hash))
                    if (
                        group_hash in blocked
                        or search.only not in {0, group_hash}
                        or len(receivable.receive) >= search.messages
                    ):
                        continue
                    if search.fifo:
                        blocked.add(group_hash)
                receivable.receive.append(Candidate(offset, record, None))


def _visible(search: Search, pending: PendingPopQueue) -> list[tuple[int, PopDelivery]]:
    found: list[tuple[int, PopDelivery]] = []
    fresh = exhausted = 0
    for offset, delivery in pending.visible(search.now_ms):
        if not search.may_find(delivery):
            continue
        if search.is_exhausted(delivery, pending.exhausted.get(offset, 0)):
            exhausted += 1
            if exhausted > EXHAUSTED_MAX:
                continue
        else:
            fresh += 1
        found.append((offset, delivery))
        if fresh == search.messages:
            break
    return found


def _turns(
    search: Search, pending: PendingPopQueue
) -> tuple[list[tuple[int, PopDelivery]], set[int], int]:
    """In FIFO order: the messages that may go now, the message groups that have a delivery or get
    one now, and the number of waiting messages. A delivery of an unknown message group blocks all
    others."""
    turns: list[tuple[int, PopDelivery]] = []
    blocked: set[int] = set()
    waiting = 0
    for offset, delivery in pending.queue.deliveries.items():
        if not search.may_find(delivery):
            continue
        waiting += not delivery.attempt
        if 0 in blocked or delivery.group_hash in blocked:
            continue
        if blocked and delivery.group_hash == 0:
            blocked.add(0)
            continue
        if delivery.visible_ms <= search.now_ms and len(turns) < search.messages:
            turns.append((offset, delivery))
        blocked.add(delivery.group_hash)
    return turns, blocked, waiting


def reconsume_times_of(record: Bytes) -> int:
    """The attempts that a record counts."""
    (times,) = RECONSUME_TIMES.unpack_from(record, RECONSUME_TIMES_AT)
    return int(times)


def message_group_hash(record: Bytes) -> int:
    """The hash of a record's message group, at least 1; a message without one belongs to the group
    ``""``.

    CRC32C. Two groups with the same hash wait for each other.
    """
    group = properties_of(record).get(MESSAGE_GROUP, "")
    return crc32c(group.encode()) or 1


def topic_hash(topic: str) -> int:
    """The hash of a topic's name, at least 1: CRC32C."""
    return crc32c(topic.encode()) or 1
