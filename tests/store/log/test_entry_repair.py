"""Damage at rest is found, and a peer's entry takes the place of one that rotted."""

from __future__ import annotations

import errno
from itertools import count, product
from pathlib import Path
from random import Random

import pytest

from simulator.engine.disk import Fault, PowerLossError, SimulatedFileSystem
from store.errors import DiskFullError, FatalDiskError, OutOfRangeError, StoreError
from store.io.filesystem import BLOCK_SIZE
from store.io.os_filesystem import OsFileSystem
from store.log.entry import HEADER_SIZE, Entry, EntryKind, build_entry
from store.log.entry_row import ROW_SIZE
from store.replica import ReplicaStore, StoreConfig
from tests.store.small_logs import DIRECTORY, Writer, contents, data_of, open_store, simulated
from tests.support.search_effort import sample

COUNT, CHECKPOINT = 30, 20
CHAIN_BYTE = 38


def written(fs: SimulatedFileSystem) -> tuple[ReplicaStore, Writer]:
    store = open_store(fs)
    writer = Writer()
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(COUNT))
    store.sync()
    store.save_checkpoint(writer.checkpoint(CHECKPOINT))
    return store, writer


def damaged(store: ReplicaStore, max_bytes: int = 150) -> list[int]:
    found: dict[int, None] = {}
    index = store.first_index
    while index <= store.last_index:
        checked = store.check_entries(index, store.last_index, max_bytes)
        found.update(dict.fromkeys(checked.damage))
        for entry in checked.entries:
            assert entry.index not in found
        index = checked.next_index
    return sorted(found)


def rows_repaired(store: ReplicaStore, max_bytes: int = 150) -> list[int]:
    """Looks at all entries, as the scrub does; the rows that it has written again."""
    found: list[int] = []
    index = store.first_index
    while index <= store.last_index:
        index = store.check_entries(index, store.last_index, max_bytes).next_index
        found += store.repair_index()
    return found


def rot(
    fs: SimulatedFileSystem, store: ReplicaStore, entry: Entry, byte: int, bit: int = 0
) -> None:
    start = entry.position - entry.position % store.segment_size
    fs.flip_bit(f"{DIRECTORY}/commitlog/{start:020d}", entry.position - start + byte, bit)


def flip_row(fs: SimulatedFileSystem, index: int, byte: int, bit: int = 0) -> None:
    """Flips a bit of a row of the entry index; files have four rows."""
    path = f"{DIRECTORY}/index/{(index - index % 4) * ROW_SIZE:020d}"
    fs.flip_bit(path, index % 4 * ROW_SIZE + byte, bit)


def test_a_whole_log_has_no_damage() -> None:
    store, _ = written(simulated())
    assert damaged(store) == []


@pytest.mark.parametrize("byte", sample(range(0, HEADER_SIZE + 30, 3)))
def test_a_bit_anywhere_in_an_entry_is_found_and_repaired(byte: int) -> None:
    fs = simulated()
    store, writer = written(fs)
    index = Random(byte).randrange(COUNT)
    rot(fs, store, writer.entries[index], byte)
    assert damaged(store) == [index]
    store.repair_entry(writer.entries[index])
    assert damaged(store) == []
    store.close()
    fs.power_loss()
    reopened = open_store(fs)
    assert contents(reopened) == data_of(writer.entries)


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 150, 10_000])
def test_a_bit_in_the_chain_of_the_first_entry_is_found_and_repaired(
    expired: bool, max_bytes: int
) -> None:
    """Where entries were given up nothing else says what that chain CRC must be."""
    fs = simulated()
    store, writer = written(fs)
    if expired:
        store.expire(writer.entries[CHECKPOINT].position)
    first = store.first_index
    assert (first > 0) is expired
    rot(fs, store, writer.entries[first], CHAIN_BYTE)
    found = damaged(store, max_bytes)
    assert found[0] == first
    assert found[1:] in ([], [first + 1])
    for index in found:
        store.repair_entry(writer.entries[index])
    assert damaged(store, max_bytes) == []
    assert contents(store) == data_of(writer.entries[first:])


def test_several_damaged_entries_are_repaired_in_order() -> None:
    fs = simulated()
    store, writer = written(fs)
    for index in (7, 8, 9, 15):
        rot(fs, store, writer.entries[index], 50)
        rot(fs, store, writer.entries[index], 38)
    assert damaged(store) == [7, 8, 9, 15]
    for index in (7, 8, 9, 15):
        store.repair_entry(writer.entries[index])
    assert damaged(store) == []


@pytest.mark.parametrize("byte", sample(range(ROW_SIZE)))
@pytest.mark.parametrize("max_bytes", [1, 150, 10_000])
def test_a_bit_anywhere_in_a_row_hides_no_entry_and_is_repaired(byte: int, max_bytes: int) -> None:
    """Also where it leads out of its segment, or out of the log."""
    for bit, index in product((0, 7), (0, 1, 9, 12, CHECKPOINT)):
        fs = simulated()
        store, writer = written(fs)
        flip_row(fs, index, byte, bit)
        rot(fs, store, writer.entries[17], 50)
        assert damaged(store, max_bytes) == [17]
        whole = store.read_entries(7, COUNT - 1, 160)
        assert data_of(whole) == data_of(writer.entries[7:9])
        assert store.read_range(index, index, 1).data == writer.entries[index].data
        assert rows_repaired(store, max_bytes) == [index]
        store.repair_entry(writer.entries[17])
        assert damaged(store, max_bytes) == rows_repaired(store) == []
        fs.power_loss(keep=0.0)
        store = open_store(fs)
        assert contents(store) == data_of(writer.entries)
        assert rows_repaired(store) == []


@pytest.mark.parametrize("byte", sample(range(ROW_SIZE)))
def test_entries_are_repaired_though_rows_are_wrong_too(byte: int) -> None:
    for bit in (0, 7):
        fs = simulated()
        store, writer = written(fs)
        flip_row(fs, 9, byte, bit)
        for index in (8, 9):
            rot(fs, store, writer.entries[index], 50)
        assert damaged(store) == [8, 9]
        while found := damaged(store):
            store.repair_entry(writer.entries[found[0]])
        assert rows_repaired(store) == []
        assert contents(store) == data_of(writer.entries)


def test_a_row_out_of_the_log_is_no_log_that_ended() -> None:
    fs = simulated()
    store, writer = written(fs)
    flip_row(fs, 9, 4, 6)
    with pytest.raises(OutOfRangeError):
        store.read_entries(COUNT, COUNT, 1)
    store.save_checkpoint(writer.checkpoint(CHECKPOINT + 1))
    store.expire(writer.entries[CHECKPOINT].position)
    with pytest.raises(OutOfRangeError):
        store.read_entries(9, COUNT - 1, 1)


def test_a_row_that_rots_after_it_was_read_is_noticed_by_the_scrub() -> None:
    """Rows that were checked stay in memory for readers."""
    fs = simulated()
    config = StoreConfig("broker-a", "n0", 1 << 16, min_free_bytes=0)
    store, writer = open_store(fs, config), Writer(1 << 16)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(200))
    store.sync()
    store.save_checkpoint(writer.checkpoint(199))
    assert rows_repaired(store, 1 << 20) == []
    fs.flip_bit(f"{DIRECTORY}/index/{0:020d}", 100 * ROW_SIZE + 10)
    assert store.read_range(100, 100, 1).data == writer.entries[100].data
    assert rows_repaired(store, 1 << 20) == [100]


def test_rows_one_behind_the_other_are_repaired() -> None:
    fs = simulated()
    store, writer = written(fs)
    for index in range(6, 14):
        flip_row(fs, index, 20)
    assert contents(store) == data_of(writer.entries)
    assert rows_repaired(store) == list(range(6, 14))
    assert rows_repaired(store) == []


@pytest.mark.parametrize("byte", [2, 7, 12, 30, 38, 42])
def test_no_row_is_made_from_a_header_that_rotted(byte: int) -> None:
    fs = simulated()
    store, writer = written(fs)
    flip_row(fs, 9, 20)
    rot(fs, store, writer.entries[9], byte)
    assert damaged(store) == [9]
    assert 9 not in rows_repaired(store)
    for entry in writer.entries:
        assert store.entry_at(entry.position, COUNT - 1) == entry.index
        if entry.index != 9:
            assert store.read_range(entry.index, entry.index, 1).data == entry.data
    store.repair_entry(writer.entries[9])
    assert damaged(store) == rows_repaired(store) == []


def test_the_row_of_a_damaged_entry_follows_from_its_header() -> None:
    fs = simulated()
    store, writer = written(fs)
    flip_row(fs, 9, 20)
    rot(fs, store, writer.entries[9], HEADER_SIZE)
    assert damaged(store) == [9]
    assert rows_repaired(store) == [9]


def test_a_row_for_which_there_is_no_room_stays_as_it_is() -> None:
    fs = simulated()
    store, _ = written(fs)
    flip_row(fs, 9, 20)
    fs.inject(Fault(1, errno.ENOSPC, operations={"pwrite"}, path="/index/"))
    assert damaged(store) == store.repair_index() == []
    assert store.repair_index() == [9]


def test_damaged_padding_is_found_and_written_again() -> None:
    fs = simulated()
    store, writer = written(fs)
    last = next(
        entry
        for entry, after in zip(writer.entries, writer.entries[1:], strict=False)
        if after.position > entry.end
    )
    rot(fs, store, last, last.size + 2)
    assert damaged(store) == [last.index]
    store.repair_entry(last)
    assert damaged(store) == []


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_what_cannot_be_read_of_or_behind_a_padding_is_made_again(behind: int) -> None:
    """No entry is missing, so no peer is needed; but a copy of the file would be."""
    fs = simulated()
    config = StoreConfig("broker-a", "n0", 8 * BLOCK_SIZE, min_free_bytes=0)
    store, writer = open_store(fs, config), Writer(config.segment_size)
    store.save_hard_state(1, "n0")
    size = 5 * BLOCK_SIZE - HEADER_SIZE
    store.append(writer.make_many(3, size=size))
    store.sync()
    path, end = f"{DIRECTORY}/commitlog/{0:020d}", writer.entries[0].end
    assert end == 5 * BLOCK_SIZE
    fs.lose_sector(path, end + behind * BLOCK_SIZE)
    assert damaged(store) == [0]
    assert store.repair_padding(0)
    assert damaged(store) == []
    assert not store.repair_padding(0)
    store.close()
    fs.power_loss()
    assert len(fs.open(path).pread(9 * BLOCK_SIZE, 0)) == 8 * BLOCK_SIZE
    assert contents(open_store(fs, config)) == data_of(writer.entries)


def test_an_entry_that_does_not_fit_is_refused_and_nothing_is_written() -> None:
    fs = simulated()
    store, writer = written(fs)
    entry, before = writer.entries[10], writer.entries[9]
    rot(fs, store, entry, 60)

    def other(position: int, chain: int, body: bytes) -> Entry:
        return build_entry(EntryKind.DATA, 10, 1, position, chain, [body])

    strangers = [
        other(entry.position, 0, b"x" * 30),
        other(entry.position + 1, before.chain_crc, b"x" * 30),
        other(entry.position, before.chain_crc, b"x" * 31),
    ]
    for stranger in strangers:
        with pytest.raises(StoreError, match="of a peer"):
            store.repair_entry(stranger)
    assert damaged(store) == [10]
    store.repair_entry(entry)
    assert damaged(store) == []


def reopened_without(fs: SimulatedFileSystem, calls: int, error: int | None) -> ReplicaStore | None:
    """The store, once a process has died or failed in that file call as it put an entry back."""
    store, writer = written(fs)
    entry = writer.entries[5]
    rot(fs, store, entry, 50)
    if error is None:
        fs.lose_power_at(calls)
    else:
        fs.inject(Fault(calls, error))
    try:
        store.repair_entry(entry)
    except (PowerLossError, FatalDiskError, DiskFullError):
        fs.crash()
        return open_store(fs)
    return None


@pytest.mark.parametrize("operation", ["create", "pwrite", "datasync"])
def test_an_entry_for_which_there_is_no_room_is_repaired_once_there_is(operation: str) -> None:
    """Where the file system writes over nothing in its place, that needs room, too."""
    fs = simulated()
    store, writer = written(fs)
    rot(fs, store, writer.entries[5], 50)
    fs.inject(Fault(1, errno.ENOSPC, operations={operation}))
    with pytest.raises(DiskFullError, match="no room for a damaged entry"):
        store.repair_entry(writer.entries[5])
    store.append(writer.make_many(1))
    store.sync()
    store.repair_entry(writer.entries[5])
    assert damaged(store) == []
    fs.power_loss(keep=0.0)
    assert contents(open_store(fs)) == data_of(writer.entries)


def test_padding_for_which_there_is_no_room_stays_damaged_until_there_is() -> None:
    fs = simulated()
    store, writer = written(fs)
    last = next(
        entry
        for entry, after in zip(writer.entries, writer.entries[1:], strict=False)
        if after.position > entry.end
    )
    rot(fs, store, last, last.size + 2)
    fs.inject(Fault(1, errno.ENOSPC, operations={"pwrite"}))
    assert not store.repair_padding(last.index)
    assert damaged(store) == [last.index]
    assert store.repair_padding(last.index)
    assert damaged(store) == []


@pytest.mark.parametrize(
    "error", [None, errno.EIO, errno.ENOSPC], ids=["killed", "disk error", "full"]
)
def test_an_entry_that_reads_as_whole_after_a_failure_is_durable(error: int | None) -> None:
    """The page cache may hold what the disk lacks, and be clean: nothing writes it by itself."""
    for calls in count(1):
        fs = simulated()
        reopened = reopened_without(fs, calls, error)
        if reopened is None:
            break
        seen = damaged(reopened)
        fs.power_loss(keep=0.0)
        assert damaged(open_store(fs)) == seen
    assert calls > 4


def test_what_was_repaired_stays_so_when_its_block_is_written_again(tmp_path: Path) -> None:
    """What is appended past the page cache is written with what was before it in its block."""
    config = StoreConfig("broker-a", "n0", 1 << 16, min_free_bytes=0, direct=True)
    store = ReplicaStore.open(OsFileSystem(), str(tmp_path), config)
    store.save_hard_state(1, "n0")
    writer = Writer(config.segment_size)
    store.append(writer.make_many(3))
    store.sync()
    store.close()
    store = ReplicaStore.open(OsFileSystem(), str(tmp_path), config)
    file = OsFileSystem().open(f"{tmp_path}/commitlog/{0:020d}")
    file.pwrite(b"rot", writer.entries[1].position + HEADER_SIZE)
    file.datasync()
    file.close()
    store.append(writer.make_many(1))
    store.sync()
    assert damaged(store) == [1]
    store.repair_entry(writer.entries[1])
    assert damaged(store) == []
    store.append(writer.make_many(1))
    store.sync()
    assert damaged(store) == []
    assert contents(store) == data_of(writer.entries)
    store.close()
