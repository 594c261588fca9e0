"""The entry index: where each log entry lies, by its number.

Rows of 32 bytes (:mod:`store.log.entry_row`); row k is at byte k * 32 of the index log.

The index log is cut into files under ``index/``, each named by its first byte in 20 digits. Rows
are collected in memory and written at a checkpoint. Recovery makes the rows after the checkpoint
again from the log. So a row in a file belongs to a committed entry and never changes.

Threads: the storage thread calls :meth:`append` and :meth:`truncate`, or another thread does while
the storage thread has nothing to do (:mod:`store.replica`). One background thread calls
:meth:`flush` and :meth:`expire`. Any thread reads. A lock protects the rows in memory. It is held
only while bytes are copied, never during a call to the disk.
"""

from __future__ import annotations

import threading

from store.errors import DamagedError, OutOfRangeError, StoreError
from store.io.filesystem import Bytes, File, FileSystem
from store.io.unreadable_blocks import overwrite_blocks
from store.log.entry_row import ROW, ROW_SIZE, EntryIndexRow
from store.log.layout import parse_segment_name, segment_name

ROWS_PER_FILE = 1 << 20


class EntryIndex:
    """Rows ``first_index`` to ``end_index`` (exclusive), on disk below ``flushed_end``."""

    def __init__(
        self, fs: FileSystem, directory: str, rows_per_file: int, first_index: int, flushed_end: int
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._rows_per_file = rows_per_file
        self._lock = threading.Lock()
        self._files: dict[int, File] = {}
        self._memory = bytearray()
        self._forgotten = False
        self.first_index = first_index
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
        return EntryIndexRow._make(ROW.unpack(self.rows(index, index + 1)))

    def rows(self, first: int, end: int) -> bytes:
        """The bytes of rows ``first`` to ``end`` (exclusive), each checked to be the one asked for.

        Raises :class:`~store.errors.OutOfRangeError` for rows that the index does not hold and
        :class:`~store.errors.DamagedError` if a file does not hold what it should.
        """
        with self._lock:
            flushed = self.flushed_end
            if not self.first_index <= first < end <= self.end_index:
                raise OutOfRangeError(
                    f"entries {first} to {end - 1} are not in the log, which holds "
                    f"{self.first_index} to {self.end_index - 1}"
                )
            begin = (max(first, flushed) - flushed) * ROW_SIZE
            recent = bytes(self._memory[begin : max(0, end - flushed) * ROW_SIZE])
        if first >= flushed:
            return recent
        return self._read_files(first, min(end, flushed)) + recent

    def flush(self, end_index: int) -> None:
        """Writes the rows below ``end_index`` that are not on disk yet; durable on return."""
        with self._lock:
            first = self.flushed_end
            if end_index > self.end_index:
                raise StoreError(f"cannot flush rows to {end_index}: the log ends before")
            pending = bytes(self._memory[: max(0, end_index - first) * ROW_SIZE])
        if not pending:
            return
        index = first
        while index < end_index:
            start = index - index % self._rows_per_file
            stop = min(end_index, start + self._rows_per_file)
            rows = pending[(index - first) * ROW_SIZE : (stop - first) * ROW_SIZE]
            file = self._file(start, create=True)
            if self._forgotten or index == start:
                # Nothing in the file counts yet. A block that cannot be read could not be written
                # in part.
                file.truncate(0)
            file.pwrite(rows, (index - start) * ROW_SIZE)
            file.datasync()
            index = stop
        self._forgotten = False
        self._fs.sync_directory(self._directory)
        with self._lock:
            del self._memory[: len(pending)]
            self.flushed_end = end_index

    def rewrite_row(self, index: int, row: bytes) -> None:
        """Writes a row again that is on disk already; durable on return. Background thread.

        Rows beside it that the disk cannot read become zeros, and are damaged still.
        """
        if index >= self.flushed_end:
            return
        start = index - index % self._rows_per_file
        file = self._fs.open(self.path_of(index), create=True)
        try:
            overwrite_blocks(file, row, (index - start) * ROW_SIZE)
            file.datasync()
        finally:
            file.close()

    def expire(self, first_index: int) -> None:
        """Forgets the rows below ``first_index`` and removes the files that held no others."""
        with self._lock:
            self.first_index = first_index
        removed = False
        for name in self._fs.list_directory(self._directory):
            start_byte = parse_segment_name(name)
            if start_byte is None:
                continue
            start = start_byte // ROW_SIZE
            if start + self._rows_per_file <= first_index:
                self._files.pop(start, None)
                self._fs.remove(f"{self._directory}/{name}")
                removed = True
        if removed:
            self._fs.sync_directory(self._directory)

    def check_files(self) -> None:
        """Raises :class:`~store.errors.DamagedError` unless every row on disk seems to be there.

        Looks at the last row of each file only: rows are written in order.
        """
        for start in range(
            self.first_index - self.first_index % self._rows_per_file,
            self.flushed_end,
            self._rows_per_file,
        ):
            self.row(min(start + self._rows_per_file, self.flushed_end) - 1)

    def forget_files(self) -> None:
        """Takes no row from disk: all from ``first_index`` on will be appended, and written."""
        self._forgotten = True
        self.flushed_end = self.end_index = self.first_index

    def locate(self, index: int) -> tuple[str, int]:
        """The file of the row of ``index``, and the byte in that file."""
        return self.path_of(index), index % self._rows_per_file * ROW_SIZE

    def path_of(self, index: int) -> str:
        """The file in which the row of ``index`` lies or will lie."""
        start = index - index % self._rows_per_file
        return f"{self._directory}/{segment_name(start * ROW_SIZE)}"

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def _file(self, start: int, *, create: bool = False) -> File:
        file = self._files.get(start)
        if file is None:
            file = self._fs.open(self.path_of(start), create=create)
            self._files[start] = file
        return file

    def _read_files(self, first: int, end: int) -> bytes:
        parts = []
        index = first
        while index < end:
            start = index - index % self._rows_per_file
            stop = min(end, start + self._rows_per_file)
            path, byte = self.path_of(index), (index - start) * ROW_SIZE
            try:
                rows = self._file(start).pread((stop - index) * ROW_SIZE, byte)
            except FileNotFoundError as error:
                if first < self.first_index:
                    raise OutOfRangeError(f"entry {first} has just expired") from error
                raise DamagedError(path, 0, "file of the entry index is missing") from error
            except OSError as error:
                raise DamagedError(path, byte, f"cannot be read: {error}") from error
            _check_rows(rows, index, stop, path, byte)
            parts.append(rows)
            index = stop
        return b"".join(parts)


def _check_rows(rows: bytes, first: int, end: int, path: str, byte: int) -> None:
    if len(rows) != (end - first) * ROW_SIZE:
        raise DamagedError(path, byte + len(rows), "file of the entry index is cut short")
    for offset, row in enumerate(ROW.iter_unpack(rows)):
        if row[3] != first + offset or row[1] < 0 or row[2] <= 0:
            raise DamagedError(
                path, byte + offset * ROW_SIZE, f"not the row of entry {first + offset}"
            )
