"""Bare writes beside a load are told of the round in which they were due."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from broker.bench.disk_probe import DiskProbe
from broker.bench.results import SteadyRound, percentiles, percentiles_ms
from store.io.os_filesystem import OsFile


def round_at(began_at: float, seconds: float) -> SteadyRound:
    return SteadyRound(began_at, 1, seconds, 1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 1)


def test_writes_count_for_the_round_in_which_they_were_due(tmp_path: Path) -> None:
    probe = DiskProbe(tmp_path, clock=lambda: 5.004)
    probe.write(due=5.0)
    assert probe.latencies(round_at(5.001, 10.0)) is None
    assert probe.latencies(round_at(4.0, 1.0)) is None
    found = probe.latencies(round_at(4.0, 1.001))
    assert found is not None
    assert found.p50_ms == found.p999_ms == found.longest_ms == pytest.approx(4.0)


def test_the_file_is_gone_at_the_end(tmp_path: Path) -> None:
    with DiskProbe(tmp_path):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_all_writes_that_were_due_during_a_pause_were_late(tmp_path: Path) -> None:
    probe = DiskProbe(tmp_path, clock=lambda: 5.0351)
    probe.write(due=5.0)
    found = probe.latencies(round_at(5.0, 1.0))
    assert found is not None
    assert found.longest_ms == pytest.approx(35.1)
    assert found.p50_ms == pytest.approx(15.1)


def test_a_probe_that_cannot_write_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: OsFile, _data: bytes, _position: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    probe = DiskProbe(tmp_path)
    monkeypatch.setattr(OsFile, "append_direct", full)
    probe._run()
    with pytest.raises(OSError, match="no room"):
        probe.latencies(round_at(0.0, 1.0))


def test_percentiles_are_durations_that_were_measured() -> None:
    assert percentiles_ms([0.004, 0.001, 0.003, 0.002], 0.0, 0.5, 0.99, 1.0) == [1.0, 2.0, 4.0, 4.0]
    assert percentiles_ms([0.5], 0.5, 0.999) == [500.0, 500.0]
    assert percentiles(range(1, 101), 0.99) == [99]
