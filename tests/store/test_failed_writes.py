"""A failed write or sync ends the store; a full disk leaves it as it was."""

from __future__ import annotations

import errno

import pytest

from simulator.engine.disk import Fault
from store.errors import DiskFullError, FatalDiskError
from tests.store.small_logs import Writer, contents, data_of, open_store, simulated


def test_after_a_failed_sync_the_store_refuses_everything_that_writes() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(3))
    fs.inject(Fault(1, errno.EIO, operations={"datasync"}))
    with pytest.raises(FatalDiskError, match="syncing"):
        store.sync()
    checkpoint = writer.checkpoint(1)
    for refused in (
        store.sync,
        lambda: store.append(writer.make_many(1)),
        lambda: store.save_hard_state(2, ""),
        lambda: store.truncate(1),
        lambda: store.save_mark(0, 0, 0, 0),
        lambda: store.save_checkpoint(checkpoint),
        lambda: store.expire(0),
        store.preallocate_next,
    ):
        with pytest.raises(FatalDiskError, match="failed before"):
            refused()
    assert store.synced_position == 0


def test_a_failed_sync_of_the_background_ends_the_store_as_well() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(3))
    fs.inject(Fault(1, errno.EIO, operations={"datasync"}))
    with pytest.raises(FatalDiskError, match="preparing"):
        store.preallocate_next()
    with pytest.raises(FatalDiskError):
        store.sync()


def test_a_full_disk_refuses_entries_keeps_the_rest_and_recovers_with_room() -> None:
    fs, writer = simulated(capacity=6000), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    while store.has_room(78):
        store.append(writer.make_many(1))
    store.sync()
    kept = data_of(writer.entries)
    with pytest.raises(DiskFullError):
        store.append(writer.make_many(40))
    writer.cut(store.last_index + 1)
    store.sync()
    assert contents(store) == kept
    assert not store.has_room(78)
    fs.capacity = 1 << 20
    store.preallocate_next()
    assert store.has_room(78)
    store.append(writer.make_many(3))
    assert contents(store) == data_of(writer.entries)


def test_a_full_disk_stops_preparation_before_it_stops_anything_else() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(3))
    fs.capacity = fs.used_bytes()
    store.preallocate_next()
    assert store.needs_preallocation
    assert store.has_room(78)
    assert not store.has_room(200)


def test_a_checkpoint_on_a_full_disk_is_refused_and_the_store_goes_on() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(4))
    store.sync()
    fs.capacity = fs.used_bytes()
    with pytest.raises(DiskFullError, match="checkpoint"):
        store.save_checkpoint(writer.checkpoint(2))
    store.append(writer.make_many(1))
    fs.capacity = None
    assert store.save_checkpoint(writer.checkpoint(2))
    assert open_store(fs.copy()).recovered.checkpoint == writer.checkpoint(2)


def test_a_new_store_on_a_full_disk_says_so() -> None:
    fs = simulated(capacity=100)
    with pytest.raises(FatalDiskError, match="No space left"):
        open_store(fs)
