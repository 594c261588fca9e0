"""The key index: where in the commit log the messages with a key lie (RocketMQ's IndexFile).

It consists of immutable files of sorted rows (:mod:`store.index.key_file`). Each file has the rows
of one flush, and covers a range of the log. New rows stay in memory until the next flush. A lookup
usually reads one page of each file, newest file first. Hashes may collide: the caller compares the
key itself, as RocketMQ's clients do.

A damaged file is *pending*: a lookup that may need it is refused. Its range of the log is read
again, and a new file replaces it (:meth:`KeyIndex.remake`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from store.errors import DamagedError, DerivedDamageError
from store.index.key_file import (
    KEY_ROW_SIZE,
    ROW,
    IndexFile,
    describe,
    read_file,
    read_page,
)
from store.io.atomic_file import replace_file
from store.io.filesystem import Bytes, FileSystem
from store.log.layout import parse_segment_name, segment_name


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
        """Frees the memory of the rows. Event loop."""
        if self._file is not None:
            self._index.flushed(self._file, len(self._rows))


class KeyIndex:
    """All key rows of a replica: sorted files, and the newest rows in memory.

    Event loop, unless a method says otherwise. A lock guards the list of the files.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self.fs = fs
        self._directory = directory
        self._recent = bytearray()
        self._files: list[IndexFile] = []  # oldest first
        self._pending: dict[int, DamagedError] = {}
        self._lock = threading.Lock()
        self.doubtful: dict[str, IndexFile] = {}
        """Files with a damaged page, by path. The scrub checks them next."""
        self.on_damage: Callable[[int], None] = lambda _position: None
        """Called with the position of the log from which on a file must be rebuilt."""
        self.expired_position = 0
        """Records below it have expired."""

    @property
    def files(self) -> list[IndexFile]:
        """The files on disk that are not pending, oldest first. Any thread."""
        return list(self._files)

    @property
    def pending(self) -> Mapping[int, DamagedError]:
        """What is wrong with each pending file, by its first position. Any thread."""
        return dict(self._pending)

    @property
    def files_end(self) -> int | None:
        """The position of the first record whose rows are in memory only; ``None`` without any.

        Any thread. Read it before :attr:`files`: a flush may end in between.
        """
        first = bytes(self._recent[4:12])
        return int.from_bytes(first, "big") if first else None

    def append(self, key_rows: Bytes) -> None:
        """Adds rows. Their records lie behind those of all earlier rows."""
        self._recent += key_rows

    def lookup(self, key_hash: int, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Positions of records with that key hash and a store time within the range, newest first.

        Raises :class:`~store.errors.DerivedDamageError` if a file that may have some is damaged.
        """
        first, last = begin_ms // 1000, end_ms // 1000
        found = _matches_in_many(self._recent, key_hash, first, last)
        found.sort(reverse=True)
        if len(found) < limit and self._pending:
            raise self._damaged(*next(iter(self._pending.items())))
        for file in reversed(self._files):
            if len(found) >= limit:
                break
            if file.first_seconds <= last and file.last_seconds >= first:
                found += sorted(self._lookup_file(file, key_hash, first, last), reverse=True)
        return found[:limit]

    def _lookup_file(self, file: IndexFile, key_hash: int, first: int, last: int) -> list[int]:
        try:
            return self._search(file, key_hash, first, last)
        except DamagedError as error:
            self.doubtful[file.path] = file
            raise self._damaged(file.first_position, error) from error
        except OSError as error:
            # An OSError on the event loop would be taken for an error of a socket.
            raise DamagedError(file.path, 0, f"cannot be read: {error}") from error

    def _search(self, file: IndexFile, key_hash: int, first: int, last: int) -> list[int]:
        try:
            handle = self.fs.open(file.path, writable=False)
        except FileNotFoundError as error:
            raise DamagedError(file.path, 0, "the file is missing") from error
        try:
            found: list[int] = []
            for page in range(file.page_of(key_hash), file.page_count):
                rows = read_page(handle, file, page)
                found += _matches(rows, key_hash, first, last)
                if int.from_bytes(rows[-KEY_ROW_SIZE:][:4], "big") > key_hash:
                    break
            return found
        finally:
            handle.close()

    def _damaged(self, start: int, error: DamagedError) -> DerivedDamageError:
        """The error to raise for the file that begins at ``start``. Its rows may begin right behind
        those of the file before: who rebuilds it must read the log from there on."""
        before = [file.last_position for file in self._files if file.first_position < start]
        position = before[-1] + 1 if before else 0
        self.on_damage(position)
        return DerivedDamageError(error.path, error.position, error.reason, position)

    def suspend(self, file: IndexFile, error: DamagedError) -> None:
        """Makes a damaged file pending. Any thread."""
        with self._lock:
            if file in self._files:
                self._files = [each for each in self._files if each is not file]
                self._pending[file.first_position] = error

    # --- flushing

    def begin_flush(self) -> KeyFlush | None:
        """A job that writes the rows in memory; ``None`` without rows. One at a time."""
        return KeyFlush(self, bytes(self._recent)) if self._recent else None

    def write(self, rows: bytes) -> IndexFile:
        """Writes one sorted file. Background thread."""
        # Imported here, on a background thread: a start must not wait for NumPy. NumPy sorts
        # without the interpreter's lock. Sorting a list of half a million rows holds it for 1 s.
        import numpy as np  # noqa: PLC0415 - a start must not wait for NumPy

        table = np.frombuffer(rows, dtype=[("hash", ">u4"), ("position", ">i8"), ("time", ">u4")])
        # The rows are in the order of their positions, so a stable sort by hash is enough.
        data = table[np.argsort(table["hash"].astype(np.uint32), kind="stable")].tobytes()
        name = segment_name(int(table["position"][0]))
        file = describe(f"{self._directory}/{name}", data)
        self.fs.make_directories(self._directory)
        replace_file(self.fs, self._directory, name, file.header + data + file.pages)
        return file

    def flushed(self, file: IndexFile, size: int) -> None:
        """The first ``size`` bytes of rows in memory are in ``file`` now."""
        del self._recent[:size]
        self._replace(file.first_position, file.first_position + 1, file)

    def remake(self, begin: int, end: int, rows: bytes) -> IndexFile | None:
        """Replaces the files that begin at a position from ``begin`` to before ``end`` by one file.

        ``rows`` are all rows of the records in that range; without rows there is no new file.
        Durable on return. Background thread.
        """
        new = self.write(rows) if rows else None
        kept = None if new is None else new.path
        for name in self.fs.list_directory(self._directory):
            start, path = parse_segment_name(name), f"{self._directory}/{name}"
            if start is not None and begin <= start < end and path != kept:
                self.fs.remove(path)
        self._replace(begin, end, new)
        return new

    def _replace(self, begin: int, end: int, new: IndexFile | None) -> None:
        with self._lock:
            kept = [file for file in self._files if not begin <= file.first_position < end]
            found = kept if new is None else [*kept, new]
            self._files = sorted(found, key=lambda file: file.first_position)
            self._pending = {
                start: error for start, error in self._pending.items() if not begin <= start < end
            }

    # --- start and expiry

    def restore(self, end_position: int) -> None:
        """Sets the index to the files that a checkpoint covers: of records below ``end_position``.

        Later files are removed, because their rows are applied again. Damaged files are pending.
        """
        self._recent = bytearray()
        self._files = []
        self._pending = {}
        if not self.fs.exists(self._directory):
            return
        for name in self.fs.list_directory(self._directory):
            start = parse_segment_name(name)
            path = f"{self._directory}/{name}"
            if start is None:
                continue
            if start >= end_position:
                self.fs.remove(path)
                continue
            try:
                file = read_file(self.fs, path)
                last = self._files[-1].last_position if self._files else -1
                if not last < start == file.first_position <= file.last_position < end_position:
                    raise DamagedError(path, 8, "the header says other positions than there can be")
            except DamagedError as error:
                self._pending[start] = error
            else:
                self._files.append(file)

    def expire(self, position: int) -> None:
        """Records below ``position`` have expired."""
        self.expired_position = max(self.expired_position, position)

    def release(self, position: int) -> None:
        """Removes the files whose records all lie below ``position``.

        A checkpoint must say that these records have expired. After a start from an earlier one,
        the entry that says so may still be missing.
        """
        with self._lock:
            expired = [file for file in self._files if file.last_position < position]
            self._files = [file for file in self._files if file.last_position >= position]
        for file in expired:
            if self.fs.exists(file.path):
                self.fs.remove(file.path)


def _matches_in_many(rows: bytearray, key_hash: int, first: int, last: int) -> list[int]:
    """As :func:`_matches`, for rows since the last checkpoint: there may be half a million.

    NumPy takes 0.05 ms for 131,072 rows, and the search for bytes 1.3 ms. After an outage a
    producer asks for thousands of keys. It may not be loaded yet, or not entirely.
    """
    numpy: Any = sys.modules.get("numpy")
    frombuffer, flatnonzero = (
        getattr(numpy, "frombuffer", None),
        getattr(numpy, "flatnonzero", None),
    )
    if not rows or frombuffer is None or flatnonzero is None:
        return _matches(rows, key_hash, first, last)
    hashes = frombuffer(rows, dtype=">u4")[:: KEY_ROW_SIZE // 4]
    found: list[int] = []
    for number in flatnonzero(hashes == key_hash).tolist():
        _, position, seconds = ROW.unpack_from(rows, number * KEY_ROW_SIZE)
        if first <= seconds <= last:
            found.append(position)
    return found


def _matches(rows: bytes | bytearray, key_hash: int, first: int, last: int) -> list[int]:
    wanted = key_hash.to_bytes(4, "big")
    found: list[int] = []
    place = rows.find(wanted)
    while place >= 0:
        if place % KEY_ROW_SIZE == 0:
            _, position, seconds = ROW.unpack_from(rows, place)
            if first <= seconds <= last:
                found.append(position)
        place = rows.find(wanted, place + 1)
    return found
