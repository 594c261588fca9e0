"""Rows of equal size, in files named by the byte of their first row."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing

from store.io.filesystem import ReadableFileSystem
from store.log.layout import parse_segment_name, segment_name

NO_END = 1 << 62
"""Behind all files."""


class RowFiles:
    """The files of one directory. They may have any size."""

    def __init__(self, fs: ReadableFileSystem, directory: str, row_size: int) -> None:
        self._fs = fs
        self.directory = directory
        self.row_size = row_size
        names = fs.list_directory(directory) if fs.exists(directory) else []
        starts = [parse_segment_name(name) for name in names]
        self.starts = [start for start in starts if start is not None]
        """The first byte of each file, in order."""
        self.strays = [name for name, start in zip(names, starts, strict=True) if start is None]
        """All other names."""
        self._sizes: dict[int, int] = {}

    def read(self, first: int, count: int) -> bytes:
        """Rows from row ``first`` on: fewer if the files end, zeros for a missing file."""
        parts: list[bytes] = []
        byte, end = first * self.row_size, (first + count) * self.row_size
        while byte < end:
            following = bisect_right(self.starts, byte)
            is_last = following == len(self.starts)
            stop = end if is_last else min(end, self.starts[following])
            part = b""
            if following:
                start = self.starts[following - 1]
                with closing(self._fs.open(self.path(start), writable=False)) as file:
                    part = file.pread(stop - byte, byte - start)
            if is_last:
                parts.append(part)
                break
            parts.append(part.ljust(stop - byte, b"\0"))
            byte = stop
        data = b"".join(parts)
        return data[: len(data) - len(data) % self.row_size]

    def locate(self, row: int) -> tuple[str, int]:
        """The path of the file that has or should have a row, and the byte of the row in it."""
        byte = row * self.row_size
        place = bisect_right(self.starts, byte) - 1
        start = self.starts[place] if place >= 0 else 0
        return self.path(start), byte - start

    def size(self, start: int) -> int:
        """The bytes of the file that begins with byte ``start``. It is asked for once."""
        if start not in self._sizes:
            with closing(self._fs.open(self.path(start), writable=False)) as file:
                self._sizes[start] = file.size()
        return self._sizes[start]

    def path(self, start: int) -> str:
        """The path of the file that begins with byte ``start``."""
        return f"{self.directory}/{segment_name(start)}"


def list_starts(fs: ReadableFileSystem, directory: str, end: int = NO_END) -> list[int]:
    """The names of the files of a directory that are numbers below ``end``, in order."""
    names = fs.list_directory(directory) if fs.exists(directory) else []
    starts = map(parse_segment_name, names)
    return [start for start in starts if start is not None and start < end]


def is_torn(found: bytes, expected: bytes) -> bool:
    """Whether an interrupted write of ``expected`` can have left ``found``.

    Sectors that did not reach the disk read as zeros.
    """
    return all(byte in (0, right) for byte, right in zip(found, expected, strict=False))
