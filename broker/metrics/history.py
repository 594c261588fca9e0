"""Samples of the last hours for charts, in memory and bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from broker.limits import METRICS

STEP_SECONDS = 10
"""The seconds between two samples."""


class HistorySample(NamedTuple):
    """The counts of one node in one step. A node that does not lead counts nothing."""

    time_ms: int
    """The end of the step, in ms since 1970."""
    stored: int
    """Stored messages."""
    delivered: int
    """Delivered messages."""
    log_bytes: int
    """The growth of the log in bytes."""
    commit_us: int
    """The mean time from proposing an entry until its commit; -1 without entries."""
    lag: int
    """The lag of all consumer groups in messages; -1 if unknown."""


_PACKED = Struct(f"<{len(HistorySample._fields)}q")


class History:
    """The newest samples."""

    def __init__(self, samples_max: int = METRICS.samples_max) -> None:
        self._packed: deque[bytes] = deque(maxlen=samples_max)

    def __len__(self) -> int:
        return len(self._packed)

    def add(self, sample: HistorySample) -> None:
        """Adds a sample; the oldest is dropped if there are too many."""
        self._packed.append(_PACKED.pack(*sample))

    def since(self, time_ms: int) -> Iterator[HistorySample]:
        """The samples from ``time_ms`` on, oldest first."""
        samples = map(HistorySample._make, map(_PACKED.unpack, self._packed))
        return (sample for sample in samples if sample.time_ms >= time_ms)
