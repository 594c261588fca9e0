"""What the log says of a ConsumeQueue: CRCs of its rows in place of the rows.

A range of the log has rows of any number of queues, and each queue has files of its own. So a
range opens none of them. Tasks compare the files later, each once, with the CRCs of all ranges
(:mod:`store.verify.index.file_tasks`).
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c
from isal.isal_zlib import crc32

from store.index.block_seals import ROW_SIZE, Tail
from store.io.filesystem import Bytes
from store.verify.findings import Finding
from store.verify.plan.ranges import QueueKey, RowsDigest


def row_crcs(rows: Bytes, before: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """CRC32C and CRC-32 of rows, continued from ``before``."""
    return crc32c(rows, before[0]), crc32(rows, before[1])


class ExpectedQueue(NamedTuple):
    """What the files of a queue must hold, from ``first_offset`` to before ``end_offset``.

    ``digests`` has the rows of each range, with its number. The checkpoint covers those before
    ``covered_end``. ``tail`` is from ``state/tails``.
    """

    key: QueueKey
    first_offset: int
    end_offset: int
    digests: tuple[tuple[int, RowsDigest], ...]
    covered_end: int
    tail: Tail | None = None


class QueueFindings(NamedTuple):
    """Findings about the files of a queue. ``behind`` counts only if no row is wrong."""

    shape: tuple[Finding, ...] = ()
    behind: tuple[Finding, ...] = ()


class TakenQueue:
    """One queue as the log gives it."""

    __slots__ = ("begin", "covered_end", "cut", "digests", "end", "end_known", "first")

    def __init__(self, first_offset: int) -> None:
        self.first: tuple[int, bool, int, int] = (first_offset, False, -1, 0)
        """The first offset, whether all entries before it were read, and index and position of
        its entry."""
        self.end = first_offset
        self.end_known = True
        """False behind entries that could not be read."""
        self.begin: int | None = None
        """The first offset that is neither deleted nor expired, if the log has come to it."""
        self.covered_end = first_offset
        self.digests: list[tuple[int, RowsDigest]] = []
        """With the number of the range; 0 in the range at hand."""
        self.cut = False
        """Whether the next rows begin a digest of their own."""

    def digest(self, first_offset: int, rows: bytes) -> None:
        """Takes rows. Those that follow the last ones continue its digest."""
        number, crcs = 0, (0, 0)
        end_offset = first_offset + len(rows) // ROW_SIZE
        if self.digests and not self.cut and self.digests[-1][1].end_offset == first_offset:
            number, last = self.digests.pop()
            first_offset, crcs = last.first_offset, last.crcs
        self.cut = False
        self.digests.append((number, RowsDigest(first_offset, end_offset, row_crcs(rows, crcs))))
