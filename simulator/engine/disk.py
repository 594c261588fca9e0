"""A disk in memory that loses unsynced writes, tears sectors, fills up and fails on demand.

The rules are the worst that POSIX allows a disk and a file system:

* A written sector reaches the disk only with a sync of its file. At a power loss each unsynced
  sector is kept or lost on its own, in no order, and so is the growth of a file.
* A name reaches the disk only with a sync of its directory. At a power loss each unsynced
  create, rename, link and remove has happened or not, on its own.
* A block of 4 KiB with an unreadable sector fails every read that touches it. It also fails every
  write that does not cover it, because the page cache reads before it changes a part. Written as a
  whole it reads well again, and a sync makes that last.
* After a failed sync the sectors it should have written are *clean*: they read as written, and no
  later sync writes them. A power loss reveals what the disk has ("Can Applications Recover from
  fsync Failures?", ATC '20).

One random generator decides all of it, so a run repeats exactly. Nothing here is thread-safe: a
simulated cluster runs in one thread.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

from simulator.engine.disk_faults import Fault, FaultyCalls, PowerLossError
from simulator.engine.disk_file import SECTOR_SIZE, AsyncWriter, SimulatedFile, SimulatedLock
from simulator.engine.inode import Directory, Inode
from store.io.filesystem import BLOCK_SIZE, Bytes

__all__ = ["SECTOR_SIZE", "Fault", "PowerLossError", "SimulatedFile", "SimulatedFileSystem"]


class SimulatedFileSystem(FaultyCalls):
    """One machine's disk. See the module, and :class:`~store.io.filesystem.FileSystem`.

    ``capacity`` bounds the bytes of all files together. ``on_call`` gets each call. ``writes`` does
    the appends that nobody waits for; without it there are none.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        capacity: int | None = None,
        sector_size: int = SECTOR_SIZE,
        on_call: Callable[[str, str], None] | None = None,
    ) -> None:
        super().__init__(on_call)
        self.rng = rng
        self.capacity = capacity
        self.sector_size = sector_size
        self.boot = 0
        self.writes: AsyncWriter | None = None
        self.locks: dict[str, SimulatedLock] = {}
        self._directories: dict[str, Directory] = {"/": Directory()}

    # Calls of a program.

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> SimulatedFile:
        directory, name = self._split(path)
        inode = directory.seen.get(name)
        if inode is None:
            if not create:
                raise _no_such_file(path)
            self.begin("create", path)
            inode = directory.seen[name] = Inode()
        return SimulatedFile(self, _clean(path), inode, writable=writable)

    def write(self, path: str, data: Bytes, position: int) -> None:
        self.open(path, create=True).pwrite(data, position)

    def exists(self, path: str) -> bool:
        self.begin("exists", path)
        parent, name = _parts(path)
        directory = self._directories.get(parent)
        return (directory is not None and name in directory.seen) or (
            _clean(path) in self._directories
        )

    def list_directory(self, path: str) -> list[str]:
        self.begin("list_directory", path)
        path = _clean(path)
        directory = self._directory(path)
        children = [
            name
            for parent, name in map(_parts, self._directories)
            if parent == path and name  # "/" has no parent
        ]
        return sorted([*directory.seen, *children])

    def identify(self, path: str) -> str:
        return _clean(path)

    def make_directories(self, path: str, *, sync: bool = True) -> None:  # noqa: ARG002 - of the interface
        # A directory's own name is durable at once, also without a sync.
        path = _clean(path)
        missing = []
        while path not in self._directories:
            missing.append(path)
            path = posixpath.dirname(path)
        for directory in reversed(missing):
            self.begin("make_directory", directory)
            self._directories[directory] = Directory()

    def rename(self, source: str, target: str) -> None:
        from_directory, from_name = self._split(source)
        to_directory, to_name = self._split(target)
        if from_name not in from_directory.seen:
            raise _no_such_file(source)
        self.begin("rename", target)
        to_directory.seen[to_name] = from_directory.seen.pop(from_name)

    def link(self, source: str, target: str) -> None:
        from_directory, from_name = self._split(source)
        to_directory, to_name = self._split(target)
        if from_name not in from_directory.seen:
            raise _no_such_file(source)
        if to_name in to_directory.seen:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        self.begin("link", target)
        to_directory.seen[to_name] = from_directory.seen[from_name]

    def remove(self, path: str) -> None:
        directory, name = self._split(path)
        if name not in directory.seen:
            raise _no_such_file(path)
        self.begin("remove", path)
        del directory.seen[name]

    def remove_tree(self, path: str) -> None:
        path = _clean(path)
        if path not in self._directories:
            with suppress(FileNotFoundError):
                self.remove(path)
            return
        self.begin("remove_tree", path)
        for other in [name for name in self._directories if f"{name}/".startswith(f"{path}/")]:
            del self._directories[other]

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        self.begin("sync_directory", path)
        directory.disk = dict(directory.seen)

    def sync_all(self, path: str) -> None:
        path = _clean(path)
        below = [
            self._directories[each]
            for each in sorted(self._directories)
            if each == path or each.startswith(f"{path}/")
        ]
        inodes = [inode for directory in below for inode in directory.seen.values()]
        try:
            self.begin("sync_all", path)
        except OSError:
            for inode in inodes:
                inode.write_back(self.rng, self.sector_size)
            raise
        for inode in inodes:
            inode.sync(self.sector_size)
        for directory in below:
            directory.disk = dict(directory.seen)

    def free_bytes(self, path: str) -> int:
        self.begin("free_bytes", path)
        if self.capacity is None:
            return 1 << 60
        return max(0, self.capacity - self.used_bytes())

    def total_bytes(self, path: str) -> int:
        self.begin("total_bytes", path)
        return 1 << 60 if self.capacity is None else self.capacity

    def lock(self, path: str) -> SimulatedLock:
        path = _clean(path)
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        directory, name = self._split(path)
        if name not in directory.seen:
            self.begin("create", path)
            directory.seen[name] = Inode()
        self.locks[path] = SimulatedLock(self, path)
        return self.locks[path]

    # Events of the machine.

    def crash(self) -> None:
        """The process ends. The next one sees everything that it wrote."""
        self.boot += 1
        self.locks.clear()
        self.power_on()

    def power_loss(self, *, keep: float = 0.5) -> None:
        """The machine ends. Each unsynced sector and name survives with probability ``keep``."""
        self.crash()
        done: set[int] = set()
        for path in sorted(self._directories):
            directory = self._directories[path]
            self._settle_names(directory, keep)
            for name in sorted(directory.disk):
                inode = directory.disk[name]
                if id(inode) not in done:
                    done.add(id(inode))
                    inode.write_back(self.rng, self.sector_size, keep)
                    inode.seen[:] = inode.disk
                    inode.hidden = set(inode.unreadable)
            directory.seen = dict(directory.disk)

    def wipe(self) -> None:
        """Replaces the disk by an empty one."""
        self.crash()
        self._directories = {"/": Directory()}

    def replace_with(self, other: SimulatedFileSystem) -> None:
        """The other disk is put in the place of this one. The machine is without power
        meanwhile."""
        self.crash()
        self._directories = other._directories

    def flip_bit(self, path: str, byte: int, bit: int = 0) -> None:
        """Damage at rest: the disk and every reader have the flipped bit."""
        inode = self._inode(path)
        for data in (inode.seen, inode.disk):
            if byte < len(data):
                data[byte] ^= 1 << bit

    def overwrite(self, path: str, data: Bytes, position: int) -> None:
        """A misdirected or stale write of the disk itself."""
        inode = self._inode(path)
        for target in (inode.seen, inode.disk):
            target[position : position + len(data)] = data

    def cut(self, path: str, size: int) -> None:
        """Damage at rest: the file loses its end."""
        inode = self._inode(path)
        for data in (inode.seen, inode.disk):
            del data[size:]
        inode.cut_blocks(size)

    def swap(self, one: str, other: str) -> None:
        """Swaps the names of two files, durably."""
        here, there = self._inode(one), self._inode(other)
        for path, inode in ((one, there), (other, here)):
            directory, name = self._split(path)
            directory.seen[name] = directory.disk[name] = inode

    def lose_sector(self, path: str, byte: int, size: int = 1) -> None:
        """The disk cannot read the blocks of these bytes, and no page cache has them.

        Raises :class:`ValueError` for bytes that the file has not.
        """
        inode = self._inode(path)
        if not 0 <= byte < byte + size <= len(inode.seen):
            raise ValueError(f"{path} has no bytes {byte} to {byte + size - 1}")
        for blocks in (inode.unreadable, inode.hidden):
            blocks.update(range(byte // BLOCK_SIZE, (byte + size - 1) // BLOCK_SIZE + 1))

    def vanish(self, path: str) -> None:
        """Removes the file, durably."""
        directory, name = self._split(path)
        directory.seen.pop(name, None)
        directory.disk.pop(name, None)

    def copy(self) -> SimulatedFileSystem:
        """A copy of the disk for another machine, with what is durable and what is not."""
        other = SimulatedFileSystem(self.rng, capacity=self.capacity, sector_size=self.sector_size)
        copies: dict[int, Inode] = {}

        def copied(inode: Inode) -> Inode:
            if id(inode) not in copies:
                copies[id(inode)] = inode.copy()
            return copies[id(inode)]

        for path, directory in self._directories.items():
            other._directories[path] = twin = Directory()
            twin.seen = {name: copied(inode) for name, inode in directory.seen.items()}
            twin.disk = {name: copied(inode) for name, inode in directory.disk.items()}
        return other

    # For tests.

    def durable_bytes(self, path: str, position: int = 0, size: int = -1) -> bytes | None:
        """The bytes of the disk itself under this name, from ``position`` on; all for a ``size`` of
        -1.

        ``None`` if the name is not on disk.
        """
        parent, _, name = path.rpartition("/")
        directory = self._directories.get(parent or "/")
        inode = None if directory is None else directory.disk.get(name)
        if inode is None:
            return None
        return bytes(inode.disk[position : position + size] if size >= 0 else inode.disk)

    def holds(self, directory_path: str, name: str, position: int, data: Bytes) -> bool:
        """Whether the disk itself has these bytes, under this name in that directory."""
        directory = self._directories.get(directory_path)
        inode = None if directory is None else directory.disk.get(name)
        return inode is not None and inode.holds_readable(data, position)

    def visible_bytes(self, path: str) -> bytes:
        """The bytes that a program reads from the file."""
        return bytes(self._inode(path).seen)

    def files(self) -> list[str]:
        """The paths of all files that a program sees, in order."""
        return sorted(
            posixpath.join(path, name)
            for path, directory in self._directories.items()
            for name in directory.seen
        )

    def has_files_below(self, path: str) -> bool:
        """Whether a program sees a file somewhere below this directory."""
        return any(
            directory.seen and f"{each}/".startswith(f"{path}/")
            for each, directory in self._directories.items()
        )

    def used_bytes(self) -> int:
        inodes = {
            id(inode): len(inode.seen)
            for directory in self._directories.values()
            for inode in directory.seen.values()
        }
        return sum(inodes.values())

    # For the file.

    def room_for(self, size: int, end: int) -> int:
        """Bytes left when a file of ``size`` bytes has grown to ``end``; negative for too few."""
        if self.capacity is None or end <= size:
            return 0
        return self.capacity - self.used_bytes() - (end - size)

    def _settle_names(self, directory: Directory, keep: float) -> None:
        for name in sorted({*directory.seen, *directory.disk}):
            seen = directory.seen.get(name)
            if seen is directory.disk.get(name) or self.rng.random() >= keep:
                continue
            if seen is None:
                del directory.disk[name]
            else:
                directory.disk[name] = seen

    def _inode(self, path: str) -> Inode:
        directory, name = self._split(path)
        try:
            return directory.seen[name]
        except KeyError:
            raise _no_such_file(path) from None

    def _split(self, path: str) -> tuple[Directory, str]:
        parent, name = _parts(path)
        directory = self._directories.get(parent)
        if directory is None:
            raise _no_such_file(parent)
        return directory, name

    def _directory(self, path: str) -> Directory:
        try:
            return self._directories[_clean(path)]
        except KeyError:
            raise _no_such_file(path) from None


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, str]:
    """Directory and name."""
    path = _clean(path)
    return posixpath.dirname(path), posixpath.basename(path)


@lru_cache(maxsize=4096)
def _clean(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def _no_such_file(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
