"""The content of a disk before it was damaged or lost: it counts for a moment, and then no more.

A message may be acknowledged just after a disk that held it was damaged or lost, because its answer
was already on the way. No promise is broken by that. The remaining disks must hold what is
acknowledged later.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.engine.disk import SimulatedFileSystem

UNDER_WAY_SECONDS = 5.5
"""Within this time a client has heard an answer that relied on the disk. It waits a second and a
half for an answer, slow links and disks included, and may be paused for four seconds at that
moment. A paused leader keeps it waiting no longer."""


class DisksBeforeDamage:
    """Of one machine."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, SimulatedFileSystem]] = []  # until when, and what

    def keep(self, fs: SimulatedFileSystem, now: float) -> None:
        """The disk is about to be damaged, or taken away."""
        self._kept.append((now + UNDER_WAY_SECONDS, fs.copy()))

    def at(self, now: float) -> Sequence[SimulatedFileSystem]:
        """Those that still count; other content is dropped."""
        self._kept = [each for each in self._kept if each[0] >= now]
        return [fs for _, fs in self._kept]
