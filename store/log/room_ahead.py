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

ZEROED_AHEAD = 32 << 20
"""Bytes: enough for a second of heavy load, and little enough that a node that starts does not fill
its disk's queue with zeros."""
LARGE_APPEND = 256 << 10
"""Bytes of an append, on average, from which room is only reserved."""
APPENDS_AHEAD = 16
"""How much room is reserved, in appends."""
SMALL_IN_A_ROW = 16
"""After so many small appends the room that was reserved for large ones gets zeros, a step before
each append that has none. So a large append now and then costs no more than a step of zeros for
each 16 small ones."""


class RoomAhead:
    """Samples the sizes of appends. The background thread reads what the others count."""

    def __init__(self) -> None:
        self.appends = 0
        self._small = 0
        self.reserved = 0
        """Bytes to reserve ahead; 0 where zeros are written instead."""
        self._sampled: tuple[int, int] | None = None
        """Appends, and the log's end, the last time."""

    @property
    def size(self) -> int:
        """How far the room runs ahead of the log's end."""
        return self.reserved or ZEROED_AHEAD

    @property
    def needs_zeros(self) -> bool:
        """Whether room that is only reserved should get zeros before it is used."""
        return self._small >= SMALL_IN_A_ROW

    def count(self, size: int) -> None:
        """Counts an append of so many bytes; called by whoever appends."""
        self.appends += 1
        self._small = self._small + 1 if size < LARGE_APPEND else 0

    def sample(self, end: int) -> None:
        """Looks at the appends since the last time. ``end`` is the log's."""
        appends = self.appends
        before, self._sampled = self._sampled, (appends, end)
        if before is not None and (count := appends - before[0]) > 0:
            size = end - before[1]
            large = size >= count * LARGE_APPEND
            self.reserved = min(APPENDS_AHEAD * size // count, ZEROED_AHEAD) if large else 0
