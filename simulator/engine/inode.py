"""Files and directories of a simulated disk: as programs see them, and as the disk has them."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field

from store.io.filesystem import BLOCK_SIZE


@dataclass(slots=True, eq=False)
class Inode:
    """A file's bytes as programs see them, and as the disk has them.

    ``unreadable`` are blocks (of :data:`~store.io.filesystem.BLOCK_SIZE`) that the disk cannot
    read. ``hidden`` are those of them that the page cache does not have either.
    """

    seen: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    unsynced: set[int] = field(default_factory=set)
    unreadable: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)

    def first_hidden(self, begin: int, end: int) -> int | None:
        """The first block of these bytes that no program can read."""
        touched = (each for each in self.hidden if each * BLOCK_SIZE < end)
        return min((each for each in touched if (each + 1) * BLOCK_SIZE > begin), default=None)

    def holds_readable(self, data: bytes | bytearray | memoryview, position: int) -> bool:
        """Whether the disk has these bytes there, and can read them."""
        end = position + len(data)
        lost = self.unreadable
        if lost and any(
            each * BLOCK_SIZE < end and (each + 1) * BLOCK_SIZE > position for each in lost
        ):
            return False
        return self.disk.startswith(data, position)

    def heal(self, written: Collection[int], sector_size: int) -> None:
        """These sectors reach the disk. A block can be read again once all of its sectors have."""
        for block in self.unreadable - self.hidden:
            first = block * BLOCK_SIZE
            end = min(first + BLOCK_SIZE, len(self.seen))
            if all(each in written for each in range(first // sector_size, -(-end // sector_size))):
                self.unreadable.discard(block)

    def cut_blocks(self, size: int) -> None:
        """The file now ends at ``size``."""
        for blocks in (self.unreadable, self.hidden):
            blocks.difference_update([each for each in blocks if each * BLOCK_SIZE >= size])

    def sync(self, sector_size: int) -> None:
        """All of the file reaches the disk."""
        size = len(self.seen)
        if len(self.disk) != size:
            resize(self.disk, size)
        unsynced = self.unsynced
        if unsynced:
            self.heal(unsynced, sector_size)
            first, last = min(unsynced), max(unsynced)
            if last - first + 1 == len(unsynced):  # most writes follow each other
                begin, end = first * sector_size, (last + 1) * sector_size
                self.disk[begin:end] = self.seen[begin:end]
            else:
                for sector in unsynced:
                    self._put_on_disk(sector, sector_size)
            unsynced.clear()

    def write_back(self, rng: random.Random, sector_size: int, keep: float = 0.5) -> None:
        """Each unsynced sector reaches the disk or not; none is written by a later sync."""
        if len(self.seen) < len(self.disk) and rng.random() < keep:
            resize(self.disk, len(self.seen))
        written = [each for each in sorted(self.unsynced) if rng.random() < keep]
        self.heal(written, sector_size)
        for sector in written:
            self._put_on_disk(sector, sector_size)
        self.unsynced.clear()

    def _put_on_disk(self, sector: int, sector_size: int) -> None:
        begin = sector * sector_size
        data = self.seen[begin : begin + sector_size]
        if not data:
            return  # the file has been cut below this sector
        if len(self.disk) < begin:
            resize(self.disk, begin)
        self.disk[begin : begin + len(data)] = data

    def copy(self) -> Inode:
        """The same file on another disk."""
        return Inode(
            bytearray(self.seen),
            bytearray(self.disk),
            set(self.unsynced),
            set(self.unreadable),
            set(self.hidden),
        )


class Directory:
    """Names as programs see them, and as the disk has them."""

    __slots__ = ("disk", "seen")

    def __init__(self) -> None:
        self.seen: dict[str, Inode] = {}
        self.disk: dict[str, Inode] = {}


def resize(data: bytearray, size: int) -> None:
    """Cuts, or grows with zeros."""
    if len(data) > size:
        del data[size:]
    else:
        data += bytes(size - len(data))
