"""The store of a replica: what it accepts, gives back, refuses and forgets."""

from __future__ import annotations

import pytest

from store.errors import (
    DataFormatError,
    DataLockedError,
    EntryTooLargeError,
    OutOfRangeError,
    StoreError,
)
from store.log.entry import EntryKind, build_entry
from store.replica import StoreConfig
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


def test_a_new_store_is_empty() -> None:
    store = open_store(simulated())
    found = store.recovered
    assert (store.first_index, store.last_index, store.end_position) == (0, -1, 0)
    assert (found.term, found.vote, found.commit_index, found.checkpoint) == (0, "", -1, None)
    assert (found.tail, found.term_starts, found.torn_bytes_cut) == ([], [], 0)


def test_appended_entries_are_read_back_over_segments() -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(1, "n0")
    for _ in range(5):
        store.append(writer.make_many(4))
    assert store.end_position == writer.end > 3 * CONFIG.segment_size
    assert contents(store) == data_of(writer.entries)


def test_a_batch_within_a_segment_is_one_write_and_a_sync_is_one_sync() -> None:
    fs, writer = simulated(), Writer(4000)
    store = open_store(fs, StoreConfig("broker-a", "n0", segment_size=4000, min_free_bytes=0))
    store.save_hard_state(1, "n0")
    calls: list[str] = []
    fs.on_call = lambda operation, path: calls.append(operation)
    store.append(writer.make_many(20))
    store.sync()
    store.append(writer.make_many(5))
    store.sync()
    assert calls == ["pwrite", "datasync"] * 2


def test_a_reopened_store_tells_what_it_holds() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(3, "n2")
    store.append(writer.make_many(4, term=1) + writer.make_many(6, term=3))
    store.sync()
    assert save_mark(store, writer.entries[7], commit_index=6)
    store.close()
    found = open_store(fs).recovered
    assert (found.term, found.vote) == (3, "n2")
    assert (found.first_index, found.last_index) == (0, 9)
    assert (found.end_position, found.last_chain_crc) == (writer.end, writer.chain_crc)
    assert found.term_starts == [(1, 0), (3, 4)]
    assert found.commit_index == 6
    assert found.tail == writer.entries


def test_after_a_checkpoint_the_tail_begins_behind_it() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(2, "")
    store.append(writer.make_many(6, term=1) + writer.make_many(6, term=2))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(8))
    store.close()
    found = open_store(fs).recovered
    assert found.checkpoint == writer.checkpoint(8)
    assert found.tail == writer.entries[9:]
    assert found.tail_base == (writer.entries[8].end, writer.entries[8].chain_crc)
    assert found.term_starts == [(1, 0), (2, 6)]
    assert found.commit_index == 8


def test_an_entry_that_does_not_follow_is_refused_and_nothing_of_its_batch_is_kept() -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(2, "")
    store.append(writer.make_many(2, term=2))
    third, fourth = writer.make_many(2, term=2)
    wrong_index = [third, third]
    wrong_term = [third, build_entry(EntryKind.DATA, 3, 1, third.end, third.chain_crc, [])]
    future_term = [third, build_entry(EntryKind.DATA, 3, 3, third.end, third.chain_crc, [])]
    wrong_place = [third, build_entry(EntryKind.DATA, 3, 2, third.end + 1, third.chain_crc, [])]
    for batch in (wrong_index, wrong_term, future_term, wrong_place, [fourth]):
        with pytest.raises(StoreError):
            store.append(batch)
    assert store.last_index == 1
    store.append([third, fourth])
    assert contents(store) == data_of(writer.entries)


def test_an_entry_larger_than_a_segment_is_refused() -> None:
    store = open_store(simulated())
    store.save_hard_state(1, "")
    entry = build_entry(EntryKind.DATA, 0, 1, 0, 0, [bytes(CONFIG.segment_size - 48 - 7)])
    with pytest.raises(EntryTooLargeError):
        store.append([entry])


def test_the_largest_entry_that_a_segment_holds_is_kept() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    largest = CONFIG.segment_size - 48 - 8
    store.append([writer.make(bytes([n]) * largest) for n in range(3)])
    store.sync()
    assert contents(open_store(fs.copy())) == data_of(writer.entries)


def test_a_term_cannot_fall() -> None:
    store = open_store(simulated())
    store.save_hard_state(5, "n1")
    with pytest.raises(StoreError, match="fall"):
        store.save_hard_state(4, "n1")


def test_reading_takes_at_least_one_entry_and_else_no_more_than_asked_for() -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(1, "")
    store.append(writer.make_many(8))
    size = writer.entries[0].size
    assert len(store.read_entries(0, 7, 1)) == 1
    assert len(store.read_entries(0, 7, 3 * size - 1)) == 2
    assert len(store.read_entries(0, 7, 3 * size)) == 3
    assert len(store.read_entries(2, 4, 1 << 20)) == 3


@pytest.mark.parametrize(("first", "last"), [(-1, 1), (5, 5), (0, 5), (3, 2)])
def test_reading_entries_that_are_not_there_is_an_error(first: int, last: int) -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(1, "")
    store.append(writer.make_many(5))
    with pytest.raises(OutOfRangeError):
        store.read_entries(first, last, 1 << 20)


def test_bytes_are_read_as_they_lie_and_not_beyond_the_end() -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(1, "")
    store.append(writer.make_many(3))
    second = writer.entries[1]
    assert store.read(second.position, second.size) == bytes(second.data)
    assert store.read(second.position + 48, 5) == bytes(second.body[:5])
    with pytest.raises(OutOfRangeError):
        store.read(writer.end - 1, 2)
    with pytest.raises(OutOfRangeError):
        store.read(-1, 1)


def test_the_segments_of_the_log_are_told_with_what_they_hold() -> None:
    store, writer = open_store(simulated()), Writer()
    store.save_hard_state(1, "")
    store.append(writer.make_many(7))
    assert [(span.start, span.end) for span in store.segments()] == [(0, 400), (400, writer.end)]


def test_preparation_is_due_until_the_next_segment_is_filled_with_zeros() -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "")
    assert not store.needs_preallocation
    store.append(writer.make_many(3))
    assert store.needs_preallocation
    store.preallocate_next()
    assert not store.needs_preallocation
    following = fs.durable_bytes(f"{DIRECTORY}/commitlog/{400:020d}")
    assert following == bytes(CONFIG.segment_size)


def test_another_process_cannot_open_the_same_data() -> None:
    fs = simulated()
    store = open_store(fs)
    with pytest.raises(DataLockedError, match=DIRECTORY):
        open_store(fs)
    store.close()
    open_store(fs)


def test_a_store_that_failed_to_open_leaves_no_lock() -> None:
    fs = simulated()
    open_store(fs).close()
    with pytest.raises(DataFormatError):
        open_store(fs, StoreConfig("broker-a", "n1", segment_size=400))
    open_store(fs)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (StoreConfig("broker-b", "n0", segment_size=400), "group is broker-a.* broker-b"),
        (StoreConfig("broker-a", "n1", segment_size=400), "node is n0.* n1"),
        (StoreConfig("broker-a", "n0", segment_size=800), "segment_size is 400.* 800"),
    ],
)
def test_data_of_another_node_is_refused_saying_what_differs(
    config: StoreConfig, what: str
) -> None:
    fs = simulated()
    open_store(fs).close()
    with pytest.raises(DataFormatError, match=what):
        open_store(fs, config)


def test_data_of_a_newer_format_is_refused_by_its_version() -> None:
    fs = simulated()
    open_store(fs).close()
    fs.overwrite(f"{DIRECTORY}/state/format", b"dledger data format 3\nunheard of", 0)
    with pytest.raises(DataFormatError, match=r"format 3.*formats up to 2"):
        open_store(fs)


@pytest.mark.parametrize("segment_size", [0, 111, (1 << 30) + 1])
def test_a_segment_size_out_of_bounds_is_refused(segment_size: int) -> None:
    with pytest.raises(ValueError, match="segment_size"):
        StoreConfig("broker-a", "n0", segment_size=segment_size)
