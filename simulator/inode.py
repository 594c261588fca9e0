"""Files and directories of a simulated disk: as programs see them, and as the disk has them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Inode:
    """A file's bytes as programs see them, and as the disk has them."""

    seen: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    unsynced: set[int] = field(default_factory=set)


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
