"""What a truncation takes from the log, and what it must not take."""

from __future__ import annotations

import pytest

from store.errors import (
    OutOfRangeError,
    StoreError,
)
from tests.store.small_logs import (
    CONFIG,
    DIRECTORY,
    Writer,
    contents,
    data_of,
    open_store,
    save_mark,
    simulated,
)


def test_truncation_drops_entries_for_good_and_the_log_goes_on_from_there() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(2, "")
    store.append(writer.make_many(12))
    store.sync()
    store.truncate(5)
    writer.cut(5)
    assert (store.last_index, store.end_position) == (4, writer.end)
    fs.power_loss(keep=0.0)
    store = open_store(fs)
    assert contents(store) == data_of(writer.entries)
    assert store.recovered.torn_bytes_cut == 0
    store.append(writer.make_many(12, size=55, term=2))
    assert contents(store) == data_of(writer.entries)


def test_truncation_leaves_nothing_but_zeros_behind_the_end() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(12))
    store.sync()
    store.truncate(2)
    log = b"".join(
        fs.visible_bytes(path) for path in fs.files() if path.startswith(f"{DIRECTORY}/commitlog")
    )
    assert log.rstrip(b"\0") == b"".join(data_of(writer.entries[:2]))
    assert fs.durable_bytes(f"{DIRECTORY}/commitlog/{0:020d}") == log[: CONFIG.segment_size]


def test_a_reader_that_a_truncation_overtakes_does_not_call_the_zeros_damage() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(9))
    truncated: list[str] = []

    def truncate_now(operation: str, path: str) -> None:
        if operation == "pread" and not truncated:
            truncated.append(path)
            store.truncate(4)

    fs.on_call = truncate_now
    with pytest.raises(OutOfRangeError):
        store.read_entries(2, 6, 1000)
    assert truncated
    assert contents(store) == data_of(writer.entries[:4])


def test_truncating_everything_that_is_not_committed_empties_the_log() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(7))
    store.sync()
    store.truncate(0)
    assert (store.last_index, store.end_position) == (-1, 0)
    store = open_store(fs.copy())
    assert store.recovered.last_index == -1


def test_truncating_behind_the_end_does_nothing() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    store.append(writer.make_many(3))
    store.sync()
    calls = fs.calls
    store.truncate(3)
    assert fs.calls == calls
    assert store.last_index == 2


def test_committed_entries_cannot_be_truncated() -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(1, "")
    store.append(writer.make_many(9))
    store.sync()
    assert save_mark(store, writer.entries[6], commit_index=4)
    with pytest.raises(StoreError, match="committed"):
        store.truncate(4)
    store.truncate(5)
    assert store.last_index == 4


def test_checkpointed_entries_cannot_be_truncated() -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(1, "")
    store.append(writer.make_many(9))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(4))
    with pytest.raises(StoreError, match="cannot truncate"):
        store.truncate(4)
    assert contents(store) == data_of(writer.entries)
