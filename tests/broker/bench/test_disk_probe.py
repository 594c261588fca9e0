"""Bare writes beside a load are told of the round in which they began."""

from __future__ import annotations

import time
from pathlib import Path

from broker.bench.disk_probe import DiskProbe
from broker.bench.results import DiskLatencies, SteadyRound, percentiles_ms


def round_at(began_at: float, seconds: float) -> SteadyRound:
    return SteadyRound(began_at, 1, seconds, 1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 1)


def test_writes_count_for_the_round_in_which_they_began(tmp_path: Path) -> None:
    began = time.perf_counter()
    with DiskProbe(tmp_path) as probe:
        probe.write()
    found = probe.latencies(round_at(began, 3600.0))
    assert 0 < found.p50_ms <= found.p999_ms <= found.longest_ms
    assert probe.latencies(round_at(began - 10.0, 10.0)) == DiskLatencies(0.0, 0.0, 0.0)
    assert list(tmp_path.iterdir()) == []


def test_percentiles_are_durations_that_were_measured() -> None:
    assert percentiles_ms([0.004, 0.001, 0.003, 0.002], 0.0, 0.5, 0.99, 1.0) == [1.0, 2.0, 3.0, 4.0]
    assert percentiles_ms([0.5], 0.5, 0.999) == [500.0, 500.0]
