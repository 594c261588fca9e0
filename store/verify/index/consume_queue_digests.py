"""What the log says of a ConsumeQueue, by CRCs of its rows instead of the rows themselves.

A range of the log has rows of any number of queues, each of which has files of its own. So a range
opens none of them. The files are compared later, each of them once, with the CRCs of all ranges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from crc32c import crc32c
from isal.isal_zlib import crc32

from store.index.block_seals import ROW_SIZE, Tail
from store.io.filesystem import Bytes
from store.state.machine_state import QueueLength
from store.verify.findings import Finding
from store.verify.index.consume_queue_files import QueueFiles
from store.verify.plan.ranges import RowsDigest, WrongRows


def row_crcs(rows: Bytes, before: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """CRC32C and CRC-32 of rows, going on from those ``before``."""
    return crc32c(rows, before[0]), crc32(rows, before[1])


class ExpectedQueue(NamedTuple):
    """What the files of a queue must hold: rows from ``first_offset`` on, and of each range by its
    number those that it has digested. Behind ``end_offset`` there are none.

    The checkpoint covers those before ``covered_end``; ``tail`` is what ``state/tails`` says.
    """

    topic: str
    queue_id: int
    first_offset: int
    end_offset: int
    digests: tuple[tuple[int, RowsDigest], ...]
    covered_end: int
    tail: Tail | None = None


class QueueFindings(NamedTuple):
    """What is wrong with files of a queue as files; ``behind`` counts where no row is wrong."""

    shape: tuple[Finding, ...] = ()
    behind: tuple[Finding, ...] = ()


class TakenQueue:
    """One queue as the log gives it."""

    __slots__ = (
        "begin",
        "covered_end",
        "cut",
        "digests",
        "end",
        "end_known",
        "files",
        "first",
        "length",
        "wrong",
    )

    def __init__(self, files: QueueFiles, length: QueueLength | None, first_offset: int) -> None:
        self.first: tuple[int, bool, int, int] = (first_offset, False, -1, 0)
        """The first offset, whether it follows what was before, and the entry that has it."""
        self.files = files
        self.length = length
        self.end = first_offset
        self.end_known = True
        """Not so behind entries that could not be read."""
        self.begin: int | None = None
        """The first offset neither deleted nor expired, once the log has come to it."""
        self.covered_end = first_offset
        self.wrong: list[WrongRows] = []
        self.digests: list[tuple[int, RowsDigest]] = []
        """Of ranges by their numbers; 0 in the one at hand."""
        self.cut = False
        """Whether the next rows begin another digest."""

    def digest(self, first_offset: int, rows: bytes) -> None:
        """Notes what rows there must be; those that follow the last ones go on with its CRCs."""
        number, crcs = 0, (0, 0)
        if self.digests and not self.cut and self.digests[-1][1].end_offset == first_offset:
            number, last = self.digests.pop()
            first_offset, crcs = last.first_offset, last.crcs
            end_offset = last.end_offset + len(rows) // ROW_SIZE
        else:
            end_offset = first_offset + len(rows) // ROW_SIZE
        self.cut = False
        self.digests.append((number, RowsDigest(first_offset, end_offset, row_crcs(rows, crcs))))

    def add_wrong(self, wrong: WrongRows) -> None:
        last = self.wrong[-1] if self.wrong else None
        if last is None or last.path != wrong.path or last.offset_last != wrong.offset_first - 1:
            self.wrong.append(wrong)
        else:
            self.wrong[-1] = replace(
                last, offset_last=wrong.offset_last, index_last=wrong.index_last
            )
