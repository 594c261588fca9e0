"""Expiry of the oldest segments."""

from __future__ import annotations

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.errors import (
    DamagedError,
    OutOfRangeError,
)
from store.log.entry_row import ROW_SIZE
from store.replica import ReplicaStore
from tests.store.small_logs import (
    CONFIG,
    DIRECTORY,
    Writer,
    contents,
    data_of,
    open_store,
    simulated,
)


def test_expiry_removes_whole_segments_below_what_recovery_needs() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(30))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(14))
    assert store.save_checkpoint(writer.checkpoint(25))
    store.expire(writer.end)
    # Five entries fit a segment; entry 14, on which the older checkpoint stands, is in the third.
    assert store.first_index == 10
    assert store.first_position == writer.entries[10].position == 800
    assert contents(store) == data_of(writer.entries)[10:]
    names = fs.list_directory(f"{DIRECTORY}/commitlog")
    assert names[0] == f"{800:020d}"
    with pytest.raises(OutOfRangeError):
        store.read_entries(9, 12, 1000)
    store.close()
    store = open_store(fs)
    assert store.recovered.first_index == 10
    assert contents(store) == data_of(writer.entries)[10:]


def test_a_reader_that_expiry_overtakes_does_not_call_the_removed_files_damage() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(30))
    store.sync()
    for index in (24, 25):
        assert store.save_checkpoint(writer.checkpoint(index))
    store.close()
    store = open_store(fs)
    expired: list[str] = []

    def expire_now(operation: str, path: str) -> None:
        if operation == "pread" and not expired:
            expired.append(path)
            store.expire(writer.entries[20].position)

    fs.on_call = expire_now
    with pytest.raises(OutOfRangeError):
        store.read_entries(2, 9, 10_000)
    assert expired
    assert contents(store) == data_of(writer.entries)[20:]


def test_a_damaged_header_where_the_log_will_begin_does_not_lead_expiry_astray() -> None:
    """The number of the entry is in there: it was read as it stood, and was out of range."""
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(30))
    store.sync()
    for index in (24, 25):
        assert store.save_checkpoint(writer.checkpoint(index))
    assert writer.entries[10].position == 800
    file = fs.open(f"{DIRECTORY}/commitlog/{800:020d}", create=True)
    file.pwrite(b"\xff" * 8, 8)
    file.close()
    store.expire(writer.entries[10].position)
    assert (store.first_index, store.first_position) == (10, 800)
    with pytest.raises(DamagedError):
        store.read_entries(10, 10, 1000)
    assert [entry.index for entry in store.read_entries(11, 20, 10_000)] == list(range(11, 21))


def test_without_a_checkpoint_nothing_expires() -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(1, "")
    store.append(writer.make_many(20))
    store.sync()
    store.expire(writer.end)
    assert store.first_index == 0


def test_expiry_takes_the_files_of_the_entry_index_too() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(30))
    store.sync()
    for index in (24, 25):
        assert store.save_checkpoint(writer.checkpoint(index))
    store.expire(writer.entries[20].position)
    assert fs.list_directory(f"{DIRECTORY}/index")[0] == f"{20 * 32:020d}"


def store_that_may_expire(fs: SimulatedFileSystem) -> tuple[ReplicaStore, Writer]:
    store, writer = open_store(fs), Writer()
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(40))
    store.sync()
    for index in (30, 35):
        assert store.save_checkpoint(writer.checkpoint(index))
    return store, writer


def test_a_log_without_a_whole_header_does_not_lead_expiry_astray() -> None:
    """Seed 270 of ``nightly``: segments were swapped, and no row was believed."""
    fs = simulated()
    store, writer = store_that_may_expire(fs)
    for path in fs.files():
        if "/commitlog/" in path:
            fs.overwrite(path, bytes(CONFIG.segment_size), 0)
    store.expire(writer.entries[22].position)
    first = next(entry for entry in writer.entries if entry.position == store.first_position)
    assert first.position > 0
    assert store.first_index == first.index


@pytest.mark.parametrize("byte", [4, 10, 11, 12, 20])
@pytest.mark.parametrize("rotted", range(0, 30, 2))
def test_a_row_that_rotted_does_not_lead_expiry_astray(rotted: int, byte: int) -> None:
    fs = simulated()
    store, writer = store_that_may_expire(fs)
    path = f"{DIRECTORY}/index/{(rotted - rotted % 4) * ROW_SIZE:020d}"
    fs.flip_bit(path, rotted % 4 * ROW_SIZE + byte, 6)
    store.expire(writer.entries[22].position)
    first = next(entry for entry in writer.entries if entry.position == store.first_position)
    assert store.first_index == first.index
    assert store.beginning() == (first.index, first.position)
