"""Finding messages of a queue and bringing their records, from memory or the disk.

Which answer a pull gets is RocketMQ's table (``DefaultMessageStore.getMessage``); see
:class:`Status`. Rows of a ConsumeQueue say where the records lie; rows that follow each other in
the log are read as one range, so that a pull costs a few reads and not one for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from store.batch import QUEUE_ROW
from store.consumequeue import ConsumeQueue
from store.errors import StoreError
from store.filesystem import Bytes

SCAN_ROWS_MIN = 800
"""How many rows a filtered pull looks at, at least: RocketMQ's 16,000 bytes."""


class Status(Enum):
    """How a pull ended; the names are those of RocketMQ's ``GetMessageStatus``.

    ``MESSAGE_WAS_REMOVING`` is not among them: queues forget rows before the log forgets records.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_RESET = "OFFSET_RESET"


class Range(NamedTuple):
    """Records that lie one behind the other in the commit log."""

    position: int
    size: int


class Limits(NamedTuple):
    """How much one pull may bring; it always brings at least one message."""

    messages: int
    bytes: int


class Found(NamedTuple):
    """What a pull brings. ``min_offset`` and ``max_offset`` bound the queue, max exclusive."""

    status: Status
    next_offset: int
    min_offset: int
    max_offset: int
    ranges: Sequence[Range] = ()
    messages: int = 0


class Log(Protocol):
    """What is needed of :class:`~dledger.checkedreads.CheckedReads`."""

    def at_hand(self, position: int, size: int) -> Bytes | None: ...

    def read(
        self,
        ranges: Sequence[tuple[int, int]],
        done: Callable[[Sequence[Bytes] | None, BaseException | None], None],
    ) -> None: ...


class Applied(Protocol):
    """What is needed of :class:`~broker.machine.BrokerStateMachine`."""

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None: ...

    def end_offset(self, topic: str, queue_id: int) -> int: ...

    def recent(self, position: int, size: int) -> Bytes | None: ...


class MessageReader:
    """Reads what is applied on this node."""

    def __init__(self, log: Log, applied: Applied, leads: Callable[[], bool]) -> None:
        """``leads``: whether this node's state is the newest there is."""
        self._log = log
        self._applied = applied
        self._leads = leads

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The queue's minimum offset and the offset that its next message will get."""
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
        limits: Limits,
        codes: frozenset[int] | None = None,
    ) -> Found:
        """The messages from ``offset`` on whose tags code is among ``codes`` (None: all)."""
        queue = self._applied.queue(topic, queue_id)
        first, end = self.offsets(topic, queue_id)
        if first <= offset < end and queue is not None:
            return _scan(queue, offset, limits, codes)
        if offset > end and not self._leads():
            # A follower may lag: the asked offset can be right, and is not to be corrected.
            return Found(Status.OFFSET_OVERFLOW_ONE, offset, first, end)
        if end == 0:
            return Found(Status.NO_MESSAGE_IN_QUEUE, 0, first, end)
        if offset == end:
            return Found(Status.OFFSET_OVERFLOW_ONE, offset, first, end)
        if offset > end:
            return Found(Status.OFFSET_OVERFLOW_BADLY, end, first, end)
        return Found(Status.OFFSET_TOO_SMALL, first, first, end)

    def load(
        self,
        ranges: Sequence[Range],
        done: Callable[[Sequence[Bytes], StoreError | None], None],
    ) -> None:
        """Brings the bytes of ``ranges``; ``done`` is called now if all of them are in memory.

        The error is :class:`~store.errors.OutOfRangeError` where the records have just expired, or
        where this node's own disk is so far behind the group that it does not have them yet, and
        :class:`~store.errors.DamagedError` where the disk has damaged their entry.
        """
        parts: list[Bytes] = []
        missing: list[int] = []
        recent, at_hand = self._applied.recent, self._log.at_hand
        for position, size in ranges:
            part = recent(position, size) or at_hand(position, size)
            if part is None:
                missing.append(len(parts))
                part = b""
            parts.append(part)
        if not missing:
            done(parts, None)
            return

        def came(read: Sequence[Bytes] | None, error: BaseException | None) -> None:
            if isinstance(error, StoreError):
                done((), error)
                return
            if error is not None:
                raise error
            for place, part in zip(missing, read or (), strict=True):
                parts[place] = part
            done(parts, None)

        self._log.read([ranges[place] for place in missing], came)


def _scan(queue: ConsumeQueue, offset: int, limits: Limits, codes: frozenset[int] | None) -> Found:
    count = limits.messages if codes is None else max(SCAN_ROWS_MIN, limits.messages)
    ranges: list[Range] = []
    messages = examined = total = start = end = 0
    for position, size, code in rows(queue.read(offset, count)):
        if codes is None or code in codes:
            if messages and (total + size > limits.bytes or messages == limits.messages):
                break
            messages += 1
            total += size
            if position != end:
                if end:
                    ranges.append(Range(start, end - start))
                start = position
            end = position + size
        examined += 1
    status = Status.NO_MATCHED_MESSAGE
    if messages:
        ranges.append(Range(start, end - start))
        status = Status.FOUND
    return Found(status, offset + examined, queue.first_offset, queue.end_offset, ranges, messages)


def rows(data: Bytes) -> Iterator[tuple[int, int, int]]:
    """(position, size, tags code) of each row."""
    return QUEUE_ROW.iter_unpack(data)
