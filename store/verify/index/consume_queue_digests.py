"""Digests of the ConsumeQueue rows in the log: CRCs of the rows of each queue.

A range of the log has rows of many queues, and each queue has files of its own. So the check of a
range opens none of these files. Later, tasks compare each file once with the CRCs of all ranges
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

    ``digests``: number of a range, and digest of its rows. The checkpoint covers the rows before
    ``covered_end``. ``tail`` is from ``state/tails``.
    """

    key: QueueKey
    first_offset: int
    end_offset: int
    digests: tuple[tuple[int, RowsDigest], ...]
    covered_end: int
    tail: Tail | None = None


class QueueFindings(NamedTuple):
    """Findings about the files of a queue.

    ``shape``: about names and sizes. ``behind``: about seals, the tail, and rows behind the end;
    they count only if no row is wrong.
    """

    shape: tuple[Finding, ...] = ()
    behind: tuple[Finding, ...] = ()


class TakenQueue:
    """One queue, by the entries taken so far."""

    __slots__ = ("begin", "covered_end", "cut", "digests", "end", "end_known", "first")

    def __init__(self, first_offset: int) -> None:
        self.first: tuple[int, bool, int, int] = (first_offset, False, -1, 0)
        """The first offset; whether all entries before it were read; index and position of its
        entry."""
        self.end = first_offset
        self.end_known = True
        """False behind entries that could not be read."""
        self.begin: int | None = None
        """The first offset that is neither deleted nor expired, once it was taken."""
        self.covered_end = first_offset
        self.digests: list[tuple[int, RowsDigest]] = []
        """Number of the range (0 while a range is checked), and digest of rows."""
        self.cut = False
        """Whether the next rows begin a digest of their own."""

    def digest(self, first_offset: int, rows: bytes) -> None:
        """Takes rows. Rows that follow the last ones continue their digest."""
        number, crcs = 0, (0, 0)
        end_offset = first_offset + len(rows) // ROW_SIZE
        if self.digests and not self.cut and self.digests[-1][1].end_offset == first_offset:
            number, last = self.digests.pop()
            first_offset, crcs = last.first_offset, last.crcs
        self.cut = False
        self.digests.append((number, RowsDigest(first_offset, end_offset, row_crcs(rows, crcs))))
