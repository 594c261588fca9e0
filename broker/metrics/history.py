"""Figures of the last hours, for charts: samples, in memory and bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from broker.limits import METRICS

STEP_SECONDS = 10
"""Between two samples."""


class HistorySample(NamedTuple):
    """What one node counted in one step. Whoever does not lead counts nothing."""

    time_ms: int
    """The end of the step, since 1970."""
    stored: int
    """Messages that were stored."""
    delivered: int
    """Messages that were given out."""
    log_bytes: int
    """By so much the log grew."""
    commit_us: int
    """From proposing an entry until it was committed, the mean; -1 where there was none."""
    lag: int
    """Messages that consumer groups have still to consume; -1 where it is not known."""


_PACKED = Struct(f"<{len(HistorySample._fields)}q")


class History:
    """The newest samples."""

    def __init__(self, samples_max: int = METRICS.samples_max) -> None:
        self._packed: deque[bytes] = deque(maxlen=samples_max)

    def __len__(self) -> int:
        return len(self._packed)

    def add(self, sample: HistorySample) -> None:
        """Puts it in the place of the oldest, once there are so many."""
        self._packed.append(_PACKED.pack(*sample))

    def since(self, time_ms: int) -> Iterator[HistorySample]:
        """The samples that are not older, the oldest first."""
        samples = map(HistorySample._make, map(_PACKED.unpack, self._packed))
        return (sample for sample in samples if sample.time_ms >= time_ms)
