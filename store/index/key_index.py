"""The key index: where in the commit log the messages with a key lie (RocketMQ's IndexFile).

``keyindex/<20 digits>``: immutable files of sorted rows, named by the position of their first
record. Big-endian::

    byte  type  field
       0  4s    magic "DLKI"
       4  u32   version (1)
       8  i64   position of the lowest record
      16  i64   position of the highest record
      24  u32   lowest store time, s
      28  u32   highest store time, s
      32  u32   rows
      36  u32   CRC32C of the rows
      40        rows of 16 bytes: u32 key hash, i64 position of the record, u32 store time in s,
                sorted as bytes, that is by hash, then position

New rows stay in memory until a flush writes them as one more file. A lookup reads the few rows of
a hash from each file by binary search, newest file first. The hash may collide: whoever asked
compares the key itself, as RocketMQ's clients do.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass

from crc32c import crc32c

from store.errors import DamagedError
from store.io.filesystem import Bytes, File, FileSystem, ReadableFileSystem
from store.log.layout import parse_segment_name, segment_name

KEY_ROW_SIZE = 16
HEADER = struct.Struct(">4sIqqIIII")
MAGIC = b"DLKI"
VERSION = 1
_ROW = struct.Struct(">IqI")


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One sorted file, and what its header says."""

    path: str
    first_position: int
    last_position: int
    first_seconds: int
    last_seconds: int
    count: int
    crc: int


class KeyFlush:
    """Rows on their way to a file of their own; see :meth:`KeyIndex.begin_flush`."""

    def __init__(self, index: KeyIndex, rows: bytes) -> None:
        self._index = index
        self._rows = rows
        self._file: IndexFile | None = None

    def run(self) -> None:
        """Sorts, writes and syncs. Blocks; runs on a background thread."""
        self._file = self._index.write(self._rows)

    def finish(self) -> None:
        """Gives the memory back; on the event loop."""
        if self._file is not None:
            self._index.flushed(self._file, len(self._rows))


class KeyIndex:
    """All key rows of a replica: sorted files, and the newest in memory.

    Used on the event loop, but for ``KeyFlush.run`` and what says otherwise. A lock guards the list
    of the files.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._recent = bytearray()
        self._files: list[IndexFile] = []  # oldest first
        self._lock = threading.Lock()
        self.expired_position = 0
        """Nobody looks for records below it any more."""

    @property
    def files(self) -> list[IndexFile]:
        """The files on disk, oldest first. Any thread."""
        return list(self._files)

    def append(self, key_rows: Bytes) -> None:
        """Adds rows, of records behind all before."""
        self._recent += key_rows

    def lookup(self, key_hash: int, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Positions of records with that key hash stored within the times, newest first.

        Raises :class:`~store.errors.DamagedError` where a file cannot be read.
        """
        first, last = begin_ms // 1000, end_ms // 1000
        found = self._matches(bytes(self._recent), key_hash, first, last)
        found.sort(reverse=True)
        for file in reversed(self._files):
            if len(found) >= limit:
                break
            if file.first_seconds <= last and file.last_seconds >= first:
                found += sorted(self._lookup_file(file, key_hash, first, last), reverse=True)
        return found[:limit]

    @staticmethod
    def _matches(rows: bytes, key_hash: int, first: int, last: int) -> list[int]:
        wanted = key_hash.to_bytes(4, "big")
        found: list[int] = []
        place = rows.find(wanted)
        while place >= 0:
            if place % KEY_ROW_SIZE == 0:
                _, position, seconds = _ROW.unpack_from(rows, place)
                if first <= seconds <= last:
                    found.append(position)
            place = rows.find(wanted, place + 1)
        return found

    def _lookup_file(self, file: IndexFile, key_hash: int, first: int, last: int) -> list[int]:
        try:
            return self._search(file, key_hash, first, last)
        except OSError as error:
            # Not as it is: whoever asks on the event loop would have it taken for a socket's.
            raise DamagedError(file.path, 0, f"cannot be read: {error}") from error

    def _search(self, file: IndexFile, key_hash: int, first: int, last: int) -> list[int]:
        handle = self._fs.open(file.path, writable=False)
        try:
            low, high = 0, file.count
            while low < high:
                middle = (low + high) // 2
                row_hash, _, _ = self.read_row(handle, middle)
                if row_hash < key_hash:
                    low = middle + 1
                else:
                    high = middle
            found: list[int] = []
            for row in range(low, file.count):
                row_hash, position, seconds = self.read_row(handle, row)
                if row_hash != key_hash:
                    break
                if first <= seconds <= last:
                    found.append(position)
            return found
        finally:
            handle.close()

    @staticmethod
    def read_row(handle: File, row: int) -> tuple[int, int, int]:
        """Key hash, position and seconds. Raises :class:`DamagedError` where the file lacks it:
        a search that took nothing for a row would take a key for absent."""
        at = HEADER.size + row * KEY_ROW_SIZE
        data = handle.pread(KEY_ROW_SIZE, at)
        if len(data) < KEY_ROW_SIZE:
            raise DamagedError(handle.path, at + len(data), "the file is cut short")
        key_hash, position, seconds = _ROW.unpack(data)
        return key_hash, position, seconds

    # --- flushing

    def begin_flush(self) -> KeyFlush | None:
        """The rows in memory as a job, or None if there are none. One at a time."""
        return KeyFlush(self, bytes(self._recent)) if self._recent else None

    def write(self, rows: bytes) -> IndexFile:
        """Writes one sorted file; called by the flush, off the event loop."""
        # Imported here, off the event loop: a broker should not wait for NumPy to start. It sorts
        # without holding the interpreter, which a list of half a million rows would for a second.
        import numpy as np  # noqa: PLC0415 - a node that starts waits for no NumPy

        table = np.frombuffer(rows, dtype=[("hash", ">u4"), ("position", ">i8"), ("time", ">u4")])
        # Rows come in the order of their positions, so a stable sort by hash is all it takes.
        data = table[np.argsort(table["hash"].astype(np.uint32), kind="stable")].tobytes()
        file = IndexFile(
            f"{self._directory}/{segment_name(int(table['position'][0]))}",
            int(table["position"][0]),
            int(table["position"][-1]),
            int(table["time"].min()),
            int(table["time"].max()),
            len(table),
            crc32c(data),
        )
        header = HEADER.pack(
            MAGIC,
            VERSION,
            file.first_position,
            file.last_position,
            file.first_seconds,
            file.last_seconds,
            file.count,
            file.crc,
        )
        self._fs.make_directories(self._directory)
        handle = self._fs.open(file.path, create=True)
        try:
            handle.truncate(0)
            handle.pwrite(header + data, 0)
            handle.datasync()
        finally:
            handle.close()
        self._fs.sync_directory(self._directory)
        return file

    def flushed(self, file: IndexFile, size: int) -> None:
        """The first ``size`` bytes of rows in memory are in ``file`` now."""
        del self._recent[:size]
        self.exchange(None, file)

    def exchange(self, old: IndexFile | None, new: IndexFile | None) -> None:
        """A file is there, or is gone, or has taken the place of another one. Any thread."""
        with self._lock:
            kept = [file for file in self._files if old is None or file.path != old.path]
            found = kept if new is None else [*kept, new]
            self._files = sorted(found, key=lambda file: file.first_position)

    # --- start and expiry

    def restore(self, end_position: int) -> None:
        """Takes over the files that a checkpoint covers: those of records below ``end_position``.

        Files behind are removed, for their rows will come again. Raises :class:`DamagedError`.
        """
        self._recent = bytearray()
        self._files = []
        if not self._fs.exists(self._directory):
            return
        for name in self._fs.list_directory(self._directory):
            start = parse_segment_name(name)
            path = f"{self._directory}/{name}"
            if start is None:
                continue
            if start >= end_position:
                self._fs.remove(path)
                continue
            file = self.read_header(self._fs, path)
            last = self._files[-1].last_position if self._files else -1
            if not last < start == file.first_position <= file.last_position < end_position:
                raise DamagedError(path, 8, "the header says other positions than there can be")
            self._files.append(file)

    @staticmethod
    def read_header(fs: ReadableFileSystem, path: str) -> IndexFile:
        """What the header of a file says. Raises :class:`DamagedError`."""
        handle = fs.open(path, writable=False)
        try:
            header = handle.pread(HEADER.size, 0)
            size = handle.size()
        except OSError as error:
            # Not as it is: a node that starts would take it for that of a port.
            raise DamagedError(path, 0, f"cannot be read: {error}") from error
        finally:
            handle.close()
        if len(header) < HEADER.size:
            raise DamagedError(path, len(header), "the header is cut short")
        magic, version, first, last, first_s, last_s, count, crc = HEADER.unpack(header)
        if magic != MAGIC or version != VERSION:
            raise DamagedError(path, 0, "not a key index file of version 1")
        if size != HEADER.size + count * KEY_ROW_SIZE:
            raise DamagedError(path, size, f"{count} rows are not {size} bytes")
        return IndexFile(path, first, last, first_s, last_s, count, crc)

    def expire(self, position: int) -> None:
        """From now on nobody looks for records below ``position``."""
        self.expired_position = max(self.expired_position, position)

    def release(self, position: int) -> None:
        """Removes the files whose records all lie below ``position``. A checkpoint says that they
        have expired: a start from an earlier one might not yet have the entry that says so."""
        with self._lock:
            expired = [file for file in self._files if file.last_position < position]
            self._files = [file for file in self._files if file.last_position >= position]
        for file in expired:
            if self._fs.exists(file.path):
                self._fs.remove(file.path)
