"""What a replica notes as committed and durable, and its checkpoints."""

from __future__ import annotations

import pytest

from store.errors import (
    StoreError,
)
from tests.store.small_logs import (
    DIRECTORY,
    Writer,
    contents,
    data_of,
    open_store,
    save_mark,
    simulated,
)


def test_a_mark_is_not_saved_before_its_entry_is_synced() -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(1, "")
    store.append(writer.make_many(2))
    store.sync()
    store.append(writer.make_many(2))
    assert not save_mark(store, writer.entries[3])
    assert save_mark(store, writer.entries[1])


def test_a_mark_on_an_entry_that_was_replaced_meanwhile_is_not_saved() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(2, "")
    store.append(writer.make_many(4))
    store.sync()
    replaced = writer.entries[3]
    store.truncate(3)
    writer.cut(3)
    store.append(writer.make_many(2, term=2))
    store.sync()
    assert writer.entries[3].end == replaced.end
    assert not save_mark(store, replaced)
    fs.power_loss()
    assert contents(open_store(fs)) == data_of(writer.entries)


def test_a_late_mark_does_not_lower_the_mark() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(6))
    store.sync()
    assert save_mark(store, writer.entries[5], commit_index=5)
    assert save_mark(store, writer.entries[2], commit_index=2)
    assert open_store(fs.copy()).recovered.commit_index == 5


def test_what_is_committed_counts_as_such_only_as_far_as_it_is_durable_here() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(3))
    store.sync()
    store.append(writer.make_many(3))
    assert save_mark(store, writer.entries[2], commit_index=5)
    fs.power_loss(keep=0.0)
    assert open_store(fs).recovered.commit_index == 2


def test_a_checkpoint_waits_until_the_log_is_durable_up_to_it() -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(1, "")
    store.append(writer.make_many(4))
    assert not store.save_checkpoint(writer.checkpoint(3))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(3))


def test_a_checkpoint_of_another_log_is_refused() -> None:
    store, writer, other = open_store(simulated()), Writer(), Writer()
    store.save_hard_state(1, "")
    store.append(writer.make_many(4))
    store.sync()
    other.make_many(3)
    other.cut(2)
    other.make(bytes(30))
    with pytest.raises(StoreError, match="not of this log"):
        store.save_checkpoint(other.checkpoint(2))


def test_the_newest_two_checkpoints_are_kept() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(8))
    store.sync()
    for index in (1, 3, 5, 7):
        assert store.save_checkpoint(writer.checkpoint(index))
    names = [name for name in fs.list_directory(f"{DIRECTORY}/state") if "checkpoint" in name]
    assert names == [f"checkpoint-{5:020d}", f"checkpoint-{7:020d}"]
