"""The rows of the present slot of the timer wheel, in the memory of the leader.

A slot may have millions of messages. Only those that come next are kept, in the order of time, then
of offset. The others are read again once these are delivered.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from broker.state.recalled_messages import TimedKey

ROWS_MAX = 1 << 18
"""Pace: so many rows are kept when there are twice as many. A row takes 225 bytes."""

BUCKET_MS = 1000


class TimedRow(NamedTuple):
    """A row of the slot; ordered by time, then offset."""

    deliver_ms: int
    offset: int
    position: int
    size: int

    @property
    def key(self) -> TimedKey:
        return self.deliver_ms, self.offset


class SlotRows:
    """The rows that come next; false if there are none."""

    def __init__(self) -> None:
        self._buckets: dict[int, list[TimedRow]] = {}
        """The rows by second, each list in order."""
        self._seconds: list[int] = []
        """A heap of the seconds."""
        self._count = 0
        self._cut_at: TimedKey | None = None
        """Rows from this key on are left out."""

    def __bool__(self) -> bool:
        return self._count > 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TimedRow]:
        for second in sorted(self._seconds):
            yield from self._buckets[second]

    @property
    def is_cut(self) -> bool:
        """Whether rows were left out. They come after all that are here."""
        return self._cut_at is not None

    def add(self, row: TimedRow) -> None:
        """Adds a row, unless it comes after those that are kept."""
        if self._cut_at is not None and row.key >= self._cut_at:
            return
        second = row.deliver_ms // BUCKET_MS
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._buckets[second] = []
            heappush(self._seconds, second)
        insort(bucket, row)
        self._count += 1
        if self._count > 2 * ROWS_MAX:
            self._cut()

    def drop_until(self, progress: TimedKey) -> None:
        """Drops the rows up to this key: they are delivered."""
        while self._seconds:
            bucket = self._buckets[self._seconds[0]]
            delivered = bisect_right(bucket, progress, key=lambda row: row.key)
            del bucket[:delivered]
            self._count -= delivered
            if bucket:
                break
            del self._buckets[heappop(self._seconds)]

    def _cut(self) -> None:
        """Keeps the first ``ROWS_MAX`` rows."""
        for second in sorted(self._seconds, reverse=True):
            if self._count == ROWS_MAX:
                break
            bucket = self._buckets[second]
            kept = max(len(bucket) - (self._count - ROWS_MAX), 0)
            self._cut_at = bucket[kept].key
            self._count -= len(bucket) - kept
            del bucket[kept:]
            if not bucket:
                del self._buckets[second]
        self._seconds = [*self._buckets]
        heapify(self._seconds)
