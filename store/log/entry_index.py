"""The entry index: where each log entry lies, by its number.

Rows are collected in memory and written to files (:mod:`store.log.row_files`) at a checkpoint.
Recovery makes the rows after the checkpoint again from the log. So a row in a file belongs to a
committed entry and never changes.

Rows on disk are checked, and rebuilt where they are wrong, in blocks (:mod:`store.log.row_blocks`).

Threads: the storage thread calls :meth:`append` and :meth:`truncate`, or another thread does while
the storage thread has nothing to do (:mod:`store.replica`). One background thread calls
:meth:`flush` and :meth:`expire`. Any thread reads. A lock protects the rows in memory. It is held
only while bytes are copied, never during a call to the disk.
"""

from __future__ import annotations

import threading

from store.errors import DamagedError, OutOfRangeError, StoreError
from store.io.filesystem import Bytes, FileSystem
from store.log.commit_log import CommitLog
from store.log.entry_row import ROW, ROW_SIZE, EntryIndexRow
from store.log.row_blocks import BLOCK_ROWS, Bounds, RowBlocks
from store.log.row_files import RowFiles
from store.log.row_rebuild import Before, row_from_header


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
        self._blocks = RowBlocks(self._files, log, self._bounds)
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
                block = self._blocks.read(at // BLOCK_ROWS)
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
            return self._files.row(index)
        return EntryIndexRow._make(ROW.unpack(data)) if data else None

    def _recent(self, first: int, end: int) -> bytes:
        """Rows that are only in memory. With the lock held."""
        start = self.flushed_end
        return bytes(self._memory[(first - start) * ROW_SIZE : max(0, end - start) * ROW_SIZE])

    def distrust(self, used: EntryIndexRow) -> bool:
        """An entry contradicts this row; returns whether its row is another one now.

        Another reader may have had it rebuilt, or the chain proves the header of the entry. Raises
        what :meth:`rows` raises.
        """
        index = used.entry_index
        if self.row(index) != used:
            return True
        bounds = self._bounds()
        if not bounds.first_index <= index < bounds.flushed_end:
            return False
        if index > bounds.first_index:
            before = self._blocks.before(self.row(index - 1))
        else:
            before = Before(bounds.first_position, None if index else 0)
        row = row_from_header(self._log, before, index)
        if row is None or row == used:
            return False
        self._blocks.replace(row)
        return True

    @property
    def needs_repair(self) -> bool:
        """Whether a read has come upon wrong rows since :meth:`repair` began."""
        return self._blocks.needs_repair

    def repair(self) -> list[int]:
        """Writes wrong rows again that reads have come upon; durable on return. Background thread.

        Returns whose rows they were. Raises ``OSError``, and what is left stays to be repaired.
        """
        return self._blocks.repair()

    def forget_checked(self) -> None:
        """Has rows read from the disk again, for the scrub."""
        self._blocks.forget_checked()

    def forget_rebuilt(self) -> None:
        """Has blocks rebuilt anew: an entry, or a row, was written again."""
        self._blocks.forget_rebuilt()

    def _bounds(self) -> Bounds:
        with self._lock:
            flushed = self.flushed_end
            behind = self._recent(flushed, flushed + 1)
            return Bounds(self.first_index, self.first_position, flushed, self.end_index, behind)

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
        self._blocks.expire(first_index)
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
        self.forget_rebuilt()
        self.flushed_end = self.end_index = self.first_index

    def locate(self, index: int) -> tuple[str, int]:
        """The file of the row of ``index``, and the byte in that file."""
        return self._files.locate(index)

    def close(self) -> None:
        self._files.close()
