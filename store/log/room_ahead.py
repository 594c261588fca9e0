"""How far, and in which way, the room ahead of the log is prepared.

Small appends get zeros: a sync that changes no extent does not wait for the file system's journal.
Large ones get room that is only reserved. Zeros would write each byte of the log twice, and where
an append is large the journal costs little beside its bytes. On ext4 and an NVMe disk, three logs
at once, written past the page cache (median and 99th percentile of an append, MB/s of all)::

    append     zeros               reserved
    4 KiB      0.12  0.20    57    0.20  0.35    43
    128 KiB    0.17  1.43   880    0.32  0.50   840
    256 KiB    0.24  2.40  1120    0.40  0.57  1300
    512 KiB    0.80  3.30  1170    0.67  1.36  1550
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from store.log.layout import segment_start
from store.log.segment import Segment

ZEROED_AHEAD = 32 << 20
"""Bytes at most: enough for a second of heavy load."""
ZEROED_AT_FIRST = 4 << 20
"""Bytes with which zeros begin. Each time that half of them is used, twice as many are written: so
a node that starts, or whose load has just become a small one, does not keep its disk busy with
zeros that it may not need for minutes."""
LARGE_APPEND = 192 << 10
"""Bytes of an append, on average, from which room is only reserved, in a large segment."""
LARGE_APPENDS_IN_SEGMENT = 16
"""In a small segment appends are large of which it holds no more than these."""
APPENDS_AHEAD = 16
"""How much room is reserved, in appends."""
SMALL_IN_A_ROW = 16
"""After so many small appends the room that was reserved for large ones gets zeros, a step before
each append that has none. So a large append now and then costs no more than a step of zeros for
each 16 small ones."""


class Room(NamedTuple):
    """The room in one segment, as offsets of its end."""

    start: int
    """The segment's."""
    found: int
    wanted: int


class RoomAhead:
    """Samples the sizes of appends. The background thread reads what the others count."""

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self._large = min(LARGE_APPEND, segment_size // LARGE_APPENDS_IN_SEGMENT)
        self.appends = 0
        self._small = 0
        self.reserved = 0
        """Bytes to reserve ahead; 0 where zeros are written instead."""
        self._enough = range(0)
        """For these ends of the log there is enough room."""
        self._zeroed_ahead = ZEROED_AT_FIRST
        self._sampled: tuple[int, int] | None = None
        """Appends, and the log's end, the last time."""

    @property
    def size(self) -> int:
        """How far the room runs ahead of the log's end."""
        return self.reserved or self._zeroed_ahead

    @property
    def needs_zeros(self) -> bool:
        """Whether room that is only reserved should get zeros before it is used."""
        return self._small >= SMALL_IN_A_ROW

    def count(self, size: int) -> None:
        """Counts an append of so many bytes; called by whoever appends."""
        self.appends += 1
        self._small = self._small + 1 if size < self._large else 0

    def sample(self, end: int) -> None:
        """Looks at the appends since the last time, as half of the room is used. ``end`` is the
        log's."""
        self._enough = range(0)
        appends = self.appends
        before, self._sampled = self._sampled, (appends, end)
        if before is None or appends == before[0]:
            return
        count, size = appends - before[0], end - before[1]
        large = size >= count * self._large
        self.reserved = min(APPENDS_AHEAD * size // count, ZEROED_AHEAD) if large else 0
        if large:
            self._zeroed_ahead = ZEROED_AT_FIRST
        elif size >= self._zeroed_ahead // 2:
            self._zeroed_ahead = min(2 * self._zeroed_ahead, ZEROED_AHEAD)

    def rooms(self, end: int, segments: Mapping[int, Segment], part: int = 1) -> list[Room]:
        """The segments in which the log goes on from ``end``: the next one counts, too, once half
        of the present one is used. The room may run ``size // part`` bytes ahead."""
        size, ahead = self._segment_size, self.size // part
        first = segment_start(end, size)
        rooms = []
        for start in (first,) if end - first < size // 2 else (first, first + size):
            segment = segments.get(start)
            found = 0 if segment is None else segment.zeroed_end
            rooms.append(Room(start, found, max(min(size, end + ahead - start), 0)))
        return rooms

    def is_enough(self, end: int, segments: Mapping[int, Segment]) -> bool:
        """Whether at least half of the room is left. Asked after each append, so a long look tells
        for which ends of the log there is no need for another."""
        if end in self._enough:
            return True
        rooms = self.rooms(end, segments, 2)
        if any(room.found < room.wanted for room in rooms):
            return False
        size = self._segment_size
        used_up = [room.start + room.found - self.size // 2 for room in rooms if room.found < size]
        half = size // 2 if len(rooms) == 1 else size
        self._enough = range(end, min([rooms[0].start + half, *(place + 1 for place in used_up)]))
        return True
