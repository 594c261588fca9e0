"""Blocks of the entry index: whatever rots of them, the log says what they were."""

from __future__ import annotations

import struct
import threading
from contextlib import suppress
from random import Random

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.errors import DamagedError, OutOfRangeError, StoreError
from store.io.filesystem import BLOCK_SIZE
from store.log.entry import HEADER_SIZE
from store.log.entry_row import ROW_SIZE
from store.log.log_reader import LogReader
from store.log.row_blocks import BLOCK_ROWS
from store.replica import ReplicaStore, StoreConfig
from tests.store.log.test_entry_repair import damaged, rot, rows_repaired
from tests.store.small_logs import DIRECTORY, Writer, contents, data_of, open_store, simulated
from tests.support.search_effort import sample

COUNT = 700
SEGMENT = 16 << 10
ROWS_PER_FILE = 256
PIECE = 4 << 10
CONFIG = StoreConfig("broker-a", "n0", SEGMENT, min_free_bytes=0, index_rows_per_file=ROWS_PER_FILE)


def written(count: int = COUNT, seed: int = 1) -> tuple[SimulatedFileSystem, ReplicaStore, Writer]:
    """Entries of several sizes and terms, in several segments and files, all checkpointed."""
    rng = Random(seed)
    fs = simulated(seed)
    store, writer = open_store(fs, CONFIG), Writer(SEGMENT)
    store.save_hard_state(9, "n0")
    for number in range(count):
        writer.make(rng.randbytes(rng.choice((0, 1, 30, 100))), 1 + number * 8 // count)
    store.append(writer.entries)
    store.sync()
    for index in (count - 2, count - 1):
        store.save_checkpoint(writer.checkpoint(index))
    return fs, store, writer


def place_of(row: int) -> tuple[str, int]:
    start = row - row % ROWS_PER_FILE
    return f"{DIRECTORY}/index/{start * ROW_SIZE:020d}", (row - start) * ROW_SIZE


def overwrite(fs: SimulatedFileSystem, row: int, data: bytes) -> None:
    path, byte = place_of(row)
    file = fs.open(path)
    with suppress(OSError):  # a part of what cannot be read cannot be written either
        file.pwrite(data, byte)
        file.datasync()
    file.close()


def bytes_of(fs: SimulatedFileSystem, row: int, count: int) -> bytes:
    path, byte = place_of(row)
    return fs.visible_bytes(path)[byte : byte + count * ROW_SIZE]


def harm(fs: SimulatedFileSystem, rng: Random) -> None:
    """Anything that a disk may do to rows."""
    row = rng.randrange(COUNT)
    block = row - row % BLOCK_ROWS
    path, byte = place_of(row)
    match rng.randrange(5):
        case 0:
            fs.flip_bit(path, byte + rng.randrange(ROW_SIZE), rng.randrange(8))
        case 1:
            fs.lose_sector(path, byte - byte % BLOCK_SIZE)
        case 2:  # another block is written here
            other = rng.randrange(0, COUNT - BLOCK_ROWS, BLOCK_ROWS)
            overwrite(fs, block, bytes_of(fs, other, min(BLOCK_ROWS, COUNT - block)))
        case 3:
            overwrite(fs, block, bytes(min(BLOCK_ROWS, COUNT - block) * ROW_SIZE))
        case _:
            overwrite(fs, row, bytes_of(fs, rng.randrange(COUNT), 1))


@pytest.mark.parametrize("seed", sample(range(40)))
def test_whatever_happens_to_rows_every_whole_entry_is_found_and_rows_are_written_again(
    seed: int,
) -> None:
    rng = Random(seed)
    fs, store, writer = written(seed=seed)
    rotted = set(rng.sample(range(COUNT - 1), rng.choice((0, 0, 1, 3))))
    for index in rotted:
        rot(fs, store, writer.entries[index], HEADER_SIZE - 4)
    for _ in range(rng.randint(1, 3)):
        harm(fs, rng)
    store.close()
    store = open_store(fs, CONFIG)
    for index in rng.sample(range(COUNT), 60):
        entry = writer.entries[index]
        if index in rotted:
            with pytest.raises(DamagedError):
                store.read_range(index, index, 1)
            continue
        assert store.entry_at(entry.position, COUNT - 1) == index
        assert store.entry_at(entry.end - 1, COUNT - 1) == index
        assert store.read_range(index, index, 1).data == entry.data
        assert store.read_entries(index, index, 1) == [entry]
    for _ in range(len(rotted) + 2):
        found = damaged(store, PIECE)
        assert set(found) <= rotted, "the entries that are whole do not count as damaged"
        store.repair_index()
        if found:
            store.repair_entry(writer.entries[found[0]])
    assert damaged(store, PIECE) == rows_repaired(store, PIECE) == []
    store.close()
    fs.power_loss(keep=0.0)
    store = open_store(fs, CONFIG)
    assert rows_repaired(store, PIECE) == []
    assert contents(store) == data_of(writer.entries)


@pytest.mark.parametrize("seed", sample(range(20)))
def test_damaged_headers_hide_no_other_entry_if_the_rows_are_right(seed: int) -> None:
    """Also headers next to each other, and at the end of a block."""
    rng = Random(seed)
    fs, store, writer = written(seed=seed)
    rotted: set[int] = set()
    for _ in range(rng.randint(1, 4)):
        begin = rng.choice((rng.randrange(COUNT - 30), BLOCK_ROWS * rng.randrange(1, 5) - 2))
        rotted.update(range(begin, begin + rng.choice((1, 2, 4, 20))))
    for index in rotted:
        byte = rng.choice([*range(36), *range(40, HEADER_SIZE)])  # a chain CRC says nothing alone
        rot(fs, store, writer.entries[index], byte, rng.randrange(8))
    for index in rng.sample(range(COUNT), 100):
        entry = writer.entries[index]
        assert store.entry_at(entry.position, COUNT - 1) == index
        if index in rotted:
            with pytest.raises(DamagedError):
                store.read_range(index, index, 1)
        else:
            assert store.read_range(index, index, 1).data == entry.data
    assert not store.index_needs_repair
    assert set(damaged(store, PIECE)) == rotted
    while found := damaged(store, PIECE):
        store.repair_entry(writer.entries[found[0]])
    assert rows_repaired(store, PIECE) == []
    assert contents(store) == data_of(writer.entries)


@pytest.mark.parametrize(("byte", "bit"), [(28, 4), (29, 4), (31, 0), (31, 6), (3, 1)])
def test_a_disputed_row_of_the_first_entry_hides_no_other(byte: int, bit: int) -> None:
    fs, store, writer = written()
    store.expire(writer.entries[COUNT // 2].position)
    first = store.first_index
    assert first > 0
    path, at = place_of(first)
    fs.flip_bit(path, at + byte, bit)
    store.close()
    store = open_store(fs, CONFIG)
    assert damaged(store, PIECE) == [first]
    for entry in writer.entries[first + 1 :]:
        assert store.read_range(entry.index, entry.index, 1).data == entry.data
    store.repair_entry(writer.entries[first])
    assert damaged(store, PIECE) == rows_repaired(store, PIECE) == []


@pytest.mark.parametrize("last", [BLOCK_ROWS - 1, 3 * BLOCK_ROWS - 1, 300])
def test_a_damaged_entry_without_a_row_hides_none_in_the_next_block(last: int) -> None:
    fs, store, writer = written()
    path, byte = place_of(last)
    fs.flip_bit(path, byte + 17)
    rot(fs, store, writer.entries[last], 1)
    store.close()
    store = open_store(fs, CONFIG)
    assert damaged(store, PIECE) == [last]
    store.repair_entry(writer.entries[last])
    assert damaged(store, PIECE) == rows_repaired(store, PIECE) == []


def test_readers_see_the_right_rows_while_the_log_grows_expires_and_is_repaired() -> None:
    """In threads, as a node does it. What ends it is the number of rounds of the writer."""
    fs, store, writer = written()
    stopped = threading.Event()
    wrong: list[BaseException] = []

    def reading(seed: int) -> None:
        rng = Random(seed)
        while not stopped.is_set():
            index = rng.randint(store.first_index, len(writer.entries) - 200)
            entry = writer.entries[index]
            try:
                assert store.read_range(index, index, 1).data == entry.data
                assert store.entry_at(entry.position, index) == index
            except OutOfRangeError:
                if index >= store.first_index:
                    wrong.append(AssertionError(f"{index} is said to have expired"))
            except (AssertionError, StoreError, ValueError, struct.error) as error:
                if index >= store.first_index:
                    wrong.append(error)

    threads = [threading.Thread(target=reading, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    rng = Random(9)
    try:
        for turn in range(40):
            added = [writer.make(rng.randbytes(rng.choice((0, 30, 100))), 8) for _ in range(50)]
            store.append(added)
            store.sync()
            store.save_checkpoint(writer.checkpoint(len(writer.entries) - 1))
            row = rng.randrange(store.first_index, store.last_index - 200)
            path, byte = place_of(row)
            fs.flip_bit(path, byte + rng.choice((3, 7, 11, 15, 20)), rng.randrange(3))
            store.check_entries(max(row - 20, store.first_index), store.last_index, PIECE)
            store.repair_index()
            if turn % 8 == 7:
                store.expire(writer.entries[store.first_index + 200].position)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    rows_repaired(store, PIECE)
    assert rows_repaired(store, PIECE) == damaged(store, PIECE) == []


@pytest.mark.parametrize("seed", sample(range(10)))
def test_the_log_begins_where_it_should_though_another_block_was_written_over_its_rows(
    seed: int,
) -> None:
    rng = Random(seed)
    fs, store, writer = written(seed=seed)
    for block in range(0, COUNT - BLOCK_ROWS, BLOCK_ROWS):
        other = rng.randrange(0, COUNT - BLOCK_ROWS, BLOCK_ROWS)
        if rng.random() < 0.4:
            overwrite(fs, block, bytes_of(fs, other, BLOCK_ROWS))
    for index in sorted(rng.sample(range(COUNT - 2), 3)):
        store.expire(writer.entries[index].position)
        first = writer.entries[store.first_index]
        assert first.position == store.first_position
        assert store.beginning() == (first.index, first.position)
        assert writer.entries[index].position - first.position < SEGMENT
        assert damaged(store, PIECE) == []
    store.close()
    assert contents(open_store(fs, CONFIG)) == data_of(writer.entries[store.first_index :])


@pytest.mark.parametrize("lost", ["rows", "segment"])
def test_the_scrub_of_what_is_lost_reads_no_more_than_its_share(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as many entries, twice as many reads."""
    reads = 0
    read = LogReader.read

    def counted(reader: LogReader, position: int, size: int) -> object:
        nonlocal reads
        reads += 1
        return read(reader, position, size)

    monkeypatch.setattr(LogReader, "read", counted)

    def cost(count: int) -> int:
        nonlocal reads
        fs, store, writer = written(count)
        if lost == "rows":
            for row in range(0, count, BLOCK_ROWS):
                overwrite(fs, row, bytes(min(BLOCK_ROWS, count - row) * ROW_SIZE))
        else:
            for start in range(0, writer.end, SEGMENT):
                for byte in range(0, SEGMENT, BLOCK_SIZE):
                    fs.lose_sector(f"{DIRECTORY}/commitlog/{start:020d}", byte)
        reads = 0
        found = damaged(store, PIECE)
        assert len(found) == (0 if lost == "rows" else count)
        return reads

    once, twice = cost(800), cost(1600)
    assert twice < 2.5 * once
    assert twice < 1600 * 12
