"""Finding the entry that has a position, with few looks into the entry index."""

from __future__ import annotations

import random

import pytest

from store.errors import OutOfRangeError
from store.replica import StoreConfig
from tests.store.steps import Writer, open_store, save_mark, simulated

SEGMENT = 1 << 20
CONFIG = StoreConfig("broker-a", "n0", SEGMENT, min_free_bytes=0, index_rows_per_file=512)


@pytest.mark.parametrize("sizes", [(30, 30), (0, 400), (0, 1), (1, 9000)])
@pytest.mark.parametrize("expired", [False, True])
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
        store.read_run(store.entry_at(store.first_position - 1, count - 1), count - 1, 1)
