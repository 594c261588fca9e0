"""Finds the messages of a queue and loads their records, from memory or disk.

The answers of a pull are RocketMQ's (``DefaultMessageStore.getMessage``); see
:class:`GetMessageStatus`. Rows of a ConsumeQueue say where the records lie. Consecutive records are
read as one range, so a pull costs a few reads and not one for each message.

Rows have checksums (:mod:`store.index.block_seals`). Besides, each range must begin and end with
the records of its first and its last row. That also finds rows that were wrong when they were
written, and wrong unsealed rows of format 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from broker.delivery.joined_rows import join_rows
from store.errors import DamagedError, DerivedDamageError, MisplacedError, StoreError
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes
from store.message.batch import QUEUE_ROW
from store.message.record import RECORD_FIXED_SIZE, is_record_of

SCAN_ROWS_MIN = 800
"""The least number of rows that a filtered pull reads: RocketMQ's 16,000 bytes."""


class GetMessageStatus(Enum):
    """How a pull ended; the names are those of RocketMQ's ``GetMessageStatus``.

    ``MESSAGE_WAS_REMOVING`` is not among them: queues drop rows before the log expires.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_RESET = "OFFSET_RESET"


class RowSpan(NamedTuple):
    """The first and the last of several rows with consecutive records."""

    queue: ConsumeQueue
    queue_id: int
    first_offset: int
    first_size: int
    last_offset: int
    last_size: int


class LogRange(NamedTuple):
    """Consecutive records of the commit log."""

    position: int
    size: int
    rows: RowSpan | None = None
    """The rows of these records, to be checked once the records are loaded."""


Done: TypeAlias = Callable[[Sequence[Bytes], StoreError | None], None]


class PullLimits(NamedTuple):
    """The limits of one pull. One message is always returned."""

    messages: int
    bytes: int


class GetMessageResult(NamedTuple):
    """The result of a pull. ``min_offset`` and ``max_offset`` are the bounds of the queue, max
    exclusive."""

    status: GetMessageStatus
    next_offset: int
    min_offset: int
    max_offset: int
    ranges: Sequence[LogRange] = ()
    messages: int = 0


class Log(Protocol):
    """The part of :class:`~dledger.node.checked_reads.CheckedReads` that is used here."""

    def at_hand(self, position: int, size: int) -> Bytes | None: ...

    def read(
        self,
        ranges: Sequence[tuple[int, int]],
        done: Callable[[Sequence[Bytes] | None, BaseException | None], None],
    ) -> None: ...


class Applied(Protocol):
    """The part of :class:`~broker.state.state_machine.BrokerStateMachine` that is used here."""

    @property
    def applied_end(self) -> int: ...

    @property
    def expired_position(self) -> int: ...

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None: ...

    def end_offset(self, topic: str, queue_id: int) -> int: ...

    def recent(self, position: int, size: int) -> Bytes | None: ...


class MessageReader:
    """Reads messages that this node has applied."""

    def __init__(self, log: Log, applied: Applied, leads: Callable[[], bool]) -> None:
        """``leads``: whether this node leads, so that its state is the newest."""
        self._log = log
        self._applied = applied
        self._leads = leads

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The queue's minimum offset and the offset of its next message."""
        queue = self._applied.queue(topic, queue_id)
        if queue is None:
            end = self._applied.end_offset(topic, queue_id)
            return end, end
        return queue.first_offset, queue.end_offset

    def find(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        limits: PullLimits,
        codes: frozenset[int] | None = None,
    ) -> GetMessageResult:
        """Finds the messages from ``offset`` on whose tags code is in ``codes`` (None: all).

        Raises :class:`~store.errors.DerivedDamageError` if the rows are pending.
        """
        queue = self._applied.queue(topic, queue_id)
        first, end = self.offsets(topic, queue_id)
        if first <= offset < end and queue is not None:
            return self._scan(queue, queue_id, offset, limits, codes)
        if offset > end and not self._leads():
            # A follower may lag: the requested offset may be valid, and stays.
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, first, end)
        if end == 0:
            return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, first, end)
        if offset == end:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, first, end)
        if offset > end:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, end, first, end)
        return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, first, first, end)

    def _scan(
        self,
        queue: ConsumeQueue,
        queue_id: int,
        offset: int,
        limits: PullLimits,
        codes: frozenset[int] | None,
    ) -> GetMessageResult:
        count = limits.messages if codes is None else max(SCAN_ROWS_MIN, limits.messages)
        looked_at, messages, found = join_rows(
            queue.read(offset, count), codes, limits.messages, limits.bytes
        )
        ranges = [
            LogRange(
                position,
                size,
                RowSpan(queue, queue_id, offset + first, first_size, offset + last, last_size),
            )
            for position, size, first, first_size, last, last_size in found
        ]
        status = GetMessageStatus.FOUND if messages else GetMessageStatus.NO_MATCHED_MESSAGE
        return GetMessageResult(
            status, offset + looked_at, queue.first_offset, queue.end_offset, ranges, messages
        )

    def load(
        self,
        ranges: Sequence[LogRange],
        done: Done,
    ) -> None:
        """Loads the bytes of ``ranges``. ``done`` is called at once if all are in memory.

        The error is :class:`~store.errors.OutOfRangeError` if the records have just expired, or are
        not on this node's disk yet. It is :class:`~store.errors.DamagedError` if their entry or a
        row is damaged; the row is repaired soon.
        """
        for each in ranges:
            if each.rows is not None and not self._may_be(each, each.rows):
                done((), misleading_row(each.rows.queue, each.rows.last_offset))
                return
        parts: list[Bytes] = []
        missing: list[int] = []
        recent, at_hand = self._applied.recent, self._log.at_hand
        for position, size, _ in ranges:
            part = recent(position, size) or at_hand(position, size)
            if part is None:
                missing.append(len(parts))
                part = b""
            parts.append(part)
        if not missing:
            self._check(ranges, parts, done)
            return

        def came(read: Sequence[Bytes] | None, error: BaseException | None) -> None:
            if isinstance(error, StoreError):
                done((), _misplaced(ranges, error))
                return
            if error is not None:
                raise error
            for place, part in zip(missing, read or (), strict=True):
                parts[place] = part
            self._check(ranges, parts, done)

        self._log.read([ranges[place][:2] for place in missing], came)

    def _may_be(self, each: LogRange, rows: RowSpan) -> bool:
        applied = self._applied
        return (
            applied.expired_position <= each.position
            and RECORD_FIXED_SIZE <= rows.last_size <= each.size
            and each.position + each.size <= applied.applied_end
        )

    def _check(self, ranges: Sequence[LogRange], parts: Sequence[Bytes], done: Done) -> None:
        for each, part in zip(ranges, parts, strict=True):
            wrong = None if each.rows is None else _corrupt_row(each, each.rows, part)
            if each.rows is not None and wrong is not None:
                done((), misleading_row(each.rows.queue, wrong))
                return
        done(parts, None)


def misleading_row(queue: ConsumeQueue, offset: int) -> DerivedDamageError:
    """The error for a row that does not belong to its record. The row's block is now compared with
    the log."""
    what = f"the row of offset {offset} does not belong to its record"
    return queue.damaged(offset, DamagedError(*queue.locate(offset), what))


def _misplaced(ranges: Sequence[LogRange], error: StoreError) -> StoreError:
    if isinstance(error, MisplacedError):
        for each in ranges:
            if each.position == error.position and each.rows is not None:
                return misleading_row(each.rows.queue, each.rows.last_offset)
    return error


def row_range(
    queue: ConsumeQueue, queue_id: int, offset: int, position: int, size: int
) -> LogRange:
    """The range of one row's record."""
    return LogRange(position, size, RowSpan(queue, queue_id, offset, size, offset, size))


def _corrupt_row(each: LogRange, rows: RowSpan, part: Bytes) -> int | None:
    """The offset of the first row that does not belong to its record, or None."""
    position, size, _ = each
    _queue, queue_id, first, first_size, last, last_size = rows
    if not is_record_of(
        part, 0, size=first_size, queue_id=queue_id, queue_offset=first, position=position
    ):
        return first
    start = size - last_size
    if not is_record_of(
        part,
        start,
        size=last_size,
        queue_id=queue_id,
        queue_offset=last,
        position=position + start,
    ):
        return last
    return None


def rows(data: Bytes) -> Iterator[tuple[int, int, int]]:
    """(position, size, tags code) of each row."""
    return QUEUE_ROW.iter_unpack(data)
