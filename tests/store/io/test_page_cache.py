"""What of the log is kept in the page cache, as far as the store decides it."""

from __future__ import annotations

from pathlib import Path

import pytest

import store.log.commit_log
from simulator.engine.disk import SimulatedFile
from store.io.os_filesystem import OsFileSystem
from tests.store.small_logs import Writer, contents, data_of, open_store, simulated

Dropped = list[tuple[int, int, int]]
"""Start of the segment, offset in it, and size of what is dropped."""


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> Dropped:
    """Where 100 bytes are kept, and the others dropped by ten at least."""
    calls: Dropped = []

    def drop_cached(file: SimulatedFile, size: int, position: int) -> None:
        calls.append((int(file.path[-20:]), position, size))

    monkeypatch.setattr(store.log.commit_log, "CACHE_KEPT", 100)
    monkeypatch.setattr(store.log.commit_log, "CACHE_STEP", 10)
    monkeypatch.setattr(SimulatedFile, "drop_cached", drop_cached)
    return calls


def test_of_the_durable_log_all_but_its_end_is_dropped_once_and_over_segments(
    dropped: Dropped,
) -> None:
    log, writer = open_store(simulated()), Writer()
    log.save_hard_state(1, "")
    log.drop_cached()
    log.append(writer.make_many(7))
    log.sync()
    log.drop_cached()
    assert writer.end == 556
    assert dropped == [(0, 0, 400), (400, 0, 56)]
    log.drop_cached()
    log.append(writer.make_many(1))
    log.sync()
    log.drop_cached()
    assert dropped[2:] == [(400, 56, 78)]


def test_what_is_not_durable_yet_is_not_dropped(dropped: Dropped) -> None:
    log, writer = open_store(simulated()), Writer()
    log.save_hard_state(1, "")
    log.drop_cached()
    log.append(writer.make_many(7))
    log.drop_cached()
    assert dropped == []


def test_what_the_start_has_read_is_left_to_the_system(dropped: Dropped) -> None:
    fs, writer = simulated(), Writer()
    log = open_store(fs)
    log.save_hard_state(1, "")
    log.append(writer.make_many(7))
    log.sync()
    log.close()
    open_store(fs).drop_cached()
    assert dropped == []


def test_dropped_bytes_of_a_real_file_are_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.log.commit_log, "CACHE_KEPT", 0)
    monkeypatch.setattr("tests.store.small_logs.DIRECTORY", str(tmp_path / "n0"))
    log, writer = open_store(OsFileSystem()), Writer()
    log.save_hard_state(1, "")
    log.drop_cached()
    log.append(writer.make_many(7))
    log.sync()
    log.drop_cached()
    assert contents(log) == data_of(writer.entries)
    log.close()
