"""Disks as they were before they were damaged or lost. They count for a short time.

A message may be acknowledged just after a disk that held it was damaged or lost, because its answer
was already on the way. That breaks no promise. The remaining disks must hold what is acknowledged
later.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.engine.disk import SimulatedFileSystem

UNDER_WAY_SECONDS = 5.5
"""Within this time a client has heard an answer that relied on the disk. It waits a second and a
half for an answer, slow links and disks included, and may be paused for four seconds at that
moment. A paused leader keeps it waiting no longer."""


class DisksBeforeDamage:
    """Earlier disks of one machine."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, SimulatedFileSystem]] = []  # (until when it counts, the disk)

    def keep(self, fs: SimulatedFileSystem, now: float) -> None:
        """Keeps the disk, which is about to be damaged or replaced."""
        self._kept.append((now + UNDER_WAY_SECONDS, fs.copy()))

    def at(self, now: float) -> Sequence[SimulatedFileSystem]:
        """The disks that still count. The others are dropped."""
        self._kept = [each for each in self._kept if each[0] >= now]
        return [fs for _, fs in self._kept]
