"""An open file of a simulated disk, and the lock of a directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from simulator.diskfaults import PowerLossError
from simulator.inode import Inode, resize
from store.filesystem import BLOCK_SIZE, Bytes

if TYPE_CHECKING:
    from simulator.disk import SimulatedFileSystem

SECTOR_SIZE = 512


class Writes(Protocol):
    """What a simulated process's disk does while nobody waits for it."""

    def begin(
        self,
        file: SimulatedFile,
        data: bytes,
        position: int,
        then: Callable[[OSError | None], None],
    ) -> bool:
        """See :meth:`~store.filesystem.File.begin_append`."""


class SimulatedFile:
    """An open file; useless after a crash, as a descriptor is without its process."""

    __slots__ = ("_boot", "_fs", "_inode", "_path", "_writable")

    def __init__(self, fs: SimulatedFileSystem, path: str, inode: Inode, *, writable: bool) -> None:
        self._fs = fs
        self._path = path
        self._inode = inode
        self._writable = writable
        self._boot = fs.boot

    @property
    def path(self) -> str:
        return self._path

    def pread(self, size: int, position: int) -> bytes:
        fs = self._fs
        if self._boot != fs.boot:
            self._check_open()
        fs.begin("pread", self._path)
        return bytes(self._inode.seen[position : position + size])

    def pread_into(self, buffer: memoryview, position: int) -> int:
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, data: Bytes, position: int) -> None:
        fs = self._fs
        if self._boot != fs.boot or not self._writable:
            self._check_open(writes=True)
        try:
            fs.begin("pwrite", self._path)
        except (OSError, PowerLossError):
            # As a write that was interrupted: some of it is there.
            self._put(data[: fs.rng.randrange(len(data) + 1)], position)
            raise
        if fs.capacity is not None:
            room = fs.room_for(len(self._inode.seen), position + len(data))
            if room < 0:
                self._put(data[: max(0, len(data) + room)], position)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        self._put(data, position)

    def append_direct(self, data: Bytes, position: int) -> None:
        """With the zeros that the real one may write behind, so that a wrong use shows."""
        end = position + len(data)
        self.pwrite(bytes(data) + bytes(-end % BLOCK_SIZE), position)

    def begin_append(
        self, data: Bytes, position: int, then: Callable[[OSError | None], None]
    ) -> bool:
        writes = self._fs.writes
        return writes is not None and writes.begin(self, bytes(data), position, then)

    def drop_cached(self, size: int, position: int) -> None:
        """There is no cache to drop from: reads always see what was written."""

    def datasync(self) -> None:
        inode, fs = self._inode, self._fs
        if self._boot != fs.boot or not self._writable:
            self._check_open(writes=True)
        try:
            fs.begin("datasync", self._path)
        except OSError:
            fs.write_back(inode)
            raise
        fs.sync_inode(inode)

    def size(self) -> int:
        self._check_open()
        self._fs.begin("size", self._path)
        return len(self._inode.seen)

    def truncate(self, size: int) -> None:
        self._check_open(writes=True)
        self._fs.begin("truncate", self._path)
        inode = self._inode
        first = min(size, len(inode.seen)) // self._fs.sector_size
        last = max(size, len(inode.seen)) // self._fs.sector_size
        resize(inode.seen, size)
        inode.unsynced.update(range(first, last + 1))

    def close(self) -> None:
        self._boot = -1

    def _check_open(self, *, writes: bool = False) -> None:
        if self._boot != self._fs.boot or (writes and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)

    def _put(self, data: Bytes, position: int) -> None:
        inode, size = self._inode, len(data)
        seen, end = inode.seen, position + size
        if len(seen) < position:
            resize(seen, position)
        seen[position:end] = data
        if size:
            sector_size = self._fs.sector_size
            inode.unsynced.update(range(position // sector_size, (end - 1) // sector_size + 1))


class SimulatedLock:
    """A lock that goes with its process."""

    __slots__ = ("_fs", "_path")

    def __init__(self, fs: SimulatedFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def release(self) -> None:
        self._fs.locks.pop(self._path, None)
