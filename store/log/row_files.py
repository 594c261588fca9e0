"""The files of the entry index: rows of 32 bytes (:mod:`store.log.entry_row`).

Row k is at byte k * 32 of the index log. That is cut into files under ``index/``, each named by its
first byte in 20 digits.

Threads: one background thread writes, expires and rewrites. Any thread reads.
"""

from __future__ import annotations

from store.errors import DamagedError, UnreadableError
from store.io.filesystem import Bytes, File, FileSystem
from store.io.unreadable_blocks import UNREADABLE, overwrite_blocks
from store.log.entry_row import ROW, ROW_SIZE, EntryIndexRow
from store.log.layout import parse_segment_name, segment_name

ROWS_PER_FILE = 1 << 20


class RowFiles:
    """Of one replica."""

    def __init__(self, fs: FileSystem, directory: str, rows_per_file: int) -> None:
        self._fs = fs
        self._directory = directory
        self._rows_per_file = rows_per_file
        self._files: dict[int, File] = {}

    def read(self, first: int, end: int) -> bytes:
        """The bytes of rows ``first`` to ``end`` (exclusive), as they stand there.

        Raises :class:`~store.errors.DamagedError` if they cannot be read, or are not all there, and
        :class:`~store.errors.UnreadableError` if that tells nothing of the bytes.
        """
        parts = []
        index = first
        while index < end:
            start = index - index % self._rows_per_file
            stop = min(end, start + self._rows_per_file)
            path, byte, size = self.path_of(index), (index - start) * ROW_SIZE, stop - index
            try:
                rows = self._file(start).pread(size * ROW_SIZE, byte)
            except FileNotFoundError as error:
                raise DamagedError(path, 0, "file of the entry index is missing") from error
            except OSError as error:
                kind = DamagedError if error.errno in UNREADABLE else UnreadableError
                raise kind(path, byte, f"cannot be read: {error}") from error
            if len(rows) != size * ROW_SIZE:
                raise DamagedError(path, byte + len(rows), "file of the entry index is cut short")
            parts.append(rows)
            index = stop
        return b"".join(parts)

    def row(self, index: int) -> EntryIndexRow | None:
        """What stands in the place of a row; ``None`` if it cannot be read."""
        try:
            return EntryIndexRow._make(ROW.unpack(self.read(index, index + 1)))
        except DamagedError:
            return None

    def append(self, first: int, rows: Bytes, *, anew: bool) -> None:
        """Writes rows behind those that count; durable on return. ``anew``: none counts yet.

        Rows before them that the disk cannot read become zeros, and are wrong still.
        """
        index, end = first, first + len(rows) // ROW_SIZE
        while index < end:
            start = index - index % self._rows_per_file
            stop = min(end, start + self._rows_per_file)
            file = self._file(start, create=True)
            if anew or index == start:
                file.truncate(0)  # nothing in the file counts yet
            part = rows[(index - first) * ROW_SIZE : (stop - first) * ROW_SIZE]
            overwrite_blocks(file, part, (index - start) * ROW_SIZE)
            file.datasync()
            index = stop
        self._fs.sync_directory(self._directory)

    def rewrite(self, first: int, rows: Bytes) -> None:
        """Writes rows again that are on disk already; durable on return.

        Rows beside them that the disk cannot read become zeros, and are wrong still.
        """
        index, end = first, first + len(rows) // ROW_SIZE
        while index < end:
            start = index - index % self._rows_per_file
            stop = min(end, start + self._rows_per_file)
            path = self.path_of(index)
            is_new = not self._fs.exists(path)
            file = self._fs.open(path, create=True)
            try:
                part = rows[(index - first) * ROW_SIZE : (stop - first) * ROW_SIZE]
                overwrite_blocks(file, part, (index - start) * ROW_SIZE)
                file.datasync()
            finally:
                file.close()
            if is_new:
                self._fs.sync_directory(self._directory)
            index = stop

    def last_of_each(self, first: int, end: int) -> list[int]:
        """The last row of each file among rows ``first`` to ``end`` (exclusive).

        Raises :class:`~store.errors.DamagedError` if a file is missing or too short.
        """
        per_file = self._rows_per_file
        starts = range(first - first % per_file, end, per_file)
        lasts = [min(start + per_file, end) - 1 for start in starts]
        for start, last in zip(starts, lasts, strict=True):
            try:
                size = self._file(start).size()
            except FileNotFoundError as error:
                path = self.path_of(start)
                raise DamagedError(path, 0, "file of the entry index is missing") from error
            if size < (last + 1 - start) * ROW_SIZE:
                raise DamagedError(
                    self.path_of(start), size, "file of the entry index is cut short"
                )
        return lasts

    def expire(self, first_index: int) -> None:
        """Removes the files that hold only rows below ``first_index``."""
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
