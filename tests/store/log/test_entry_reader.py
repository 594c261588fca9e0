"""Finding the entry that has a position, with few looks into the entry index."""

from __future__ import annotations

import random
from itertools import product

import pytest

from store.errors import DamagedError, OutOfRangeError
from store.io.filesystem import BLOCK_SIZE
from store.log.entry import HEADER_SIZE
from store.log.entry_row import ROW_SIZE
from store.replica import StoreConfig
from tests.store.small_logs import (
    DIRECTORY,
    Writer,
    contents,
    data_of,
    open_store,
    save_mark,
    simulated,
)
from tests.support.search_effort import sample

SEGMENT = 1 << 20
CONFIG = StoreConfig("broker-a", "n0", SEGMENT, min_free_bytes=0, index_rows_per_file=512)


@pytest.mark.parametrize(
    ("expired", "sizes"),
    sample(product([False, True], [(30, 30), (0, 400), (0, 1), (1, 9000)])),
)
def test_the_entry_of_any_position_is_found_with_few_reads(
    sizes: tuple[int, int], expired: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    store, writer = open_store(simulated(), CONFIG), Writer(SEGMENT)
    store.save_hard_state(1, "n0")
    count = 3000
    for number in range(count):
        most = sizes[1] if number % 500 < 20 else max(sizes[0], 30)
        writer.make(bytes(rng.randint(sizes[0], most) if most > sizes[0] else sizes[0]))
    store.append(writer.entries)
    store.sync()
    save_mark(store, writer.entries[-1])
    for index in (count - 200, count - 100):
        store.save_checkpoint(writer.checkpoint(index))
    if expired:
        store.expire(writer.entries[count // 2].position)
    looks = 0
    rows = store._index.rows

    def counted(first: int, end: int) -> bytes:
        nonlocal looks
        looks += 1
        return rows(first, end)

    monkeypatch.setattr(store._index, "rows", counted)
    first = store.first_index
    for index in range(first, count, 7):
        entry = writer.entries[index]
        looks = 0
        assert store.entry_at(entry.position, count - 1) == index
        assert looks <= 10
        assert store.entry_at(entry.end - 1, count - 1) == index
        last = rng.randint(first, index)
        assert store.entry_at(entry.position, last) == last
    with pytest.raises(OutOfRangeError):
        store.read_range(store.entry_at(store.first_position - 1, count - 1), count - 1, 1)


@pytest.mark.parametrize("byte", sample(range(ROW_SIZE)))
@pytest.mark.parametrize("bit", [0, 6])
def test_rows_that_rotted_hide_no_entry_and_lead_to_no_other(byte: int, bit: int) -> None:
    count, rotted = 40, (0, 1, 17, 18, 32, 39)
    fs = simulated()
    store, writer = open_store(fs), Writer()
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(count))
    store.sync()
    save_mark(store, writer.entries[-1])
    store.save_checkpoint(writer.checkpoint(count - 1))
    for index in rotted:
        path = f"{DIRECTORY}/index/{(index - index % 4) * ROW_SIZE:020d}"
        fs.flip_bit(path, index % 4 * ROW_SIZE + byte, bit)
    for entry in writer.entries:
        for position in (entry.position, entry.end - 1):
            assert store.entry_at(position, count - 1) == entry.index
        assert store.read_range(entry.index, entry.index, 1).data == entry.data
    assert contents(store) == data_of(writer.entries)
    assert store.entry_at(-1, count - 1) == -1


@pytest.mark.parametrize("damage", ["wrong", "unreadable"])
def test_entries_are_found_though_many_rows_one_behind_the_other_are_lost(damage: str) -> None:
    fs = simulated()
    store, writer = open_store(fs, CONFIG), Writer(SEGMENT)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(2000))
    store.sync()
    store.save_checkpoint(writer.checkpoint(1999))
    for index in range(600, 1700):
        start = index - index % 512
        path, byte = f"{DIRECTORY}/index/{start * ROW_SIZE:020d}", (index - start) * ROW_SIZE
        if damage == "wrong":
            fs.flip_bit(path, byte + 20)
        elif byte % BLOCK_SIZE == 0:
            fs.lose_sector(path, byte)
    for entry in writer.entries[::37]:
        assert store.entry_at(entry.position, 1999) == entry.index
        assert store.read_range(entry.index, entry.index, 1).data == entry.data
    assert store.index_needs_repair


def test_a_damaged_entry_among_lost_rows_hides_no_other() -> None:
    """Its header says where the next one stands."""
    fs = simulated()
    store, writer = open_store(fs, CONFIG), Writer(SEGMENT)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(300))
    store.sync()
    store.save_checkpoint(writer.checkpoint(299))
    fs.lose_sector(f"{DIRECTORY}/index/{0:020d}", 0)
    damaged = writer.entries[50]
    fs.flip_bit(f"{DIRECTORY}/commitlog/{0:020d}", damaged.position + HEADER_SIZE)
    for entry in writer.entries:
        assert store.entry_at(entry.position, 299) == entry.index
        if entry is damaged:
            with pytest.raises(DamagedError, match="body CRC"):
                store.read_range(50, 50, 1)
        else:
            assert store.read_range(entry.index, entry.index, 1).data == entry.data
