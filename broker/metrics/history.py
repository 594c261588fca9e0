"""Figures of the last hours, for charts: a ring of samples, in memory and bounded."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

STEP_SECONDS = 10
"""Between two samples."""

SAMPLES_MAX = 2_160
"""Six hours of them, some 100 KiB."""


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


_WIDTH = len(HistorySample._fields)


class History:
    """The newest :data:`SAMPLES_MAX` samples."""

    def __init__(self, samples_max: int = SAMPLES_MAX) -> None:
        self._max = samples_max
        self._values = array("q", bytes(8 * _WIDTH * samples_max))
        self._count = 0
        """Of all that were ever added."""

    def __len__(self) -> int:
        return min(self._count, self._max)

    def add(self, sample: HistorySample) -> None:
        """Puts it in the place of the oldest, once the ring is full."""
        start = _WIDTH * (self._count % self._max)
        self._values[start : start + _WIDTH] = array("q", sample)
        self._count += 1

    def since(self, time_ms: int) -> Iterator[HistorySample]:
        """The samples that are not older, the oldest first."""
        for number in range(self._count - len(self), self._count):
            start = _WIDTH * (number % self._max)
            sample = HistorySample(*self._values[start : start + _WIDTH])
            if sample.time_ms >= time_ms:
                yield sample
