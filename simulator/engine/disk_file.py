"""An open file of a simulated disk, and the lock of a directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random
from typing import Protocol

from simulator.engine.disk_faults import PowerLossError
from simulator.engine.inode import Inode, resize
from store.io.filesystem import BLOCK_SIZE, Bytes

SECTOR_SIZE = 512


class AsyncWriter(Protocol):
    """Asynchronous writes of a simulated process."""

    def begin(
        self,
        file: SimulatedFile,
        data: bytes,
        position: int,
        then: Callable[[OSError | None], None],
    ) -> bool:
        """See :meth:`~store.io.filesystem.File.begin_append`."""


class Disk(Protocol):
    """What a file needs of its disk; see ``engine/disk.py``."""

    rng: Random
    boot: int
    capacity: int | None
    sector_size: int
    writes: AsyncWriter | None
    locks: dict[str, SimulatedLock]

    def begin(self, operation: str, path: str) -> None:
        """A call begins. Raises the error of a fault."""

    def room_for(self, size: int, end: int) -> int:
        """How far a file of ``size`` bytes may be written if it is to reach ``end``."""
        raise NotImplementedError


class SimulatedFile:
    """An open file. After a crash it is invalid, as a descriptor without its process."""

    __slots__ = ("_boot", "_end", "_fs", "_inode", "_path", "_writable")

    def __init__(self, fs: Disk, path: str, inode: Inode, *, writable: bool) -> None:
        self._fs = fs
        self._path = path
        self._inode = inode
        self._writable = writable
        self._boot = fs.boot
        self._end = -1
        """Where the last direct append ended. The bytes of its last block are in memory."""

    @property
    def path(self) -> str:
        return self._path

    def pread(self, size: int, position: int) -> bytes:
        fs = self._fs
        if self._boot != fs.boot:
            self._check_open()
        fs.begin("pread", self._path)
        inode = self._inode
        if inode.hidden and inode.first_hidden(position, position + size) is not None:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        return bytes(inode.seen[position : position + size])

    def pread_into(self, buffer: memoryview, position: int) -> int:
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, data: Bytes, position: int) -> None:
        self._end = -1
        self._write(data, position)

    def _write(self, data: Bytes, position: int) -> None:
        fs = self._fs
        if self._boot != fs.boot or not self._writable:
            self._check_open(writes=True)
        try:
            fs.begin("pwrite", self._path)
        except (OSError, PowerLossError):
            # As after an interrupted write: a part of it is there.
            self._put(data[: fs.rng.randrange(len(data) + 1)], position)
            raise
        if fs.capacity is not None:
            room = fs.room_for(len(self._inode.seen), position + len(data))
            if room < 0:
                self._put(data[: max(0, len(data) + room)], position)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        if self._inode.hidden:
            self._write_hidden(data, position)
        self._put(data, position)

    def _write_hidden(self, data: Bytes, position: int) -> None:
        """Covers whole unreadable blocks, or fails at the first that it covers in part: the page
        cache would have to read that one."""
        inode, end = self._inode, position + len(data)
        while (block := inode.first_hidden(position, end)) is not None:
            begin = block * BLOCK_SIZE
            if begin < position or begin + BLOCK_SIZE > end:
                self._put(data[: max(begin - position, 0)], position)
                raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
            inode.hidden.remove(block)

    def append_direct(self, data: Bytes, position: int) -> None:
        """With the zeros that the real call may write behind, so that a wrong use shows."""
        end, head = position + len(data), position % BLOCK_SIZE
        inode, block = self._inode, position // BLOCK_SIZE
        if head and block in inode.hidden:
            if position != self._end:
                self.pread(head, position - head)  # which the block must begin with
            inode.hidden.remove(block)  # the block is written as a whole, from memory
            inode.unsynced.update(self._sectors(position - head, end))
        self._write(bytes(data) + bytes(-end % BLOCK_SIZE), position)
        self._end = end

    def allocate(self, size: int, position: int) -> bool:
        self.pwrite(bytes(size), position)
        return True

    def begin_append(
        self, data: Bytes, position: int, then: Callable[[OSError | None], None]
    ) -> bool:
        writes = self._fs.writes
        return writes is not None and writes.begin(self, bytes(data), position, then)

    def drop_cached(self, size: int, position: int) -> None:
        """There is no cache to drop pages from: reads always see the newest bytes."""

    def datasync(self) -> None:
        inode, fs = self._inode, self._fs
        if self._boot != fs.boot or not self._writable:
            self._check_open(writes=True)
        try:
            fs.begin("datasync", self._path)
        except OSError:
            inode.write_back(fs.rng, fs.sector_size)
            raise
        inode.sync(fs.sector_size)

    def size(self) -> int:
        self._check_open()
        self._fs.begin("size", self._path)
        return len(self._inode.seen)

    def truncate(self, size: int) -> None:
        self._check_open(writes=True)
        self._fs.begin("truncate", self._path)
        inode = self._inode
        if size < len(inode.seen) and size % BLOCK_SIZE and size // BLOCK_SIZE in inode.hidden:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        inode.cut_blocks(size)
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
            inode.unsynced.update(self._sectors(position, end))

    def _sectors(self, begin: int, end: int) -> range:
        sector_size = self._fs.sector_size
        return range(begin // sector_size, (end - 1) // sector_size + 1)


class SimulatedLock:
    """A lock that goes with its process."""

    __slots__ = ("_fs", "_path")

    def __init__(self, fs: Disk, path: str) -> None:
        self._fs = fs
        self._path = path

    def release(self) -> None:
        self._fs.locks.pop(self._path, None)
