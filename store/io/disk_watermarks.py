"""How full a disk is, by RocketMQ's three watermarks.

RocketMQ's names are ``diskMaxUsedSpaceRatio`` (75 %), ``DiskSpaceCleanForciblyRatio`` (85 %) and
``DiskSpaceWarningLevelRatio`` (90 %). From the first watermark on RocketMQ removes expired segments
at any hour. That is done at any time here, so the first one is only a warning. From the second one
on the oldest segments go although they have not expired. From the third one on messages are
refused. RocketMQ's shares are of the whole disk. On a large disk a tenth is room for days, so a
disk that has ``enough_bytes`` free never counts as full.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class DiskSpace(NamedTuple):
    """What a file system has free for this process, and has in all; bytes."""

    free: int
    total: int

    @property
    def used_percent(self) -> float:
        """Between 0 and 100, as ``df`` tells it."""
        return 100.0 * (self.total - self.free) / self.total if self.total > 0 else 100.0


class DiskLevel(IntEnum):
    """What a disk asks for."""

    ROOM = 0
    CLEAN = 1
    FORCE = 2
    FULL = 3


@dataclass(frozen=True, slots=True)
class DiskWatermarks:
    """Shares of the disk in per cent, rising. Raises :class:`ValueError` if they are not."""

    clean_percent: int = 75
    force_percent: int = 85
    full_percent: int = 90
    enough_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        if not 0 < self.clean_percent <= self.force_percent <= self.full_percent <= 100:
            raise ValueError(
                "the watermarks of a disk must rise from 1 to 100: "
                f"{self.clean_percent}, {self.force_percent}, {self.full_percent}"
            )

    def level(self, space: DiskSpace) -> DiskLevel:
        """Which watermark the disk has reached."""
        if space.free >= self.enough_bytes:
            return DiskLevel.ROOM
        used = space.used_percent
        if used >= self.full_percent:
            return DiskLevel.FULL
        if used >= self.force_percent:
            return DiskLevel.FORCE
        return DiskLevel.CLEAN if used >= self.clean_percent else DiskLevel.ROOM
