"""Blocks of the entry index: 128 rows, the 4 KiB that a disk loses or misplaces at a time.

The log is their checksum: entries follow each other in index and term, and each lies where the one
before ends, or at the start of the next segment. A block counts only if all its rows follow each
other, the row before and the row behind. A wrong block is rebuilt from the headers of its entries
(:mod:`store.log.row_rebuild`) for whoever reads it, and then written again by
:meth:`RowBlocks.repair`.

Threads: any thread reads. One background thread calls :meth:`RowBlocks.repair`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from store.errors import DamagedError, OutOfRangeError, UnreadableError
from store.log.commit_log import CommitLog
from store.log.entry import HEADER_SIZE, KINDS
from store.log.entry_row import ROW, ROW_SIZE, EntryIndexRow, follows
from store.log.row_files import RowFiles
from store.log.row_rebuild import Before, rows_from_headers, stated_chain_crc

BLOCK_ROWS = 128
BLOCKS_KEPT = 64
"""Blocks in memory, 256 KiB. Readers go on where they were, and rows on disk never change."""

BLOCKS_BACK_MAX = 16
"""A wrong block is rebuilt from the block before, which may have to be rebuilt first. If more in a
row are wrong, rows are refused until the scrub, which begins with the first, has come by."""


class Block(NamedTuple):
    """The rows of a block that are retained and on disk. Unknown rows have no size."""

    first: int
    rows: bytes
    is_known: bool = True
    """Whether no row is unknown."""

    @property
    def end(self) -> int:
        """The entry behind the last one."""
        return self.first + len(self.rows) // ROW_SIZE

    def row(self, index: int) -> EntryIndexRow:
        """One of the rows."""
        at = (index - self.first) * ROW_SIZE
        return EntryIndexRow._make(ROW.unpack(self.rows[at : at + ROW_SIZE]))


class Bounds(NamedTuple):
    """What an entry index holds, at one moment: see :class:`~store.log.entry_index.EntryIndex`.

    ``behind``: the row of the entry ``flushed_end``, if there is one.
    """

    first_index: int
    first_position: int
    flushed_end: int
    end_index: int
    behind: bytes


class RowBlocks:
    """Of one entry index."""

    def __init__(self, files: RowFiles, log: CommitLog, bounds: Callable[[], Bounds]) -> None:
        self._files = files
        self._log = log
        self._bounds = bounds
        self._lock = threading.Lock()
        self._kept: dict[int, Block] = {}
        """Checked and rebuilt blocks by number, the oldest first."""
        self._wrong: dict[int, Block] = {}
        """Rebuilt blocks that are wrong on disk."""
        self.needs_repair = False
        """Whether a wrong block was found since :meth:`repair` began."""

    def read(self, number: int, blocks_back: int = BLOCKS_BACK_MAX) -> Block:
        """A block, checked or rebuilt.

        Raises :class:`~store.errors.DamagedError` if too many before it are wrong, and
        :class:`~store.errors.OutOfRangeError` if rows have expired meanwhile.
        """
        bounds = self._bounds()
        first = max(number * BLOCK_ROWS, bounds.first_index)
        end = min((number + 1) * BLOCK_ROWS, bounds.flushed_end)
        with self._lock:
            for blocks in (self._kept, self._wrong):
                found = blocks.get(number)
                if found is not None and found.is_known and end <= found.end:
                    return found
        begin = max(first - 1, bounds.first_index)
        try:
            rows = self._files.read(begin, min(end + 1, bounds.flushed_end))
            if end == bounds.flushed_end:
                rows += bounds.behind
            self._check(rows, begin, bounds)
        except UnreadableError:
            raise
        except DamagedError as error:
            return self._rebuild(number, first, end, bounds, blocks_back, error)
        has_one_behind = len(rows) // ROW_SIZE > end - begin
        rows = rows[(first - begin) * ROW_SIZE : (end - begin) * ROW_SIZE]
        block = Block(first, rows)
        if has_one_behind and end % BLOCK_ROWS == 0:
            self._keep(self._kept, number, block)
        return block

    def _rebuild(  # noqa: PLR0917 - a block, and what is known of the index and of the block
        self,
        number: int,
        first: int,
        end: int,
        bounds: Bounds,
        blocks_back: int,
        error: DamagedError,
    ) -> Block:
        """Raises ``error`` if too many blocks before are wrong."""
        if first == bounds.first_index:
            chain_crc = None if first else 0
            before = Before(bounds.first_position, chain_crc, expired=first > 0)
        elif blocks_back:
            block = self.read(number - 1, blocks_back - 1)
            if not block.rows:
                raise OutOfRangeError(f"entry {first - 1} has just expired") from error
            before = self.before(block.row(first - 1))
        else:
            raise error
        on_disk = self._on_disk(first, end)
        rows = rows_from_headers(self._log, before, first, on_disk, last=bounds.end_index - 1)
        if self._bounds().first_index != bounds.first_index:
            raise OutOfRangeError(f"entry {first} may have just expired") from error
        packed = b"".join(ROW.pack(*row) for row in rows)
        block = Block(first, packed, is_known=all(row.size for row in rows))
        differs = any(row.size and row != stood for row, stood in zip(rows, on_disk, strict=True))
        self._keep_rebuilt(number, block, is_wrong=differs)
        return block

    def before(self, row: EntryIndexRow) -> Before:
        """What a row says to the one behind it."""
        chain_crc = stated_chain_crc(self._log, row.position) if row.size else None
        return Before(row.end, chain_crc, row.term)

    def _on_disk(self, first: int, end: int) -> list[EntryIndexRow | None]:
        try:
            rows = self._files.read(first, end)
        except DamagedError:
            return [self._files.row(index) for index in range(first, end)]
        return [EntryIndexRow._make(row) for row in ROW.iter_unpack(rows)]

    def _keep_rebuilt(self, number: int, block: Block, *, is_wrong: bool) -> None:
        if is_wrong:
            self._keep(self._wrong, number, block)
            self.needs_repair = True
        if block.is_known:
            self._keep(self._kept, number, block)

    def _keep(self, blocks: dict[int, Block], number: int, block: Block) -> None:
        with self._lock:
            blocks[number] = block
            if len(blocks) > BLOCKS_KEPT:
                del blocks[next(iter(blocks))]

    def _check(self, rows: bytes, begin: int, bounds: Bounds) -> None:
        """Raises :class:`~store.errors.DamagedError` unless the rows follow each other."""
        before, behind = 0, bounds.first_position if begin == bounds.first_index else -1
        for index, fields in enumerate(ROW.iter_unpack(rows), begin):
            magic, position, size, stated, term = fields
            # Most entries lie behind the one before, in the same term.
            if (
                position != behind
                or stated != index
                or term != before
                or magic not in KINDS
                or size < HEADER_SIZE
            ):
                row = EntryIndexRow._make(fields)
                if stated != index or not follows(row, behind, before, self._log.segment_size):
                    reason = f"not the row of entry {index}, or of the one before"
                    raise DamagedError(*self._files.locate(index), reason)
            before, behind = term, position + size

    def replace(self, row: EntryIndexRow) -> None:
        """The row of an entry is another one, as its header proves."""
        number = row.entry_index // BLOCK_ROWS
        block = self.read(number)
        if not block.first <= row.entry_index < block.end:
            return
        at = (row.entry_index - block.first) * ROW_SIZE
        rows = block.rows[:at] + ROW.pack(*row) + block.rows[at + ROW_SIZE :]
        self._keep_rebuilt(number, block._replace(rows=rows), is_wrong=True)

    def forget_checked(self) -> None:
        """Has rows read from the disk again, for the scrub."""
        with self._lock:
            self._kept.clear()

    def forget_rebuilt(self) -> None:
        """Has blocks rebuilt anew: an entry, or a row, was written again."""
        with self._lock:
            self._kept.clear()
            self._wrong.clear()

    def repair(self) -> list[int]:
        """Writes rebuilt blocks where rows on disk are wrong; durable on return. Background thread.

        Returns whose rows were wrong. Raises ``OSError``, and what is left stays to be repaired.
        """
        self.needs_repair = False
        with self._lock:
            numbers = list(self._wrong)
        for number in numbers:
            for beside in (number - 1, number + 1):  # the wrong row may be at its border
                bounds = self._bounds()
                if bounds.first_index <= beside * BLOCK_ROWS < bounds.flushed_end:
                    with suppress(DamagedError, OutOfRangeError):
                        self.read(beside)
        wrong: list[int] = []
        with self._lock:
            pending = dict(self._wrong)
        for number, block in pending.items():
            first_index = self._bounds().first_index
            rows = map(EntryIndexRow._make, ROW.iter_unpack(block.rows))
            retained = [row for row in rows if row.entry_index >= first_index]
            for is_known, group in groupby(retained, key=lambda row: row.size > 0):
                run = list(group)
                found = [row for row in run if self._files.row(row.entry_index) != row]
                if is_known and found:
                    self._files.rewrite(run[0].entry_index, b"".join(ROW.pack(*row) for row in run))
                    wrong += (row.entry_index for row in found)
            with self._lock:
                if self._wrong.get(number) is block:
                    del self._wrong[number]
        return sorted(wrong)

    def expire(self, first_index: int) -> None:
        """Forgets blocks that hold only rows below ``first_index``."""
        with self._lock:
            for blocks in (self._kept, self._wrong):
                for number in [each for each in blocks if each < first_index // BLOCK_ROWS]:
                    del blocks[number]
