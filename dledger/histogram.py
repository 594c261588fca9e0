"""How long something took, as counts by upper bound: what a Prometheus histogram is made of.

A histogram is plain numbers in the part that measures. It knows no clock: the part is given one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

LATENCY_SECONDS = (
    *(0.0001, 0.00025, 0.0005),
    *(0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds in seconds, from a read of memory to a wait that people notice."""


class Histogram:
    """Counts of values, each under the smallest bound that is not below it."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_SECONDS) -> None:
        """``bounds`` ascend; what is above the last one is counted as well."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)
