"""The newest applied entries, in memory for readers of the end of the log.

A leader may apply entries that a majority holds before its own disk has them. So the newest
messages are not always in the log's files. Besides, consumers that keep up should cost no system
calls.
"""

from __future__ import annotations

from bisect import bisect_right

from broker.limits import PRODUCE
from store.log.entry import Entry

_ENTRY_OVERHEAD_BYTES = 256
_TRIM_AFTER = 1024


class RecentEntries:
    """A window over the end of the applied log. Memory is shared with other holders."""

    def __init__(self, bytes_max: int = PRODUCE.recent_bytes_max) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._first = 0  # entries before this index are dropped; they are removed together later
        self._positions: list[int] = []
        self._data: list[memoryview] = []

    def add(self, entry: Entry) -> None:
        """Adds the next applied entry. Entries that no longer fit are dropped, oldest first."""
        self._positions.append(entry.position)
        self._data.append(memoryview(entry.data))
        self._bytes += len(entry.data) + _ENTRY_OVERHEAD_BYTES
        while self._bytes > self._bytes_max and self._first < len(self._data) - 1:
            self._bytes -= len(self._data[self._first]) + _ENTRY_OVERHEAD_BYTES
            self._data[self._first] = memoryview(b"")
            self._first += 1
        if self._first >= _TRIM_AFTER:
            del self._positions[: self._first], self._data[: self._first]
            self._first = 0

    def read(self, position: int, size: int) -> memoryview | None:
        """Bytes of the commit log that lie within one entry of the window, else None."""
        place = bisect_right(self._positions, position, self._first) - 1
        if place < self._first:
            return None
        start = position - self._positions[place]
        data = self._data[place]
        return data[start : start + size] if start + size <= len(data) else None
