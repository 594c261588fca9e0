"""A file system that counts the requests that an object store would get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from store.io.filesystem import ReadableFile, ReadableFileSystem

LISTS, OPENS, READS, BYTES = "lists", "opens", "reads", "bytes"


class CountingFileSystem:
    """Counts lists (also for the existence of a name), opens, reads, and bytes read."""

    def __init__(self, below: ReadableFileSystem) -> None:
        self._below = below
        self.counts: Counter[str] = Counter()
        self.listed: Counter[str] = Counter()
        """How often each directory was listed."""

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """The requests while it is open."""
        before = Counter(self.counts)
        found: Counter[str] = Counter()
        yield found
        found.update(self.counts - before)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> ReadableFile:
        self.counts[OPENS] += 1
        return CountingFile(self._below.open(path, writable=False), self.counts)

    def exists(self, path: str) -> bool:
        self.counts[LISTS] += 1
        return self._below.exists(path)

    def list_directory(self, path: str) -> list[str]:
        self.counts[LISTS] += 1
        self.listed[path] += 1
        return self._below.list_directory(path)

    def identify(self, path: str) -> str:
        return self._below.identify(path)


class CountingFile:
    """A file of :class:`CountingFileSystem`."""

    def __init__(self, file: ReadableFile, counts: Counter[str]) -> None:
        self._file = file
        self._counts = counts

    @property
    def path(self) -> str:
        return self._file.path

    def pread(self, size: int, position: int) -> bytes:
        data = self._file.pread(size, position)
        self._counts.update({READS: 1, BYTES: len(data)})
        return data

    def pread_into(self, buffer: memoryview, position: int) -> int:
        count = self._file.pread_into(buffer, position)
        self._counts.update({READS: 1, BYTES: count})
        return count

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()
