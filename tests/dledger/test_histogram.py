"""Latencies: which bound a value is counted under."""

from __future__ import annotations

from itertools import pairwise

from dledger.histogram import LATENCY_SECONDS, Histogram


def test_a_value_counts_under_the_smallest_bound_that_is_not_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.5, 100.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 2]
    assert histogram.count == 6
    assert histogram.sum == 107.0


def test_the_bounds_of_latencies_ascend() -> None:
    assert all(lower < upper for lower, upper in pairwise(LATENCY_SECONDS))
