"""The entry index: where each log entry lies, by its number.

Rows are collected in memory and written to files (:mod:`store.log.row_files`) at a checkpoint.
Recovery makes the rows after the checkpoint again from the log. So a row in a file belongs to a
committed entry and never changes.

Rows on disk are checked in blocks of 128, the 4 KiB that a disk loses or misplaces at a time. The
log is their checksum: entries follow each other in index and term, and each lies where the one
before ends, or at the start of the next segment. A block counts only if all its rows follow each
other, the row before and the row behind. A wrong block is rebuilt from the headers of its entries
(:mod:`store.log.row_rebuild`) for whoever reads it, and then written again by :meth:`repair`.

Threads: the storage thread calls :meth:`append` and :meth:`truncate`, or another thread does while
the storage thread has nothing to do (:mod:`store.replica`). One background thread calls
:meth:`flush` and :meth:`expire`. Any thread reads. A lock protects the rows in memory. It is held
only while bytes are copied, never during a call to the disk.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from store.errors import DamagedError, OutOfRangeError, StoreError
from store.io.filesystem import Bytes, FileSystem
from store.log.commit_log import CommitLog
from store.log.entry import HEADER_SIZE, KINDS
from store.log.entry_row import ROW, ROW_SIZE, EntryIndexRow, follows
from store.log.row_files import RowFiles
from store.log.row_rebuild import Before, rows_from_headers, stated_chain_crc

BLOCK_ROWS = 128
BLOCKS_KEPT = 64
"""Blocks in memory, 256 KiB. Readers go on where they were, and rows on disk never change."""

BLOCKS_BACK_MAX = 4
"""A wrong block is rebuilt from the block before, which may have to be rebuilt first. If more in a
row are wrong, rows are refused until the scrub, which begins with the first, has come by."""


class _Block(NamedTuple):
    first: int
    rows: bytes

    @property
    def end(self) -> int:
        return self.first + len(self.rows) // ROW_SIZE


class _Span(NamedTuple):
    """Rows ``first`` to ``end`` (exclusive), and the bounds of the index at one moment."""

    first: int
    end: int
    first_index: int
    first_position: int
    flushed_end: int
    end_index: int


class EntryIndex:
    """Rows ``first_index`` to ``end_index`` (exclusive), on disk below ``flushed_end``."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        rows_per_file: int,
        log: CommitLog,
        *,
        first_index: int,
        first_position: int,
        flushed_end: int,
    ) -> None:
        """``log`` has the entries. It begins with ``first_index`` at ``first_position``."""
        self._files = RowFiles(fs, directory, rows_per_file)
        self._log = log
        self._lock = threading.Lock()
        self._memory = bytearray()
        self._forgotten = False
        self._blocks: dict[int, _Block] = {}
        """By number, the oldest first."""
        self._rebuilt: dict[int, _Block] = {}
        """Blocks that may be wrong on disk."""
        self.needs_repair = False
        """Whether a block was rebuilt since :meth:`repair` began."""
        self.first_index = first_index
        self.first_position = first_position
        self.flushed_end = flushed_end
        self.end_index = flushed_end

    def append(self, rows: Bytes) -> None:
        """Adds the rows of the next entries."""
        with self._lock:
            self._memory += rows
            self.end_index += len(rows) // ROW_SIZE

    def truncate(self, first_index: int) -> None:
        """Drops the rows from ``first_index`` on, none of which may be on disk yet."""
        with self._lock:
            if first_index < self.flushed_end:
                raise StoreError(
                    f"cannot truncate from index {first_index}: checkpointed to {self.flushed_end}"
                )
            del self._memory[(first_index - self.flushed_end) * ROW_SIZE :]
            self.end_index = first_index

    def row(self, index: int) -> EntryIndexRow:
        """The row of an entry. Raises what :meth:`rows` raises, and
        :class:`~store.errors.DamagedError` if it is unknown."""
        row = EntryIndexRow._make(ROW.unpack(self.rows(index, index + 1)))
        if not row.size:
            raise self.unknown(index)
        return row

    def position(self, index: int) -> int:
        """Where an entry lies; if that is unknown, where the last one before it ends that is known.

        Raises what :meth:`rows` raises.
        """
        return EntryIndexRow._make(ROW.unpack(self.rows(index, index + 1))).position

    def unknown(self, index: int) -> DamagedError:
        """The error for a row that is wrong on disk, and whose entry is damaged, too."""
        what = f"neither the row nor the header of entry {index} is right"
        return DamagedError(*self.locate(index), what)

    def rows(self, first: int, end: int) -> bytes:
        """The bytes of rows ``first`` to ``end`` (exclusive), checked. Unknown rows have no size.

        Raises :class:`~store.errors.OutOfRangeError` for rows that the index does not hold and
        :class:`~store.errors.DamagedError` if too many before them are wrong.
        """
        with self._lock:
            flushed = self.flushed_end
            if not self.first_index <= first < end <= self.end_index:
                raise OutOfRangeError(
                    f"entries {first} to {end - 1} are not in the log, which holds "
                    f"{self.first_index} to {self.end_index - 1}"
                )
            recent = self._recent(max(first, flushed), end)
        parts = []
        at, stop = first, min(end, flushed)
        while at < stop:
            try:
                block = self._block(at // BLOCK_ROWS)
            except (DamagedError, OutOfRangeError) as error:
                if at < self.first_index:
                    raise OutOfRangeError(f"entry {at} has just expired") from error
                if isinstance(error, DamagedError):
                    raise
                continue  # only rows before these have just expired
            if at < block.first:
                raise OutOfRangeError(f"entry {at} has just expired")
            part_end = min(stop, block.end)
            rows = block.rows[(at - block.first) * ROW_SIZE : (part_end - block.first) * ROW_SIZE]
            parts.append(rows)
            at = part_end
        return b"".join((*parts, recent))

    def unchecked_row(self, index: int) -> EntryIndexRow | None:
        """What stands where the row of ``index`` should; ``None`` if that cannot be read."""
        with self._lock:
            recent = index >= self.flushed_end
            data = self._recent(index, index + 1) if recent else b""
        if not recent:
            try:
                data = self._files.read(index, index + 1)
            except DamagedError:
                return None
        return EntryIndexRow._make(ROW.unpack(data)) if data else None

    def _recent(self, first: int, end: int) -> bytes:
        """Rows that are only in memory. With the lock held."""
        start = self.flushed_end
        return bytes(self._memory[(first - start) * ROW_SIZE : max(0, end - start) * ROW_SIZE])

    # --- blocks

    def _block(self, number: int, blocks_back: int = BLOCKS_BACK_MAX) -> _Block:
        """The rows of a block that are retained and on disk."""
        with self._lock:
            found = self._blocks.get(number) or self._rebuilt.get(number)
            span = self._span(number)
            behind = self._recent(self.flushed_end, self.flushed_end + 1)
        if found is not None and span.end <= found.end:
            return found
        begin = max(span.first - 1, span.first_index)
        try:
            rows = self._files.read(begin, min(span.end + 1, span.flushed_end))
            self._check(rows + behind if span.end == span.flushed_end else rows, begin, span)
        except DamagedError as error:
            if begin < self.first_index:
                raise OutOfRangeError(f"entry {begin} has just expired") from error
            return self._rebuild(number, span, error, blocks_back)
        rows = rows[(span.first - begin) * ROW_SIZE : (span.end - begin) * ROW_SIZE]
        return self._keep(self._blocks, number, _Block(span.first, rows))

    def _span(self, number: int) -> _Span:
        """With the lock held."""
        first = max(number * BLOCK_ROWS, self.first_index)
        end = min((number + 1) * BLOCK_ROWS, self.flushed_end)
        return _Span(
            first, end, self.first_index, self.first_position, self.flushed_end, self.end_index
        )

    def _rebuild(self, number: int, span: _Span, error: DamagedError, blocks_back: int) -> _Block:
        """Raises ``error`` where the log does not say what the rows are."""
        if span.first == span.first_index:
            chain_crc = None if span.first else 0
            before = Before(span.first_position, chain_crc, expired=span.first > 0)
        elif blocks_back:
            block = self._block(number - 1, blocks_back - 1)
            row = EntryIndexRow._make(ROW.unpack(block.rows[-ROW_SIZE:]))
            before = Before(row.end, stated_chain_crc(self._log, row.position), row.term)
        else:
            raise error
        on_disk = [self.unchecked_row(index) for index in range(span.first, span.end)]
        last = span.end_index - 1
        rows = rows_from_headers(self._log, before, span.first, on_disk, last=last)
        block = _Block(span.first, b"".join(ROW.pack(*row) for row in rows))
        self._keep(self._rebuilt, number, block)
        self.needs_repair = True
        return self._keep(self._blocks, number, block)

    def _keep(self, blocks: dict[int, _Block], number: int, block: _Block) -> _Block:
        with self._lock:
            blocks[number] = block
            if len(blocks) > BLOCKS_KEPT:
                del blocks[next(iter(blocks))]
        return block

    def _check(self, rows: bytes, begin: int, span: _Span) -> None:
        """Raises :class:`~store.errors.DamagedError` unless the rows follow each other."""
        before, behind = 0, span.first_position if begin == span.first_index else -1
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
                    raise DamagedError(*self.locate(index), reason)
            before, behind = term, position + size

    def distrust(self, index: int) -> bool:
        """Rebuilds the block of a row that its entry contradicts; returns whether that changed it.

        Raises what :meth:`rows` raises.
        """
        number = index // BLOCK_ROWS
        with self._lock:
            span = self._span(number)
        if not span.first <= index < span.end:
            return False
        rows = self._block(number).rows
        error = DamagedError(*self.locate(index), f"the row of entry {index} is not what it says")
        return self._rebuild(number, span, error, BLOCKS_BACK_MAX).rows != rows

    def forget_checked(self) -> None:
        """Has rows read from the disk again, for the scrub."""
        with self._lock:
            self._blocks.clear()

    def forget_block(self, index: int) -> None:
        """Has the block of a row looked at anew: its entry, or its row, was written again."""
        with self._lock:
            for blocks in (self._blocks, self._rebuilt):
                blocks.pop(index // BLOCK_ROWS, None)

    def repair(self) -> list[int]:
        """Writes rebuilt blocks where rows on disk are wrong; durable on return. Background thread.

        Returns whose rows were wrong. Raises ``OSError``, and what is left stays to be repaired.
        """
        self.needs_repair = False
        with self._lock:
            numbers = list(self._rebuilt)
        for number in numbers:
            for beside in (number - 1, number + 1):  # the wrong row may be at its border
                if self.first_index <= beside * BLOCK_ROWS < self.flushed_end:
                    with suppress(DamagedError, OutOfRangeError):
                        self._block(beside)
        wrong: list[int] = []
        with self._lock:
            rebuilt = dict(self._rebuilt)
        for number, block in rebuilt.items():
            rows = [EntryIndexRow._make(row) for row in ROW.iter_unpack(block.rows)]
            found = [row.entry_index for row in rows if self.unchecked_row(row.entry_index) != row]
            wrong += [index for index in found if rows[index - block.first].size]
            for is_known, run in groupby(rows, key=lambda row: row.size > 0):
                run_rows = list(run)
                if found and is_known:
                    packed = b"".join(ROW.pack(*row) for row in run_rows)
                    self._files.rewrite(run_rows[0].entry_index, packed)
            with self._lock:
                self._rebuilt.pop(number, None)
        return sorted(wrong)

    def flush(self, end_index: int) -> None:
        """Writes the rows below ``end_index`` that are not on disk yet; durable on return."""
        with self._lock:
            first = self.flushed_end
            if end_index > self.end_index:
                raise StoreError(f"cannot flush rows to {end_index}: the log ends before")
            pending = bytes(self._memory[: max(0, end_index - first) * ROW_SIZE])
        if not pending:
            return
        self._files.append(first, pending, anew=self._forgotten)
        self._forgotten = False
        with self._lock:
            del self._memory[: len(pending)]
            self.flushed_end = end_index

    def rewrite_row(self, index: int, row: bytes) -> None:
        """Writes a row again that is on disk already; durable on return. Background thread."""
        if index < self.flushed_end:
            self._files.rewrite(index, row)

    def expire(self, first_index: int, first_position: int) -> None:
        """Forgets the rows below ``first_index``, whose entry lies at ``first_position``, and
        removes the files that held no others."""
        with self._lock:
            self.first_index, self.first_position = first_index, first_position
        self._files.expire(first_index)

    def check_files(self) -> None:
        """Raises :class:`~store.errors.DamagedError` if a file is missing or too short, or its end
        is lost and cannot be rebuilt at once.
        """
        for last in self._files.last_of_each(self.first_index, self.flushed_end):
            self.row(last)

    def forget_files(self) -> None:
        """Takes no row from disk: all from ``first_index`` on will be appended, and written."""
        self._forgotten = True
        self._blocks.clear()
        self._rebuilt.clear()
        self.flushed_end = self.end_index = self.first_index

    def locate(self, index: int) -> tuple[str, int]:
        """The file of the row of ``index``, and the byte in that file."""
        return self._files.locate(index)

    def close(self) -> None:
        self._files.close()
