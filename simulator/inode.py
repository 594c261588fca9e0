"""Files and directories of a simulated disk: as programs see them, and as the disk has them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from store.filesystem import BLOCK_SIZE


@dataclass(slots=True, eq=False)
class Inode:
    """A file's bytes as programs see them, and as the disk has them.

    ``unreadable`` are blocks (of :data:`~store.filesystem.BLOCK_SIZE`) that the disk cannot read,
    ``hidden`` those of them of which the page cache has nothing either.
    """

    seen: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    unsynced: set[int] = field(default_factory=set)
    unreadable: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)

    def first_hidden(self, begin: int, end: int) -> int | None:
        """The first block among these bytes of which no program can read anything."""
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
        """These sectors reach the disk: a block of which all do can be read again."""
        for block in self.unreadable - self.hidden:
            first = block * BLOCK_SIZE
            end = min(first + BLOCK_SIZE, len(self.seen))
            if all(each in written for each in range(first // sector_size, -(-end // sector_size))):
                self.unreadable.discard(block)

    def cut_blocks(self, size: int) -> None:
        """The file ends there now."""
        for blocks in (self.unreadable, self.hidden):
            blocks.difference_update([each for each in blocks if each * BLOCK_SIZE >= size])


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
